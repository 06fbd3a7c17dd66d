"""Whether a file parses no worse with a completion than without, and which range makes it so.

Rules about characters guess what an editor closed by itself; the grammar knows, once the text is whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.completion.boundaries.boundary import CursorText
from server.context.grammars import ParseLimit, error_count, parse, parser_for

PARSE_LIMIT_S = 0.05  # for each parse; without the time, the first choice stands


def soundest(text: str, cursor: CursorText, choices: Sequence[int]) -> int:
    """Of the numbers of characters that `text` may replace right of the cursor the one that leaves fewest errors.

    The first choice stands unless it leaves more errors than the file has now and another leaves fewer.
    """
    first = choices[0]
    if cursor.language.syntax is None or len(choices) < 2:
        return first
    try:
        errors = _errors(cursor, text, first)
        if errors <= _errors(cursor, "", 0):
            return first
        best = min(choices, key=lambda replaced: _errors(cursor, text, replaced))
        return best if _errors(cursor, text, best) < errors else first
    except ParseLimit:
        return first


def errors_with(text: str, cursor: CursorText) -> int | None:
    """How many errors the file has with the text at the cursor; None when no grammar tells, or not in time."""
    if cursor.language.syntax is None:
        return None
    try:
        return _errors(cursor, text, 0)
    except ParseLimit:
        return None


def _errors(cursor: CursorText, text: str, replaced: int) -> int:
    assert cursor.language.syntax is not None
    whole = cursor.before + text + cursor.after[replaced:]
    return error_count(parse(parser_for(cursor.language.syntax), whole.encode("utf-8", "replace"), PARSE_LIMIT_S))
