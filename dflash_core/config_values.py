"""Values of a config.json, checked where they enter: an error names the key and says what it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dflash_core.errors import CheckpointError

Config = Mapping[str, Any]

_LARGEST_SIZE = 1 << 24
"""Of any dimension: beyond it a config is damaged, and building from it would only exhaust the memory."""


def size(config: Config, key: str) -> int:
    return whole(key, config.get(key))


def whole(key: str, value: Any, low: int = 1, high: int = _LARGEST_SIZE) -> int:
    if type(value) is not int or not low <= value <= high:
        raise CheckpointError(f"config.json: {key} must be a whole number from {low} to {high}, got {value!r}")
    return value


def positive(key: str, value: Any, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CheckpointError(f"config.json: {key} must be a number above 0, got {value!r}")
    return float(value)


def eos_ids(config: Config) -> tuple[int, ...]:
    found = config.get("eos_token_id")
    return tuple(found) if isinstance(found, list) else () if found is None else (int(found),)
