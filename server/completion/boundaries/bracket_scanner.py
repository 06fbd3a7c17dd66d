"""Reads a growing text of any language for the brackets that are open and the logical line it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from server.completion.boundaries.boundary import indentation
from server.completion.boundaries.lexer import CLOSERS, OPENERS, PAIRS, Kind, Lexer, lexer_for
from server.context.languages import Language

# A line ends its logical line with one of these; behind any other character a deeper line carries it on.
_ENDS_LOGICAL_LINE = frozenset(";{}([:")


KNOWN_LINES = 4096  # that are remembered, none longer than LONG_LINE
LONG_LINE = 300  # characters
FAR = 50  # brackets; what is open further out is not looked at


@dataclass(frozen=True, eq=False)
class Opener:
    """A bracket that is open: its character, the column of the logical line that opened it, and what is around it.

    Linked and not copied, so that a text of nothing but brackets costs no more than another.
    """

    character: str
    indent: int
    outer: Opener | None = None
    depth: int = 1


@dataclass(frozen=True, eq=False)
class LineState:
    """How a text ends.

    innermost: the last of the brackets open there. surplus: closers that closed none of the text's own.
    inside: what is open there of strings and comments of several lines, as `Lexer.split` has it.
    The rest tells of its last line that holds anything, code or comment. last: its last character of code, a quote
    for a string, `;` for a directive, which ends with its line, "" when it has none. indent: its column. statement:
    the column where its logical line begins. lowest: the fewest brackets that were open within it. code: whether it
    is more than a comment.
    """

    innermost: Opener | None = None
    surplus: int = 0
    inside: str = ""
    last: str = ""
    indent: int = 0
    statement: int = 0
    lowest: int = 0
    code: bool = False

    @property
    def depth(self) -> int:
        return _depth(self.innermost)

    @property
    def open(self) -> list[Opener]:
        """The brackets that are open, outermost first."""
        found, opener = [], self.innermost
        while opener is not None:
            found.append(opener)
            opener = opener.outer
        return found[::-1]

    @property
    def opens(self) -> bool:
        """Whether the last line ends with a bracket that it leaves open."""
        return self.last in OPENERS


_NOTHING = LineState()


class BracketScanner:
    """One text, grown by whole lines or by the beginning of its last line."""

    def __init__(self, language: Language) -> None:
        self._lexer = lexer_for(language)
        # Where blocks are told by words or by indentation, a deeper line is what they hold.
        self._carries_on_deeper = bool(language.joints)
        self._directives = bool(language.directives)
        self._state = _NOTHING
        self._line = ""  # the line that is not complete yet
        self._at_line_start = _NOTHING

    def first_surplus(self, fresh: str, least: int) -> int | None:
        """Where `fresh`, the rest of the line, first closes a bracket too many; None where it does not.

        Too many: of the outermost `least`, which somebody else closes, or none that is open. Behind a quote that
        nothing closes one cannot tell.
        """
        if not CLOSERS.intersection(fresh):
            return None  # a line is asked for with each piece of it, and reading it again takes longer and longer
        line, offset, innermost = self._line + fresh, len(self._line), self._state.innermost
        for token in self._lexer.split(line, self._at_line_start.inside)[0]:
            if token.kind is Kind.QUOTE:
                return None
            if token.start < offset:
                continue
            if token.kind is Kind.OPEN:
                innermost = Opener(line[token.start], 0, innermost, _depth(innermost) + 1)
            elif token.kind is Kind.CLOSE:
                if _depth(innermost) <= least or not _is_open(PAIRS[line[token.start]], innermost):
                    return token.start - offset
                innermost = innermost.outer if innermost is not None else None
        return None

    def advance(self, text: str) -> LineState:
        """Add text and return the state that the whole text ends in."""
        *whole, rest = (self._line + text).split("\n")
        for line in whole:
            self._at_line_start = self._behind(line)
        self._line = rest
        self._state = self._behind(rest)
        return self._state

    def _behind(self, line: str) -> LineState:
        read = _read if len(line) <= LONG_LINE else _read.__wrapped__
        return read(self._lexer, self._carries_on_deeper, self._directives, self._at_line_start, line)


@lru_cache(maxsize=KNOWN_LINES)  # the lines above a cursor are mostly those of the request before
def _read(lexer: Lexer, carries_on_deeper: bool, directives: bool, state: LineState, line: str) -> LineState:
    """The state behind a line."""
    if not line.strip():
        return state
    tokens, inside = lexer.split(line, state.inside)
    indent = indentation(line)
    goes_on = carries_on_deeper and state.code and state.last not in _ENDS_LOGICAL_LINE and indent > state.statement
    statement = state.statement if state.inside or goes_on else indent
    innermost, surplus, lowest = state.innermost, state.surplus, state.depth
    last, place = "", 0
    for token in tokens:
        between = line[place : token.start].rstrip()
        last = between[-1] if between.strip() else last
        place = token.end
        if token.kind is Kind.COMMENT:
            continue
        last = '"' if token.kind is Kind.STRING else line[token.end - 1]
        if token.kind is Kind.OPEN:
            innermost = Opener(last, statement, innermost, _depth(innermost) + 1)
        elif token.kind is Kind.CLOSE and innermost is not None:
            # The line goes on with the one where the bracket was opened.
            statement = min(statement, innermost.indent)
            innermost = innermost.outer
            lowest = min(lowest, _depth(innermost))
        elif token.kind is Kind.CLOSE:
            surplus += 1
    rest = line[place:].rstrip()
    last = rest[-1] if rest.strip() else last
    if directives and last != "\\" and line.lstrip().startswith("#"):
        last = ";"
    return LineState(innermost, surplus, inside, last, indent, statement, lowest, bool(last))


def _depth(opener: Opener | None) -> int:
    return 0 if opener is None else opener.depth


def _is_open(character: str, innermost: Opener | None) -> bool:
    for _ in range(FAR):
        if innermost is None or innermost.character == character:
            return innermost is not None
        innermost = innermost.outer
    return True


def closed_by(
    after: str, opened: Sequence[Opener], language: Language, *, later: int = 0, inside: str = ""
) -> tuple[int, int]:
    """How many of the brackets that are open at the cursor the file closes: below, the outermost, and on the line.

    A closer closes the innermost bracket of its kind that stands no deeper than the closer's own line: what is
    deeper, or of another kind, was left open by whoever is still typing. The cursor's own line is taken closer by
    closer; below it the first closer tells, for code around the cursor is complete. later: so many, the outermost,
    are thought to be closed where `after` closes none, for it does not reach the file's end. inside: the strings and
    comments of several lines that `after` begins in.
    """
    left, closed = list(opened), 0
    for number, closer, column in _surplus_closers(after, language, inside) if left else ():
        place = _opener_of(closer, left, column)
        if place is None:
            continue
        if number:
            return place + 1, closed
        closed += 1
        left = left[:place]
    return min(later, len(left)), closed


@lru_cache(maxsize=32)  # each text that is weighed at a cursor asks
def _surplus_closers(after: str, language: Language, inside: str) -> tuple[tuple[int, str, int | None], ...]:
    """The closers of what stands before `after`: number of the line, bracket, column of the line that it begins."""
    lexer, own, found = lexer_for(language), 0, []
    for number, line in enumerate(after.split("\n")):
        tokens, inside = lexer.split(line, inside)
        for token in tokens:
            if token.kind is Kind.OPEN:
                own += 1
            elif token.kind is Kind.CLOSE and own:
                own -= 1
            elif token.kind is Kind.CLOSE:
                begins_line = number > 0 and not line[: token.start].strip(" \t)]}")
                found.append((number, line[token.start], indentation(line) if begins_line else None))
    return tuple(found)


def _opener_of(closer: str, opened: Sequence[Opener], column: int | None) -> int | None:
    for index in range(len(opened) - 1, -1, -1):
        opener = opened[index]
        if opener.character == PAIRS[closer] and (column is None or opener.indent <= column):
            return index
    return None
