"""Closes what a text leaves open that broke off: its tokens ran out, its target ended it, or it was a loop.

A text that ends at a boundary is whole. One that does not would leave the file with brackets or a string that
nobody closes, and the editor with a file full of errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from server.completion.boundaries.boundary import CursorText
from server.completion.boundaries.bracket_scanner import BracketScanner, closed_by
from server.completion.boundaries.lexer import PAIRS, Kind, lexer_for
from server.completion.soundness import errors_with
from server.context.languages import Language

_CLOSER_OF = {opener: closer for closer, opener in PAIRS.items()}
MOST_TRIES = 8  # ends of lines at which a text is tried to end instead


@lru_cache(maxsize=16)  # each request inside a unit asks for what the whole of it leaves open, and that costs parses
def closed(text: str, cursor: CursorText, *, shown: bool) -> str:
    """The text with what closes its brackets and strings, as far as the file does not close them itself.

    shown: somebody has seen the text growing, so that none of it can be taken back. Else, where closing it leaves
    errors that the file did not have, the text ends with an earlier line.
    """
    if cursor.language.prose:
        return text
    best, fewest, before = text, errors_with(text, cursor), errors_with("", cursor)
    if fewest is None or before is None:
        return text + _closers(text, cursor)
    if fewest <= before and not _closers(text, cursor):
        return text
    fewest += 1  # open brackets are closed also where the parser has mended them
    for candidate in _candidates(text, cursor, shown=shown):
        errors = errors_with(candidate, cursor)
        if errors is not None and errors < fewest:
            best, fewest = candidate, errors
        if fewest <= before:
            break
    return best


def parses_worse(text: str, cursor: CursorText) -> bool:
    """Whether the file has more errors with the text than without."""
    after, before = errors_with(text, cursor), errors_with("", cursor)
    return after is not None and before is not None and after > before


def _candidates(text: str, cursor: CursorText, *, shown: bool) -> Iterator[str]:
    yield text + _closers(text, cursor)
    if shown:
        return
    shorter = text.rstrip(" ,")
    yield shorter + _closers(shorter, cursor)
    for _ in range(MOST_TRIES):
        shorter = shorter[: max(0, shorter.rfind("\n"))].rstrip()
        if not shorter:
            return
        yield shorter
        yield shorter + _closers(shorter, cursor)


def _closers(text: str, cursor: CursorText) -> str:
    """What closes the string that the text ends in, and then, from within, the brackets that it opened."""
    scanner = BracketScanner(cursor.language)
    before = scanner.advance(cursor.before)
    state = scanner.advance(text)
    line = (cursor.before + text).rpartition("\n")[2]
    end = _closing_of_string(line, state.inside, cursor)
    opened = state.open
    alone = BracketScanner(cursor.language).advance(text).depth if not before.inside else 0
    own = opened[len(opened) - min(alone, len(opened)) :]
    below, on_line = closed_by(cursor.after, opened, cursor.language)
    # What the file closes was open before, but for what is more than that.
    left = own[max(0, below + on_line - (len(opened) - len(own))) :]
    if left and not end and _ends_with_comment(line, state.inside, cursor.language):
        end = "\n" + " " * left[-1].indent
    for opener in reversed(left):
        if opener.character == "{" and "\n" in text and not line.strip().endswith("{"):
            end += "\n" + " " * opener.indent
        end += _CLOSER_OF[opener.character]
    return end


def _closing_of_string(line: str, inside: str, cursor: CursorText) -> str:
    """What closes the string or comment that a text ends in, whose last line is `line`; "" when it ends in none."""
    lexer = lexer_for(cursor.language)
    if inside:
        closing = lexer.closing_of(inside)
        return "" if closing in cursor.after else closing
    last = next(reversed(lexer.split(line)[0]), None)
    if last is None or last.kind is not Kind.QUOTE or cursor.language.syntax is None:
        return ""
    quote = line[last.start]
    return "" if quote == "/" or cursor.line_after.startswith(quote) else quote


def _ends_with_comment(line: str, inside: str, language: Language) -> bool:
    last = next(reversed(lexer_for(language).split(line, "")[0]), None) if not inside else None
    return last is not None and last.kind is Kind.COMMENT and last.end == len(line)
