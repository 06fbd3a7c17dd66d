"""The one interface of boundaries: text grows, a decision about it only ever grows too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from server.context.languages import Language

TAB_WIDTH = 8  # as Python counts; only comparisons between lines of one file depend on it


@dataclass(frozen=True)
class Decision:
    """What is known about the text generated so far.

    settled: so many of its characters will be part of the answer, whatever follows. Never shrinks.
    end: where the answer ends, once known; then `settled == end` and nothing changes any more.
    reason: why it ends there: "boundary", or why nothing is left of it; "" while it has not ended.
    """

    settled: int = 0
    end: int | None = None
    reason: str = ""


class Boundary(Protocol):
    """Decides about one completion. However the text is cut into pieces, the result is the same."""

    @property
    def inside_string(self) -> bool:
        """Whether the last whole line of the text ended inside a string or comment of several lines."""
        ...

    def feed(self, text: str) -> Decision:
        """Decide about all of the text generated so far; each text must begin with the one before."""
        ...

    def finish(self, text: str, *, ran_out: bool = False) -> Decision:
        """Decide about the whole text when no more comes; the decision has an end.

        ran_out: the tokens did, anywhere in the text. The last line counts all the same, unless it is the beginning
        of what stands there already.
        """
        ...


@dataclass(frozen=True)
class CursorText:
    """The text around the cursor with `\\n` line ends; `before` and `after` may be windows of the file.

    after_ends: `after` reaches the end of the file. end_mark: what ends the region of the file that both lie in,
    in lower case, "" where they lie in no such region.
    """

    before: str
    after: str
    language: Language
    after_ends: bool = True
    end_mark: str = ""

    @cached_property
    def line_before(self) -> str:
        """The cursor's line up to the cursor."""
        return self.before[self.before.rfind("\n") + 1 :]

    @cached_property
    def above(self) -> str:
        """Everything before the cursor's line."""
        return self.before[: len(self.before) - len(self.line_before)]

    @cached_property
    def line_after(self) -> str:
        """The cursor's line from the cursor on."""
        return self.after.partition("\n")[0]

    @property
    def next_line(self) -> str | None:
        """The next line below the cursor's that is not blank, without trailing blanks; None when none is."""
        return self.lines_below[0] if self.lines_below else None

    @cached_property
    def lines_below(self) -> tuple[str, ...]:
        """The lines below the cursor's that are not blank, without trailing blanks."""
        lines = self.after.partition("\n")[2].split("\n")
        return tuple(line.rstrip() for line in lines if line.strip())

    @property
    def on_blank_line(self) -> bool:
        """Whether nothing but blanks stands before the cursor on its line."""
        return not self.line_before.strip()


def indentation(line: str) -> int:
    """The column of the line's first character that is no blank, tabs widened."""
    blanks = line[: len(line) - len(line.lstrip(" \t"))]
    return len(blanks.expandtabs(TAB_WIDTH))
