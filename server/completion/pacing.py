"""When a new generation may be sent: at once where the engine is faster than the typing, else a little later.

A generation that the next key would abort costs the engine a prefill and brings nothing. So while keys come
faster than the engine's first text, a generation waits for a pause a little longer than the usual one
between two keys. What is aborted while it waits was never sent.
"""

from __future__ import annotations

import math
import time

FAST_S = 0.05  # an engine whose first text comes within this is never waited for
LONGEST_S = 0.15
BURST_S = 1.0  # a longer pause between two keys says nothing about the typing rate
MEMORY = 0.2  # weight of the newest measurement
PATIENCE = 1.3  # times the usual pause between two keys


class Pacing:
    """Measures one window. Times in seconds; `now` is time.monotonic()."""

    def __init__(self) -> None:
        self._first_text_s = 0.0  # 0.0 until measured: the first requests go at once
        self._key_gap_s = BURST_S
        self._last_key = -math.inf
        self._last_line: tuple[str, int] | None = None

    def key(self, now: float | None = None) -> None:
        """A document was edited."""
        now = time.monotonic() if now is None else now
        gap, self._last_key = now - self._last_key, now
        if 0 < gap < BURST_S:
            self._key_gap_s = _blended(self._key_gap_s, gap)

    def until_pause(self, pause_s: float, now: float | None = None) -> float:
        """How long until no key has come for `pause_s`, if none comes; 0.0 when that is so."""
        now = time.monotonic() if now is None else now
        return max(0.0, self._last_key + pause_s - now)

    def first_text(self, seconds: float) -> None:
        """A generation's first text came so long after it was sent."""
        self._first_text_s = _blended(self._first_text_s, seconds) if self._first_text_s else seconds

    def delay(self, uri: str, line: int) -> float:
        """How long a new generation on a line should wait for the next key. The first on a line does not wait."""
        is_first, self._last_line = self._last_line != (uri, line), (uri, line)
        if is_first or self._first_text_s <= max(FAST_S, self._key_gap_s):
            return 0.0
        return min(LONGEST_S, PATIENCE * self._key_gap_s)


def _blended(before: float, now: float) -> float:
    return (1 - MEMORY) * before + MEMORY * now
