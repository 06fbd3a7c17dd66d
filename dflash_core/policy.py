"""Whether to draft, and how many rows to verify: decided from measured cost and measured acceptance.

A round of width w costs round_ms[w] and yields 1 + p1 + p1 p2 + ... tokens, where pk is how often row k has lately been
right when the rows before it were. The width with the most tokens a millisecond wins; width 1 is plain autoregression.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import torch

_MEMORY = 0.95
"""Weight of the past in running means of acceptance: about the last 20 rounds count."""

_RECENT_ROUNDS = 5
"""A width costs the quickest of so many recent rounds: what else the machine does only ever makes a round slower, and
one round beside a busy neighbour must not turn the draft off."""

_PRIOR_ACCEPTANCE = 0.7
"""Assumed before anything was seen; high enough that a draft is tried."""

_PROBE_EVERY = 32
"""Steps without the draft after which one full block is drafted all the same, or acceptance could never recover."""


def clock_for(device: torch.device) -> Callable[[], float]:
    """Seconds of work: on a CPU the processor time of all threads, on a device the time that passes.

    On a shared machine the time that passes tells of the neighbours: a policy that learned from it while they were
    busy turned the draft off for good.
    """
    return time.process_time if device.type == "cpu" else time.perf_counter


def verify_widths(block_size: int) -> list[int]:
    """The widths that are chosen from: few, since each is a captured graph on a device."""
    return [w for w in (1, 2, 4, 8) if w < block_size] + [block_size]


class DraftPolicy:
    def __init__(self, block_size: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.widths = verify_widths(block_size)
        self._recent_ms: dict[int, deque[float]] = {w: deque(maxlen=_RECENT_ROUNDS) for w in self.widths}
        self.acceptance = [_PRIOR_ACCEPTANCE] * (block_size - 1)
        self._steps_without_draft = 0

    def width(self, limit: int) -> int:
        """Rows to verify in the next round, at most `limit` of them."""
        allowed = [w for w in self.widths if w <= max(limit, 1)]
        if self._steps_without_draft >= _PROBE_EVERY:
            return allowed[-1]
        return max(allowed, key=self._tokens_per_ms)

    def observe(self, width: int, accepted: int, milliseconds: float) -> None:
        """Takes in one round as it went."""
        self._record(width, milliseconds)
        self._steps_without_draft = self._steps_without_draft + 1 if width == 1 else 0
        for row in range(min(accepted + 1, width - 1)):
            self.acceptance[row] = _mix(self.acceptance[row], float(row < accepted))

    def measure(self, width: int, run: Callable[[int], object]) -> None:
        """Times one round of this width outside any request."""
        started = self.clock()
        run(width)
        self._record(width, (self.clock() - started) * 1000)

    @property
    def round_ms(self) -> dict[int, float]:
        """What a round of each width costs now, in milliseconds of the clock; a width never run is missing."""
        return {width: min(recent) for width, recent in self._recent_ms.items() if recent}

    def expected_tokens(self, width: int) -> float:
        """Mean tokens a round of this width commits, the bonus token included."""
        expected, reached = 1.0, 1.0
        for p in self.acceptance[: width - 1]:
            reached *= p
            expected += reached
        return expected

    def _tokens_per_ms(self, width: int) -> float:
        # A width never run is tried once: calibration runs all of them before the first request.
        return self.expected_tokens(width) / self.round_ms.get(width, 1e-3)

    def _record(self, width: int, milliseconds: float) -> None:
        # The last rounds of a text may be narrower than any width that is chosen from.
        if width in self._recent_ms:
            self._recent_ms[width].append(milliseconds)


def _mix(old: float, new: float) -> float:
    return _MEMORY * old + (1 - _MEMORY) * new
