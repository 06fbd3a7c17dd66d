"""Ends a completion whose target repeats a few tokens within one line for ever.

Loops of whole lines are the affair of `LineBoundary`; a loop inside a line has no line end to be judged at, and
would run until the tokens do. Tokens are words and signs here, so that the same holds for any target.

What code repeats is not cut: rows of numbers, signs without a word, escapes, what comes back only a few times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from server.completion.boundaries.boundary import Boundary, Decision
from server.completion.boundaries.line_boundary import REPETITION

LONGEST_PERIOD = 16  # tokens
SUSPECT = 3  # so often in a row the same: no more is shown before it is known whether that is a loop
LOOP = 8  # so often is one
LOOP_LONG = 5  # of a pattern of `LONG` characters
LOOP_ROW = 24  # of what is separated by commas
LONG = 20
SHORTEST_LOOP = 60  # characters
_TOKEN = re.compile(r"\n|\w+|[^\w\s]")
_WORD = re.compile(r"[^\W\d]")


class LoopGuard:
    """A boundary, ended early where its text runs into a loop; keeps the contract of `Boundary`."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._read = 0  # characters of the text that were split into tokens
        self._tokens: list[tuple[str, int]] = []  # of the last line, each with where it ends
        self._same = [0] * (LONGEST_PERIOD + 1)  # by period: so many tokens at the end equal those a period before
        self._held = -1  # no more than so much is settled while a loop is suspected; -1: none is
        self._decision = Decision()

    @property
    def inside_string(self) -> bool:
        return self._boundary.inside_string

    def feed(self, text: str) -> Decision:
        if self._decision.end is None:
            looped_at = self._loops_at(text)
            if looped_at is None:
                self._take(self._boundary.feed(text))
            else:
                self._end(self._boundary.feed(text[:looped_at]))
        return self._decision

    def finish(self, text: str, *, ran_out: bool = False) -> Decision:
        if self.feed(text).end is None:
            self._decision = self._boundary.finish(text, ran_out=ran_out)
        return self._decision

    def _take(self, decision: Decision) -> None:
        if decision.end is not None or self._held < 0:
            self._decision = decision
        else:
            self._decision = Decision(max(self._decision.settled, min(decision.settled, self._held)))

    def _end(self, decision: Decision) -> None:
        if decision.end is not None:
            self._decision = decision
            return
        end = max(self._decision.settled, min(decision.settled, self._held))
        self._decision = Decision(end, end, REPETITION)

    def _loops_at(self, text: str) -> int | None:
        """Where in the text it has become a loop, which does not depend on the pieces that it came in."""
        for token, end in self._fresh(text):
            if token == "\n":
                self._tokens.clear()
                self._same = [0] * (LONGEST_PERIOD + 1)
                self._held = -1
                continue
            self._tokens.append((token, end))
            suspected = False
            for period in range(1, min(LONGEST_PERIOD, len(self._tokens) - 1) + 1):
                if self._tokens[-1 - period][0] != token:
                    self._same[period] = 0
                    continue
                self._same[period] += 1
                times = 1 + self._same[period] / period
                if times < SUSPECT or not self._may_loop(period):
                    continue
                if self._held < 0:
                    self._held = end
                suspected = True
                if self._is_loop(period, times):
                    return end
            if not suspected:
                self._held = -1
        return None

    def _fresh(self, text: str) -> Iterator[tuple[str, int]]:
        """The tokens that are new; a word at the text's end may still grow."""
        end = len(text)
        while end > self._read and (text[end - 1].isalnum() or text[end - 1] == "_"):
            end -= 1
        for found in _TOKEN.finditer(text, self._read, end):
            self._read = found.end()
            yield found[0], found.end()

    def _may_loop(self, period: int) -> bool:
        pattern = [token for token, _ in self._tokens[-period:]]
        return "\\" not in pattern and any(_WORD.match(token) for token in pattern)

    def _is_loop(self, period: int, times: float) -> bool:
        pattern = [token for token, _ in self._tokens[-period:]]
        begin = self._tokens[-1 - self._same[period]][1]
        length = self._tokens[-1][1] - begin
        least = LOOP_ROW if "," in pattern else LOOP_LONG if length / times >= LONG else LOOP
        return times >= least and length >= SHORTEST_LOOP
