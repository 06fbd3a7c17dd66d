"""The boundary where one line is all that is offered: inside a string or a comment of one line."""

from __future__ import annotations

from server.completion.boundaries.boundary import Decision
from server.completion.boundaries.line_boundary import BOUNDARY, NO_TEXT


class SingleLine:
    """What is generated ends with the cursor's line; keeps the contract of `Boundary`."""

    def __init__(self) -> None:
        self._decision = Decision()

    @property
    def inside_string(self) -> bool:
        return False  # what is offered has no second line

    def feed(self, text: str) -> Decision:
        if self._decision.end is None:
            line, newline, _ = text.partition("\n")
            length = len(line.rstrip())
            if newline:
                self._decision = Decision(length, length, BOUNDARY if length else NO_TEXT)
            else:
                self._decision = Decision(max(length, self._decision.settled))
        return self._decision

    def finish(self, text: str, *, ran_out: bool = False) -> Decision:
        return self.feed(text.partition("\n")[0] + "\n")
