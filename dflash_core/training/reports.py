"""Rows that a training run reports, each a dict that JSON can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Report = Callable[[dict[str, Any]], None]
