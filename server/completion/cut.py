"""A completion as it grows: generated text, cut where its boundary says, and fitted where it goes."""

from __future__ import annotations

from server.completion.boundaries.boundary import Decision
from server.completion.boundaries.choice import boundary_for
from server.completion.fit import Insertion, fit
from server.completion.indentation import IndentationStyle, doubled_blanks
from server.completion.surroundings import Surroundings
from server.documents.lines import split_lines


class Cut:
    """The text generated at one site so far. However it comes in pieces, the result is the same."""

    def __init__(self, site: Surroundings, *, single_line: bool = False) -> None:
        self._site = site
        self._boundary = boundary_for(site.cursor, single_line=single_line)
        self._style = IndentationStyle(site.cursor)
        self._blanks: str | None = ""  # those that the last line begins with, while nothing else has come
        self.text = ""
        self.decision = Decision()

    def add(self, text: str) -> str:
        """Add generated text; returns the part of it that counts, indented as the file is.

        Blanks that a line begins with are held back until it is known what follows them.
        """
        return "".join([self._counted(line) for line in split_lines(text) if line])

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

    def refuse(self, reason: str) -> Decision:
        """None of the text is wanted."""
        self.decision = Decision(0, 0, reason)
        return self.decision

    def _indented(self, blanks: str) -> str:
        if self._boundary.inside_string:
            return blanks
        if self.text:
            return self._style.rewritten(blanks, self.text)
        cursor = self._site.cursor
        if cursor.on_blank_line:
            blanks = self._style.rewritten(blanks)
        return blanks[doubled_blanks(cursor, blanks) :]

    def finish(self) -> Decision:
        """Decide about the whole text when no more comes; the decision has an end."""
        self.decision = self._boundary.finish(self.text)
        return self.decision

    def kept(self) -> str:
        """The text up to its end, which must be known."""
        assert self.decision.end is not None
        return self.text[: self.decision.end]

    def insertion(self) -> Insertion | None:
        """What the kept text becomes in the document; None when nothing was kept."""
        kept = self.kept()
        return fit(kept, self._site) if kept else None
