"""The string or comment of several lines that the cursor is in, and whether the file closes it below."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from server.completion.boundaries.boundary import CursorText
from server.completion.boundaries.bracket_scanner import BracketScanner, LineState, closed_by
from server.completion.boundaries.lexer import HEREDOC, LEVEL, lexer_for, open_string
from server.completion.soundness import errors_with


@dataclass(frozen=True)
class Enclosing:
    """What closes the string or comment that the cursor is in: its text, and what finds it (group 1).

    place: where it stands in the text right of the cursor. own_line: on a line of its own.
    """

    closing: str
    place: int
    pattern: re.Pattern[str]
    own_line: bool = False


class AtCursor(NamedTuple):
    """What is open at the cursor. above: where its line begins; below, on_line: how many brackets the file closes."""

    scanner: BracketScanner
    above: LineState
    state: LineState
    below: int
    on_line: int


@lru_cache(maxsize=16)  # a boundary in a string asks for what is closed below, and for its own end
def enclosing(cursor: CursorText, inside: str) -> Enclosing | None:
    """What the cursor is in, if the file closes it; `inside`: what is open there, as `Lexer.split` has it."""
    level = open_string(inside)
    if not level:
        return None
    lexer = lexer_for(cursor.language)
    pattern, closing = lexer.closing_pattern(level), lexer.closing_of(level).strip("\n")
    found = next((each for each in pattern.finditer(cursor.after) if each[1]), None)
    if found is None or not _closes(cursor, inside, level, closing, found.start(1)):
        return None
    return Enclosing(closing, found.start(1), pattern, level.startswith(HEREDOC))


def inside_below(cursor: CursorText, inside: str) -> str:
    """What of that is still open in the text below the cursor: what is closed nowhere was only just begun."""
    return inside if not open_string(inside) or enclosing(cursor, inside) else inside.rpartition(LEVEL)[0]


def at_cursor(cursor: CursorText) -> AtCursor:
    """Read the text above the cursor and what the file closes of it below. The scanner is the caller's own."""
    found = _at_cursor(cursor)
    return found._replace(scanner=copy(found.scanner))


@lru_cache(maxsize=16)  # each text that is weighed at a cursor asks
def _at_cursor(cursor: CursorText) -> AtCursor:
    scanner = BracketScanner(cursor.language)
    above = scanner.advance(cursor.above)
    state = scanner.advance(cursor.line_before)
    below, on_line = closed_by(
        cursor.after,
        state.open,
        cursor.language,
        later=0 if cursor.after_ends else above.depth,
        inside=inside_below(cursor, state.inside),
    )
    return AtCursor(scanner, above, state, below, on_line)


def _closes(cursor: CursorText, inside: str, level: str, closing: str, place: int) -> bool:
    """Whether a mark below closes what is open at the cursor, and nothing that begins below."""
    if closing != level:
        opening = rf"<<.?.?{re.escape(closing)}\b" if level.startswith(HEREDOC) else re.escape(level)
        return re.search(opening, cursor.after[:place]) is None
    if cursor.after_ends:
        lexer = lexer_for(cursor.language)
        for line in cursor.after.split("\n"):
            inside = lexer.split(line, inside)[1]
        return not open_string(inside)
    now, closed = errors_with("", cursor), errors_with(closing, cursor)
    return now is None or closed is None or now <= closed
