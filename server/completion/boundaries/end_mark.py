"""The boundary of a region that a mark ends: nothing goes past `</script`, whatever the script's own syntax says."""

from __future__ import annotations

from server.completion.boundaries.boundary import Boundary, Decision


class EndMark:
    """A boundary whose text ends before a mark at the latest; keeps the contract of `Boundary`."""

    def __init__(self, boundary: Boundary, mark: str) -> None:
        """mark: in lower case; found in any."""
        self._boundary = boundary
        self._mark = mark

    @property
    def inside_string(self) -> bool:
        return self._boundary.inside_string

    def feed(self, text: str) -> Decision:
        found = text.lower().find(self._mark)
        if found >= 0:
            return self._boundary.finish(text[:found])
        return self._boundary.feed(text[: len(text) - self._begun(text.lower())])

    def finish(self, text: str) -> Decision:
        found = text.lower().find(self._mark)
        return self._boundary.finish(text if found < 0 else text[:found])

    def _begun(self, text: str) -> int:
        """How many characters at the text's end may be the beginning of the mark."""
        return next((size for size in range(len(self._mark) - 1, 0, -1) if text.endswith(self._mark[:size])), 0)
