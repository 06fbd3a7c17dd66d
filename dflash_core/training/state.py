"""What a training run goes on from: one file, whole or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from dflash_core.errors import CheckpointError


def write_state(state: dict[str, Any], file: Path) -> None:
    """Replaces the file at once: a run that is ended while it writes keeps the state before."""
    partial = file.with_name(file.name + ".partial")
    torch.save(state, partial)
    partial.replace(file)


def read_state(file: Path, device: torch.device | str) -> dict[str, Any]:
    """Raises CheckpointError when the file holds no state."""
    try:
        state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    except Exception as error:
        raise CheckpointError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    return state
