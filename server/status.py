"""What the server tells its client of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """What `dflash/status` tells; `state` and `progress` are the engine's.

    reason: what the engine is doing or why it cannot be used, else why the last answer was empty.
    """

    state: str = "loading"
    progress: float | None = None
    reason: str = "starting"
    profile: str = ""
    target: str = ""
    draft: str = ""
    acceptance_length: float = 0.0
    tokens_per_s: float = 0.0
