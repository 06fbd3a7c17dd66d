"""Whether the windows around a cursor parse no worse with a completion, and which range makes it so.

Rules about characters guess what an editor closed by itself; the grammar knows, once the text is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from server.completion.boundaries.boundary import CursorText
from server.context.file_errors import FileErrors, encoded

CURSORS = 16  # that are remembered: several rules ask for the same


def errors_with(text: str, cursor: CursorText) -> int | None:
    """How many errors the windows around a cursor have with a text there; None when no grammar tells, or in time."""
    windows = errors_around(cursor)
    return None if windows is None else windows.errors_with(text)


def parses_worse(text: str, cursor: CursorText) -> bool:
    """Whether the windows around a cursor have more errors with the text than without."""
    after, before = errors_with(text, cursor), errors_with("", cursor)
    return after is not None and before is not None and after > before


@lru_cache(maxsize=CURSORS)
def errors_around(cursor: CursorText) -> FileErrors | None:
    """The errors of the windows around a cursor; None without a grammar."""
    syntax = cursor.language.syntax
    return None if syntax is None else FileErrors(syntax, encoded(cursor.before), encoded(cursor.after))


def soundest(text: str, file: FileErrors | None, choices: Sequence[int]) -> int:
    """Of the numbers of characters that `text` may replace right of the place the one that leaves fewest errors.

    The first choice stands unless it leaves more errors than the file has now and another leaves fewer.
    """
    first = choices[0]
    if len(choices) < 2 or file is None:
        return first
    errors, now = file.errors_with(text, first), file.errors_with("")
    if errors is None or now is None or errors <= now:
        return first
    fewest, best = errors, first
    for replaced in choices[1:]:
        found = file.errors_with(text, replaced)
        if found is not None and found < fewest:
            fewest, best = found, replaced
    return best
