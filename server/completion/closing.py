"""Closes what a text leaves open that broke off: its tokens ran out, its target ended it, or it was a loop.

A text that ends at a boundary is whole. One that does not would leave the file with brackets or a string that
nobody closes, and the editor with a file full of errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from server.completion.boundaries.boundary import CursorText
from server.completion.boundaries.bracket_scanner import BracketScanner, Opener, closed_by
from server.completion.boundaries.enclosing import enclosing, inside_below
from server.completion.boundaries.lexer import CLOSER_OF, Kind, is_code, levels_of, lexer_for, open_string
from server.completion.soundness import errors_with
from server.completion.word_blocks import ends_of_word_blocks
from server.context.languages import Language

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
        return text + _closers(text, cursor)[0]
    if fewest <= before and not any(_closers(text, cursor)):
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
    yield from _closings(text, cursor)
    if shown:
        return
    shorter = text.rstrip(" ,")
    yield from _closings(shorter, cursor)
    for _ in range(MOST_TRIES):
        shorter = shorter[: max(0, shorter.rfind("\n"))].rstrip()
        if not shorter:
            return
        yield shorter
        yield from _closings(shorter, cursor)


def _closings(text: str, cursor: CursorText) -> Iterator[str]:
    for closers in dict.fromkeys(_closers(text, cursor)):
        yield text + closers


def _closers(text: str, cursor: CursorText) -> tuple[str, str]:
    """What closes, from within, all that the text has opened and the file does not close.

    Twice: with the last quote on its line as one that begins a string, and as none.
    """
    language = cursor.language
    scanner = BracketScanner(language)
    before = scanner.advance(cursor.before)
    state = scanner.advance(text)
    line = (cursor.before + text).rpartition("\n")[2]
    strings, coded = _own_strings(before.inside, state.inside, cursor)
    # Brackets of code in a string belong to it.
    opened = state.open[: len(state.open) - coded]
    alone = BracketScanner(language).advance(text).depth - coded if not before.inside else 0
    own = opened[len(opened) - max(0, min(alone, len(opened))) :]
    below, on_line = closed_by(cursor.after, opened, language, inside=inside_below(cursor, before.inside))
    # What the file closes was open before, but for what is more than that.
    left = own[max(0, below + on_line - (len(opened) - len(own))) :]
    words = ends_of_word_blocks(text, cursor)
    comment = _ends_with_comment(line, state.inside, language)

    def ended(end: str, left: Sequence[Opener]) -> str:
        if left and not end and comment:
            end = "\n" + " " * left[-1].indent
        for opener in reversed(left):
            if opener.character == "{" and "\n" in text and not line.strip().endswith("{"):
                end += "\n" + " " * opener.indent
            end += CLOSER_OF[opener.character]
        return end + words

    quote, place = ("", 0) if state.inside else _quote_left_open(line, cursor)
    plain = ended(strings, left)
    if not quote:
        return plain, plain
    # Brackets behind the quote are of code in its string, or text that it does no harm to close.
    within = min(BracketScanner(language).advance(line[place:]).depth, len(left))
    outer, inner = left[: len(left) - within], left[len(left) - within :]
    return ended("".join(CLOSER_OF[each.character] for each in reversed(inner)) + quote, outer), plain


def _own_strings(before: str, inside: str, cursor: CursorText) -> tuple[str, int]:
    """What closes the strings of several lines that the text has opened, and how many brackets in them it closes."""
    lexer = lexer_for(cursor.language)
    levels, around = levels_of(inside), levels_of(before)
    while levels and around and levels[0] == around[0]:
        levels, around = levels[1:], around[1:]
    if levels and around and is_code(levels[0]) and levels[0].startswith(around[0]):
        levels[0] = levels[0][len(around[0]) :]  # more brackets in code that the cursor was in already
    closing = "".join(lexer.closing_of(level) for level in reversed(levels))
    if not levels and open_string(inside) and enclosing(cursor, inside) is None:
        closing = lexer.closing_of(open_string(inside))
    elif closing and cursor.line_after.startswith(closing):
        closing = ""
    return closing, sum(len(level) for level in levels if is_code(level))


def _quote_left_open(line: str, cursor: CursorText) -> tuple[str, int]:
    """The quote of a string on one line that the text broke off in, and where that begins; "" when it did in none."""
    tokens = lexer_for(cursor.language).split(line)[0]
    quote = next((each for each in reversed(tokens) if each.kind is Kind.QUOTE), None)
    if (
        quote is None
        or cursor.language.syntax is None
        or any(each.kind is Kind.COMMENT and each.start < quote.start for each in tokens)
    ):
        return "", 0
    sign = line[quote.start]
    return ("", 0) if sign == "/" or cursor.line_after.startswith(sign) else (sign, quote.end)


def _ends_with_comment(line: str, inside: str, language: Language) -> bool:
    last = next(reversed(lexer_for(language).split(line, "")[0]), None) if not inside else None
    return last is not None and last.kind is Kind.COMMENT and last.end == len(line)
