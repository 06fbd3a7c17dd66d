"""A circuit breaker: after failures in a row an engine is left alone for a while, longer each time.

    closed -> (failures in a row) -> open -> (its pause is over) -> half open -> closed, or open again

The pause is jittered, or all windows that lost the same engine would come back to it at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Literal

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
JITTER = 0.2  # at most so much longer
THRESHOLD = 3


class CircuitBreaker:
    """Counts what one window sees of one engine. `threshold`: failures in a row that open it."""

    def __init__(self, threshold: int = THRESHOLD, now: Callable[[], float] = time.monotonic) -> None:
        self._threshold = threshold
        self._now = now
        self._failures = 0
        self._pause_s = 0.0
        self._open_until: float | None = None

    @property
    def state(self) -> Literal["closed", "open", "half open"]:
        if self._open_until is None:
            return "closed"
        return "open" if self._now() < self._open_until else "half open"

    def failed(self, retry_after_s: float | None = None) -> bool:
        """Count a failure; whether the engine is left alone now. retry_after_s: what the engine asked for."""
        self._failures += 1
        if self._open_until is None and self._failures < self._threshold:
            return False
        self.trip(retry_after_s)
        return True

    def trip(self, retry_after_s: float | None = None) -> None:
        """Leave the engine alone from now on, for longer than the time before."""
        self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s or FIRST_PAUSE_S)
        pause_s = max(self._pause_s, min(retry_after_s or 0.0, LONGEST_PAUSE_S))
        self._open_until = self._now() + pause_s * random.uniform(1, 1 + JITTER)

    def succeeded(self) -> None:
        """The engine did what was asked: whatever happens next is a new trouble."""
        self._failures = 0
        self._pause_s = 0.0
        self._open_until = None
