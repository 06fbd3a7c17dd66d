"""The boundary of a region that a mark ends: nothing goes past `</script`, or past the end of the string around it.

What the region holds has rules of its own, which know nothing of the mark.
"""

from __future__ import annotations

import re

from server.completion.boundaries.boundary import Boundary, Decision
from server.completion.boundaries.enclosing import Enclosing


class EndMark:
    """A boundary whose text ends before a mark at the latest; keeps the contract of `Boundary`."""

    def __init__(self, boundary: Boundary, mark: Enclosing) -> None:
        self._boundary = boundary
        self._mark = mark
        self._size = len(mark.closing)
        self._from = 0  # no mark begins before, and nothing there escapes what stands behind

    @classmethod
    def of_tag(cls, boundary: Boundary, mark: str) -> EndMark:
        """Ended by a closing tag, found in any case."""
        # Without ASCII other letters count as the same as these, and with `lower()` some become two.
        return cls(boundary, Enclosing(mark, 0, re.compile(f"({re.escape(mark)})", re.IGNORECASE | re.ASCII)))

    @property
    def inside_string(self) -> bool:
        return self._boundary.inside_string

    def feed(self, text: str) -> Decision:
        found = self._find(text)
        if found is None:
            return self._boundary.feed(text[: len(text) - self._begun(text)])
        # A mark on a line of its own is one when its line is complete.
        if self._mark.own_line and text.find("\n", found) < 0:
            return self._boundary.feed(text[:found])
        return self._boundary.finish(text[:found])

    def finish(self, text: str, *, ran_out: bool = False) -> Decision:
        found = self._find(text)
        if found is not None:
            return self._boundary.finish(text[:found])
        return self._boundary.finish(text[: len(text) - self._begun(text)] if ran_out else text, ran_out=ran_out)

    def _find(self, text: str) -> int | None:
        for found in self._mark.pattern.finditer(text, self._from):
            if found[1]:
                return found.start()
            self._from = found.end()
        line = text.rfind("\n") + 1 if self._mark.own_line else len(text) - self._size
        self._from = max(self._from, line)
        return None

    def _begun(self, text: str) -> int:
        """How many characters at the text's end may be the beginning of the mark."""
        if self._mark.own_line:
            line = text[text.rfind("\n") + 1 :]
            return len(line) if self._mark.closing.startswith(line.strip()) else 0
        closing = self._mark.closing
        end = text[-self._size :].lower() if closing.startswith("</") else text[-self._size :]
        return next((size for size in range(self._size - 1, 0, -1) if end.endswith(closing[:size])), 0)
