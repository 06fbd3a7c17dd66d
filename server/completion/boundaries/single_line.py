"""The boundary where one line is all that is offered: inside a string of one line, or where its block stands below."""

from __future__ import annotations

from server.completion.boundaries.boundary import CursorText, Decision
from server.completion.boundaries.enclosing import at_cursor
from server.completion.boundaries.lexer import CLOSERS
from server.completion.boundaries.line_boundary import BOUNDARY, NO_TEXT


class SingleLine:
    """What is generated ends with the cursor's line; keeps the contract of `Boundary`.

    inside: what is open at the cursor of strings and comments of several lines.
    """

    def __init__(self, cursor: CursorText) -> None:
        self._scanner, _, state, self._closed_below, _ = at_cursor(cursor)
        self.inside = state.inside
        self._lone_closers = cursor.language.lone_closers
        self._decision = Decision()

    @property
    def inside_string(self) -> bool:
        return False  # what is offered has no second line

    def feed(self, text: str) -> Decision:
        if self._decision.end is None:
            line, newline, _ = text.partition("\n")
            cut = None if self._lone_closers else self._scanner.first_surplus(line, self._closed_below)
            if newline:
                self._end(len(line[:cut].rstrip()))
            elif cut is None and not line.rstrip().endswith(tuple(CLOSERS)):
                self._decision = Decision(max(len(line.rstrip()), self._decision.settled))
        return self._decision

    def _end(self, length: int) -> None:
        self._decision = Decision(length, length, BOUNDARY if length else NO_TEXT)

    def finish(self, text: str, *, ran_out: bool = False) -> Decision:
        return self.feed(text.partition("\n")[0] + "\n")
