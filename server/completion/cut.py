"""A completion as it grows: generated text, cut where its boundary says."""

from __future__ import annotations

from server.completion.boundaries.boundary import CursorText, Decision
from server.completion.boundaries.choice import boundary_for
from server.completion.indentation import IndentationStyle, doubled_blanks
from server.documents.lines import split_lines


class Cut:
    """The text generated at one site so far. However it comes in pieces, the result is the same."""

    def __init__(self, cursor: CursorText, *, single_line: bool = False) -> None:
        """single_line: the completion ends with the cursor's line, whatever the syntax would allow."""
        self._cursor = cursor
        self._boundary = boundary_for(cursor, single_line=single_line)
        self._style = IndentationStyle(cursor)
        self._blanks: str | None = ""  # those that the last line begins with, while nothing else has come
        self.text = ""
        self.decision = Decision()

    def add(self, text: str) -> str:
        """Add generated text; returns the part of it that counts, indented as the file is.

        Blanks that a line begins with are held back until it is known what follows them. A line ends with `\n` here,
        however the model wrote it.
        """
        return "".join([self._counted(line) for line in split_lines(text.replace("\r", "")) if line])

    def _counted(self, text: str) -> str:
        """The same for a piece of one line, which may end with its `\n`."""
        if self._blanks is not None:
            text = self._blanks + text
            blanks = text[: len(text) - len(text.lstrip(" \t"))]
            if len(blanks) == len(text):
                self._blanks = text
                return ""
            self._blanks = None
            text = self._indented(blanks) + text[len(blanks) :]
        if text.endswith("\n"):
            self._blanks = ""
        self.text += text
        self.decision = self._boundary.feed(self.text)
        return text

    def _indented(self, blanks: str) -> str:
        if self._boundary.inside_string:
            return blanks
        if self.text:
            return self._style.rewritten(blanks, self.text)
        if self._cursor.on_blank_line:
            blanks = self._style.rewritten(blanks)
        return blanks[doubled_blanks(self._cursor, blanks) :]

    def finish(self, *, ran_out: bool = False) -> Decision:
        """Decide about the whole text when no more comes; the decision has an end. ran_out: the tokens did."""
        self.decision = self._boundary.finish(self.text, ran_out=ran_out)
        return self.decision

    def kept(self) -> str:
        """The text up to its end, which must be known."""
        assert self.decision.end is not None
        return self.text[: self.decision.end]
