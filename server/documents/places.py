"""Where the cursor is after an edit, as far as the edit tells."""

from __future__ import annotations

from server.documents.document import Document, Place
from server.documents.lines import split_lines
from server.documents.positions import Position

CLOSERS = ")]}>\"'`"  # what an editor adds behind what was typed


def places_after(document: Document, start: Position, text: str) -> list[Place]:
    """Where the cursor may be after `text` was put at `start`: behind it, or before the closers it ends with."""
    *above, last = split_lines(text)
    begun = document.place(start)
    line, column = begun.line + len(above), len(last) + (0 if above else begun.column)
    closers = len(last) - len(last.rstrip(CLOSERS))
    return [Place(line, column - back) for back in range(closers + 1)]
