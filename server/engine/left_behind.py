"""What a shared engine may still generate for requests that were given up.

A connection that is closed should end its request, and SGLang is told besides; but an engine has been reported to
miss both and to decode on to `max_tokens`. No client can see that from outside on an engine that others use as well.
So the damage is bounded instead: a request may have few tokens, and a window leaves no more than `MOST` requests
behind that could still run; a further one waits until the oldest must have ended. And it is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MOST = 8
TOKEN_S = 0.02  # assumed for a token until one was measured
SLOWEST_TOKEN_S = 0.25
MEMORY = 0.2  # weight of the newest measurement


class LeftBehind:
    """One window's ledger. Times in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.cancelled = 0  # requests given up after they were sent
        self.tokens = 0  # at most so many were generated for nobody
        self.unheard = 0  # requests to abort that the engine did not take
        self._now = now
        self._token_s = TOKEN_S
        self._ends: list[float] = []  # when each request left behind must have ended

    def measured(self, token_s: float) -> None:
        """A token took so long."""
        token_s = min(SLOWEST_TOKEN_S, token_s)
        self._token_s = (1 - MEMORY) * self._token_s + MEMORY * token_s

    def left(self, tokens: int) -> None:
        """A request was given up that had so many tokens to go."""
        self.cancelled += 1
        self.tokens += tokens
        self._ends.append(self._now() + tokens * self._token_s)

    @property
    def possibly_running(self) -> int:
        now = self._now()
        self._ends = [end for end in self._ends if end > now]
        return len(self._ends)

    async def room(self) -> None:
        """Wait until fewer than `MOST` requests that were left behind could still run."""
        running = self.possibly_running
        if running >= MOST:
            await asyncio.sleep(sorted(self._ends)[running - MOST] - self._now())
