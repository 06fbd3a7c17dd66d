"""Boundaries are decided line by line, so that the pieces in which text arrives cannot matter.

`LineBoundary` walks the lines; `LineRules` say which of them belong to the unit. A line that has only
begun is judged as well, but only where no rest of it could change the judgement. Independent of any
syntax, the walk also ends before lines that stand below the cursor already, at a line repeated three
times, and before a code fence, after which small models turn to prose.

Equal lines prove nothing while they only begin something, as `@Override` or `import {` do: they wait for the
next one to tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from server.completion.boundaries.boundary import CursorText, Decision

BOUNDARY = "boundary"
ALREADY_BELOW = "already below"
REPETITION = "repetition"
PROSE = "prose"
NO_TEXT = "no text"

FENCE = "```"
ENOUGH_EQUAL = 5  # lines equal to those below prove a repetition also where they complete nothing
REPEATED = 4  # the same line, or the same few, so often in a row is a loop of the model
ROWS_REPEATED = 12  # but a table may have equal rows
LONGEST_PERIOD = 4  # lines
CLOSERS = ")]}"
_WORD = re.compile(r"\w")
_LETTER = re.compile(r"[^\W\d_]")
_CELLS = re.compile(r"\s*[|\[({]")  # what a row of a table begins with


@dataclass(frozen=True)
class Keep:
    """The line belongs to the unit."""


@dataclass(frozen=True)
class Wait:
    """More of the line is needed to tell."""


@dataclass(frozen=True)
class Stop:
    """The unit has ended before this line."""

    reason: str = BOUNDARY


Verdict = Keep | Wait | Stop
KEEP, WAIT = Keep(), Wait()


class LineRules(Protocol):
    """What a syntax says about lines. Lines come without `\\n`; the first one with what stands before it."""

    @property
    def depth(self) -> int:
        """Brackets open at the end of the last line that was read."""
        ...

    @property
    def closed_below(self) -> int:
        """How many of the brackets that are open at the cursor are closed by the text below it."""
        ...

    @property
    def inside_string(self) -> bool:
        """Whether the last line that was read ended inside a string or a comment of several lines."""
        ...

    @property
    def leads(self) -> bool:
        """Whether the last line that was read is only the beginning of what it belongs to."""
        ...

    def blank(self, line: str, first: bool) -> Verdict:
        """A blank line was generated; `first`: nothing was added to the cursor's own line."""
        ...

    def begins(self, line: str, whole: bool) -> Verdict:
        """Whether a line that is not blank belongs to the unit; `whole`: no more of it comes.

        May be asked again with more of the line, and must change nothing.
        """
        ...

    def closes_too_much(self, fresh: str) -> int | None:
        """Where the generated part of a line closes a bracket that the text below closes, or none that is open."""
        ...

    def ends(self, line: str, fresh: str) -> bool:
        """The line was kept, `fresh` is the generated part of it; whether the unit is complete with it."""
        ...


class LineBoundary:
    """The walk over the lines of one completion; keeps the contract of `Boundary`."""

    def __init__(self, cursor: CursorText, rules: LineRules, *, fence_ends: bool) -> None:
        self._cursor = cursor
        self._rules = rules
        self._fence_ends = fence_ends
        self._line_above = cursor.above.rstrip().rpartition("\n")[2]
        self._start = 0  # where the first line begins that is not judged yet
        self._kept = 0  # end of the last line kept, without trailing blanks
        self._equal = 0  # so many of the last lines kept stand below the cursor, in this order
        self._kept_before_equal = 0
        self._depth_before_equal = 0
        self._evidence = 0  # so many of the equal lines are no rows that repeat
        self._lines: list[str] = []  # those that were kept, without trailing blanks
        self._repeats = 1
        self._kept_before_repeats = 0
        self._within = rules.inside_string  # in the string that the cursor is in
        self._decision = Decision()

    @property
    def inside_string(self) -> bool:
        return self._rules.inside_string

    def feed(self, text: str) -> Decision:
        if self._decision.end is None:
            self._walk(text)
        return self._decision

    def finish(self, text: str, *, ran_out: bool = False) -> Decision:
        self.feed(text)
        last = text[self._start :]
        if self._decision.end is None and last.strip():
            if ran_out and self._begins_what_is_below(last):
                self._end(ALREADY_BELOW)
            else:
                self._line(last)
        if self._decision.end is None:
            self._end(BOUNDARY)
        return self._decision

    def _walk(self, text: str) -> None:
        while (newline := text.find("\n", self._start)) >= 0:
            self._line(text[self._start : newline])
            if self._decision.end is not None:
                return
            self._start = newline + 1
        self._peek(text[self._start :])

    def _whole(self, fresh: str) -> str:
        return self._cursor.line_before + fresh if self._start == 0 else fresh

    def _line(self, fresh: str) -> None:
        """Judge a line that is complete."""
        line = self._whole(fresh)
        if not fresh.strip():
            verdict = self._rules.blank(line, first=self._start == 0)
            if isinstance(verdict, Stop):
                self._end(verdict.reason)
            return
        verdict = self._judge(line, whole=True)
        if isinstance(verdict, Stop):
            self._end(verdict.reason)
            return
        cut = self._rules.closes_too_much(fresh)
        if cut is not None:
            if fresh[:cut].strip() and not self._stands_next_below(line.rstrip()):
                self._kept = self._start + len(fresh[:cut].rstrip())
                self._equal = 0
            self._end(ALREADY_BELOW)
            return
        kept, before, depth = fresh.rstrip(), self._kept, self._rules.depth
        done = self._rules.ends(line, fresh)
        within, self._within = self._within, self._within and self._rules.inside_string
        surplus = self._closers_below(kept)
        if surplus < len(kept.strip()):
            self._kept = self._start + len(kept[: len(kept) - surplus].rstrip())
        if self._repeats == 1:
            self._kept_before_repeats = self._kept
        if self._compare_below(line, before, depth, within):
            self._end(ALREADY_BELOW)
        elif done or surplus:
            self._end(ALREADY_BELOW if surplus else BOUNDARY)
        elif not self._equal and (self._repeats == 1 or _is_row(line.rstrip())):
            self._settle(self._kept)

    def _compare_below(self, line: str, kept_before: int, depth_before: int, within: bool) -> bool:
        """Whether this line and those before it are what stands below the cursor, and no part of the unit.

        within: the line is one of the string that the cursor is in, whose text has no depth.
        """
        below = self._cursor.lines_below
        line = line.rstrip()
        if self._start == 0 and not self._cursor.on_blank_line:
            return False  # the user is typing this line, whatever stands below
        if self._equal >= len(below) or line != below[self._equal]:
            self._equal = 0
        if not below or line != below[self._equal]:
            return False
        if not self._equal:
            if line.lstrip()[0] in CLOSERS and not within and not _WORD.search(line):
                return False  # `_stands_below` knows more of closers alone
            self._kept_before_equal, self._depth_before_equal = kept_before, depth_before
            self._evidence = 0
        self._equal += 1
        repeated = line in (self._line_above, *self._lines[-2:-1])
        self._evidence += not repeated and (not within or _WORD.search(line) is not None)
        whole = within or (not self._rules.leads and self._rules.depth <= self._depth_before_equal)
        return (whole and self._evidence > 0) or self._evidence == ENOUGH_EQUAL

    def _stands_next_below(self, line: str) -> bool:
        below = self._cursor.lines_below
        typed = self._start == 0 and not self._cursor.on_blank_line
        return not typed and line in (*below[self._equal : self._equal + 1], *below[:1])

    def _begins_what_is_below(self, fresh: str) -> bool:
        """Whether a line that broke off is the beginning of the line below that it comes to."""
        line, below = self._whole(fresh).rstrip(), self._cursor.lines_below
        if self._start == 0 and not self._cursor.on_blank_line:
            return False
        if self._equal and any(each.startswith(line) for each in below[self._equal : self._equal + 1]):
            return True
        return _WORD.search(line) is not None and any(each.startswith(line) for each in below[:1])

    def _peek(self, fresh: str) -> None:
        """Judge a line that has only begun."""
        if not fresh.strip():
            return
        line = self._whole(fresh)
        verdict = self._rules.begins(line, whole=False)
        if isinstance(verdict, Stop):
            self._end(verdict.reason)
        elif (
            isinstance(verdict, Keep)
            and not self._may_turn_out_unwanted(line)
            and self._rules.closes_too_much(fresh) is None
        ):
            self._settle(self._start + len(fresh.rstrip()))

    def _judge(self, line: str, whole: bool) -> Verdict:
        verdict = self._rules.begins(line, whole)
        if isinstance(verdict, Stop):
            return verdict
        if self._is_fence(line):
            return Stop(PROSE)
        if self._ends_no_comment(line):
            return Stop()
        if self._stands_below(line):
            return Stop(ALREADY_BELOW)
        return Stop(REPETITION) if self._is_loop(line.rstrip()) else KEEP

    def _is_loop(self, line: str) -> bool:
        """Whether the line is once too often the same; a loop of one line is kept once, and no row is cut."""
        repeated = self._lines[-1:] == [line]
        self._repeats = self._repeats + 1 if repeated else 1
        self._lines.append(line)
        if self._repeats == (ROWS_REPEATED if _is_row(line) else REPEATED):
            self._kept = self._kept if _is_row(line) else self._kept_before_repeats
            return True
        for period in range(2, LONGEST_PERIOD + 1):
            last = self._lines[-period:]
            times = ROWS_REPEATED if all(map(_is_row, last)) else REPEATED
            if self._lines[-period * times :] == last * times and len(set(last)) == period:
                return True
        return False

    def _is_fence(self, line: str) -> bool:
        return self._fence_ends and not self._rules.inside_string and line.lstrip().startswith(FENCE)

    def _ends_no_comment(self, line: str) -> bool:
        """Whether the line begins with the end of a comment that it is not in."""
        comment = self._cursor.language.block_comment
        return comment is not None and not self._rules.inside_string and line.lstrip().startswith(comment[1])

    def _stands_below(self, line: str) -> bool:
        """Whether the line begins by closing what the file closes itself below the cursor."""
        start = line.lstrip()
        closing = len(start) - len(start.lstrip(CLOSERS))
        return (
            bool(closing)
            and not self._rules.inside_string
            and self._start > 0
            and (self._rules.depth - closing < self._rules.closed_below)
        )

    def _may_turn_out_unwanted(self, line: str) -> bool:
        """Whether a rest of the line could make it one that a complete line is stopped or cut for."""
        line = line.rstrip()
        below, start = self._cursor.lines_below, line.lstrip()
        next_equal = below[self._equal] if self._equal < len(below) else ""
        return (
            any(each.startswith(line) for each in (next_equal, *below[:1]))
            or (self._start > 0 and any(each.startswith(line) for each in self._lines[-LONGEST_PERIOD:]))
            or (self._fence_ends and (FENCE.startswith(start) or start.startswith(FENCE)))
            or line[-1] in CLOSERS
            or self._stands_below(line)
            or self._ends_no_comment(line)
            or start in "*-]"  # of the end of a comment
        )

    def _closers_below(self, kept: str) -> int:
        """How many closers at the kept line's end stand at the beginning of the next line below already."""
        below = (self._cursor.next_line or "").lstrip()
        surplus = self._rules.closed_below - self._rules.depth
        if surplus <= 0 or self._cursor.line_after.strip():
            return 0
        count = 0
        while count < surplus and kept[: len(kept) - count].endswith(tuple(CLOSERS)):
            count += 1
        tail = kept[len(kept) - count :]
        return count if count and below.startswith(tail) else 0

    def _settle(self, length: int) -> None:
        self._decision = Decision(max(length, self._decision.settled))

    def _end(self, reason: str) -> None:
        if self._equal:
            self._kept, reason = self._kept_before_equal, ALREADY_BELOW
        if self._kept and reason != REPETITION:
            reason = BOUNDARY
        elif not self._kept and reason == BOUNDARY:
            reason = NO_TEXT
        self._decision = Decision(self._kept, self._kept, reason)


def _is_row(line: str) -> bool:
    """Whether the line may well be equal to the one above: a row of a table, or nothing but numbers and signs."""
    return line.endswith(",") or not _LETTER.search(line) or _CELLS.match(line) is not None
