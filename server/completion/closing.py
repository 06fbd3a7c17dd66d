"""What closes the brackets, strings and blocks that a text leaves open and the file does not close itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from server.completion.boundaries.boundary import CursorText
from server.completion.boundaries.bracket_scanner import BracketScanner, Opener, closed_by
from server.completion.boundaries.enclosing import at_cursor, enclosing, inside_below
from server.completion.boundaries.lexer import (
    CLOSER_OF,
    OPENERS,
    PAIRS,
    Kind,
    Token,
    is_code,
    levels_of,
    lexer_for,
    open_string,
)
from server.completion.word_blocks import ends_of_word_blocks
from server.context.languages import Language

MOST_QUOTES = 4  # strings in code in strings


def closings(text: str, cursor: CursorText) -> Iterator[str]:
    """The text with what may close its brackets and strings, as far as the file does not close them itself.

    The likeliest first; the text alone where it leaves nothing open.
    """
    closed = list(dict.fromkeys(text + closers for closers in _closers(text, cursor)))
    yield from closed
    if cursor.language.terminated:
        yield from (each + ";" for each in closed)


def closings_ready(cursor: CursorText) -> None:
    """Read what all `closings` at a cursor need, which takes some milliseconds. Any thread may."""
    if not cursor.language.prose:
        at_cursor(cursor)


def closed_unread(text: str, cursor: CursorText) -> str:
    """The text closed where no grammar tells which of these is right: a quote may be an apostrophe there."""
    return text + _closers(text, cursor)[-1]


def closers_of_line(cursor: CursorText) -> str:
    """What closes the brackets that the cursor's line has opened before it, where the file does not close them."""
    if cursor.line_after.strip():
        return ""
    _, above, state, below, _ = at_cursor(cursor)
    return "".join(CLOSER_OF[each.character] for each in reversed(state.open[max(below, above.depth) :]))


def leaves_open(text: str, cursor: CursorText) -> bool:
    """Whether a text that ended at a boundary opens more than it closes, which is right only where the file closes it.

    Reads nothing but the text.
    """
    state = BracketScanner(cursor.language).advance(text)
    return bool(state.depth or state.inside) and not cursor.language.prose


def _closers(text: str, cursor: CursorText) -> list[str]:
    """What closes, from within, all that the text has opened and the file does not close.

    Several times: all quotes that its line leaves open begin strings, or the last one does, or none.
    """
    language = cursor.language
    scanner, _, before, _, _ = at_cursor(cursor)
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

    found = [ended(strings, left)]
    if not state.inside:
        quotes = _quotes_left_open(line, cursor)
        for some in (quotes[-1:], quotes):
            end, brackets = _closers_of_line(line, some, cursor.language)
            found.insert(0, ended(end, left[: max(0, len(left) - brackets)]) if some else found[-1])
    return found


def _closers_of_line(line: str, quotes: Sequence[Token], language: Language) -> tuple[str, int]:
    """What closes these quotes on the line, with the brackets behind the first, and how many brackets that are.

    Such brackets are of code in a string, or text that it does no harm to close.
    """
    opened = ""
    for token in lexer_for(language).split(line)[0]:
        if token in quotes or (opened and token.kind is Kind.OPEN):
            opened += line[token.start]
        elif token.kind is Kind.CLOSE and opened[-1:] == PAIRS[line[token.start]]:
            opened = opened[:-1]
    end = "".join(CLOSER_OF.get(character, character) for character in reversed(opened))
    return end, sum(character in OPENERS for character in opened)


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


def _quotes_left_open(line: str, cursor: CursorText) -> list[Token]:
    """The quotes on a line that nothing on it closes: the text may have broken off in their strings."""
    tokens = lexer_for(cursor.language).split(line)[0]
    comment = next((each.start for each in tokens if each.kind is Kind.COMMENT), len(line))
    found = [each for each in tokens if each.kind is Kind.QUOTE and each.start < comment and line[each.start] != "/"]
    if cursor.language.syntax is None or (found and cursor.line_after.startswith(line[found[-1].start])):
        return []
    return found[-MOST_QUOTES:]


def _ends_with_comment(line: str, inside: str, language: Language) -> bool:
    last = next(reversed(lexer_for(language).split(line, "")[0]), None) if not inside else None
    return last is not None and last.kind is Kind.COMMENT and last.end == len(line)
