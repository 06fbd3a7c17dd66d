"""Reads a growing text of any language for its brackets, past strings and comments, without a grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass

from server.completion.boundaries.boundary import indentation
from server.context.languages import Language

PAIRS = {")": "(", "]": "[", "}": "{"}
OPENERS, CLOSERS = frozenset(PAIRS.values()), frozenset(PAIRS)
# A quote that is not closed on its line is an apostrophe, a lifetime or a mistake, but not a string.
_ONE_LINE_STRING = r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'" + r"|`(?:\\.|[^`\\\n])*`"


@dataclass(frozen=True)
class Opener:
    """A bracket that is open: its character and the indentation of its line."""

    character: str
    indent: int


@dataclass(frozen=True)
class LineState:
    """How a text ends.

    open: the brackets open there, outermost first. surplus: closers that closed none of the text's own.
    inside: the ending awaited of a string or comment of several lines, or "".
    The rest tells of its last line that holds anything, code or comment. last: its last character of
    code, "" when it has none. indent: its column. text: the line without comments.
    """

    open: tuple[Opener, ...] = ()
    surplus: int = 0
    inside: str = ""
    last: str = ""
    indent: int = 0
    text: str = ""

    @property
    def depth(self) -> int:
        return len(self.open)

    @property
    def opens(self) -> bool:
        """Whether the last line ends with a bracket that it leaves open."""
        return self.last in OPENERS


class BracketScanner:
    """One text, grown by whole lines or by the beginning of its last line."""

    def __init__(self, language: Language) -> None:
        self._state = LineState()
        self._line = ""  # the line that is not complete yet
        self._at_line_start = LineState()
        closings = {quote: quote for quote in language.multiline_quotes}
        if language.block_comment is not None:
            closings[language.block_comment[0]] = language.block_comment[1]
        self._closings = closings
        self._comments = set(closings) - set(language.multiline_quotes)
        parts = [re.escape(opening) for opening in sorted(closings, key=len, reverse=True)]
        parts += [re.escape(sign) + r"[^\n]*" for sign in language.line_comments]
        parts += [_ONE_LINE_STRING, r"[()\[\]{}]", r"\S"]
        self._token = re.compile("|".join(parts))
        self._line_comments = language.line_comments

    def advance(self, text: str) -> LineState:
        """Add text and return the state that the whole text ends in."""
        *whole, rest = (self._line + text).split("\n")
        for line in whole:
            self._at_line_start = self._read(self._at_line_start, line)
        self._line = rest
        return self._read(self._at_line_start, rest)

    def _read(self, state: LineState, line: str) -> LineState:
        if not line.strip():
            return state
        opened, surplus, inside = list(state.open), state.surplus, state.inside
        last, code = "", []
        indent, place = indentation(line), 0
        while place < len(line):
            if inside:
                closing = line.find(inside, place)
                if closing < 0:
                    break
                place, inside, last = closing + len(inside), "", inside[-1]
                continue
            found = self._token.search(line, place)
            if found is None:
                break
            token, place = found[0], found.end()
            if token in self._closings:
                inside = self._closings[token]
                last = last if token in self._comments else token[-1]
                continue
            if token.startswith(self._line_comments) and self._line_comments:
                break
            code.append(token)
            last = token[-1]
            if token in OPENERS:
                opened.append(Opener(token, indent))
            elif token in CLOSERS and opened:
                opened.pop()
            elif token in CLOSERS:
                surplus += 1
        return LineState(tuple(opened), surplus, inside, last, indent, "".join(code))
