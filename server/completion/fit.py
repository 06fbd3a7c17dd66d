"""Fits a completion into its line: what it replaces there, and in which line ends it is written.

Text and range always belong together: the text replaces exactly the range, which begins at the cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from server.completion.boundaries.boundary import CursorText
from server.completion.boundaries.bracket_scanner import BracketScanner
from server.completion.boundaries.lexer import CLOSERS, OPENERS
from server.completion.soundness import errors_around, soundest
from server.completion.surroundings import Surroundings
from server.context.file_errors import FileErrors
from server.context.languages import Language
from server.documents.positions import Position, Range, units_before

_BLANKS = " \t"
# What an editor closes by itself: blanks, a quote, closers, and what may stand behind them.
_CLOSED_BY_EDITOR = re.compile(r"([ \t]*)([\"'`]?)([)\]}]*)([:;,]?)[ \t]*")
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Insertion:
    """Text in the document's own line ends, and the range that it replaces."""

    text: str
    range: Range


def fit(text: str, site: Surroundings, file: Callable[[], FileErrors | None] | None = None) -> Insertion:
    """Where `text` (with `\\n` line ends, not empty) goes in the document.

    file: of the whole document, where that is at hand; else the windows tell which range leaves fewest errors.
    """
    column, choices = site.place.column, replaceable(text, site.cursor)
    replaced = choices[0]
    if len(choices) > 1:
        replaced = soundest(text, file() if file is not None else errors_around(site.cursor), choices)
    return Insertion(
        text.replace("\n", site.line_ending),
        Range(_position(site, column), _position(site, column + replaced)),
    )


def replaceable(text: str, cursor: CursorText) -> list[int]:
    """How many characters right of the cursor `text` may replace, the likeliest first."""
    right = cursor.line_after
    replaced = _replaced(text, right, cursor.language)
    return list(dict.fromkeys((replaced, 0, *_ends_of_closers(right)))) if right.strip(_BLANKS) else [replaced]


def cursor_range(site: Surroundings) -> Range:
    """The empty range at the cursor."""
    position = _position(site, site.place.column)
    return Range(position, position)


def _position(site: Surroundings, column: int) -> Position:
    return Position(site.place.line, units_before(site.line, column, site.encoding))


def _replaced(text: str, right: str, language: Language) -> int:
    """How many characters right of the cursor the text brings along itself."""
    if not right.strip(_BLANKS):
        return len(right)
    closed = _CLOSED_BY_EDITOR.fullmatch(right)
    surplus = BracketScanner(language).advance(text).surplus
    if closed is None:
        return _overlap(text, right, surplus)
    blanks, quote, closers, mark = closed.groups()
    first_line = text.partition("\n")[0]
    # An odd number of quotes closes the string that the editor closed as well.
    if quote and text.count(quote) % 2 == 0:
        return 0
    surplus = min(surplus, len(closers))
    replaced = len(blanks) * bool(quote or surplus) + len(quote) + surplus
    if surplus < len(closers):
        return replaced
    if mark and not text.endswith(mark) and not first_line.endswith(mark):
        return replaced
    return replaced + len(mark)


def _ends_of_closers(right: str) -> list[int]:
    """Where the closers end, one by one, that stand right of the cursor, and a mark behind the last."""
    closed = _CLOSED_BY_EDITOR.fullmatch(right)
    if closed is None:
        return []
    ends = list(range(closed.end(1) + 1, closed.end(3) + 1))
    return [*ends, closed.end(4)] if closed[4] else ends


def _overlap(text: str, right: str, surplus: int) -> int:
    """Length of the longest end of `text` that `right` begins with: all of it, or signs without a word.

    surplus: closers of the text that close nothing of its own; no others may be taken for those right of it.
    """
    whole = right.rstrip(_BLANKS)
    for length in range(min(len(text), len(whole)), 0, -1):
        start = right[:length]
        if not text.endswith(start) or not start.strip(_BLANKS):
            continue
        closers = sum(character in CLOSERS for character in start) - sum(character in OPENERS for character in start)
        if closers <= surplus and (length == len(whole) or not _WORD.search(start)):
            return length
    return 0
