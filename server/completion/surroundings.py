"""The text around a place of a document, cut to windows, as boundaries and the prompt want it.

Windows are taken from the lines near the cursor, so that a request costs the same in a file of 200 lines
and of 20,000.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from server.completion.boundaries.boundary import CursorText, indentation
from server.context.languages import Language
from server.documents.document import Document, Place
from server.documents.lines import to_line_feeds

BEFORE_LIMIT = 16_000  # characters; tree-sitter reads them in about 3 ms
AFTER_LIMIT = 4_000

# Lines at which reading may begin: the head of a definition, hardly ever a line inside a string.
_PYTHON_HEAD = re.compile(r"\s*(?:(?:async\s+def|def|class)\s+\w+\s*[\[(:]|@\w+[\w.]*(?:\(|$))")
_ANY_HEAD = re.compile(r"[A-Za-z@#]")


def cursor_text(document: Document, place: Place, language: Language) -> CursorText:
    """The windows before and after a place; the one before begins with a definition where it can."""
    lines = document.lines
    line = lines[place.line]
    before_on_line, after_on_line = line[: place.column], line[place.column :]
    above = _lines_above(lines, place.line, BEFORE_LIMIT - len(before_on_line))
    if len(above) < place.line:
        above = _from_head(above, _PYTHON_HEAD if language.name == "python" else _ANY_HEAD)
    before = "".join(above) + before_on_line[-BEFORE_LIMIT:]
    after = after_on_line[:AFTER_LIMIT] + "".join(_lines_below(lines, place.line, AFTER_LIMIT))
    return CursorText(to_line_feeds(before), to_line_feeds(after), language)


def text_before(document: Document, place: Place, limit: int) -> tuple[str, int]:
    """The last `limit` characters before a place, `\\n` ended, and how many of the document precede them."""
    lines = document.lines
    before = lines[place.line][: place.column]
    first = place.line
    while first and len(before) < limit:
        # Lines are taken a screen at a time: joining one by one would copy the text again and again.
        start = max(0, first - 64)
        before = "".join(lines[start:first]) + before
        first = start
    skipped = sum(map(len, lines[:first])) + max(0, len(before) - limit)
    return to_line_feeds(before[-limit:]), skipped


def _lines_above(lines: Sequence[str], line: int, limit: int) -> list[str]:
    first, size = line, 0
    while first and size + len(lines[first - 1]) <= limit:
        first -= 1
        size += len(lines[first])
    return list(lines[first:line])


def _from_head(lines: list[str], head: re.Pattern[str]) -> list[str]:
    """Drop lines before the outermost line that matches."""
    heads = [number for number, line in enumerate(lines) if head.match(line)]
    if not heads:
        return lines
    return lines[min(heads, key=lambda number: indentation(lines[number])) :]


def _lines_below(lines: Sequence[str], line: int, limit: int) -> list[str]:
    below, size = [], 0
    for each in lines[line + 1 :]:
        size += len(each)
        if size > limit:
            break
        below.append(each)
    return below
