"""Values of a config.json, checked where they enter: an error names the key and says what it must be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_core.errors import CheckpointError

Config = Mapping[str, Any]

_LARGEST_SIZE = 1 << 24
"""Of any dimension: beyond it a config is damaged, and building from it would only exhaust the memory."""


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder."""
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {folder}: config.json is missing")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        # The first files of MiMo-V2.6-Flash's draft (before revision b2674c72) had a comma too many.
        raise CheckpointError(f"{path} cannot be read: {error}; a later revision of it may be right") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return config


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
