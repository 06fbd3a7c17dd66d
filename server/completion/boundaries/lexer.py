"""Splits a line of any language into brackets, strings and comments, without a grammar.

A grammar reads a text that is whole; this one grows, and ends anywhere. What counts is therefore known of every
piece of it at once: a quote that is not closed on its line is an apostrophe, a lifetime or a mistake, but no string.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from server.context.languages import Language

PAIRS = {")": "(", "]": "[", "}": "{"}
OPENERS, CLOSERS = frozenset(PAIRS.values()), frozenset(PAIRS)
# After one of these, or at a line's beginning, `/` begins a regular expression; after a value it divides.
_BEFORE_REGEX = frozenset("(,=:[!&|?{};+*~^<>%-")
_BEFORE_REGEX_WORD = re.compile(r"\b(?:return|typeof|case|in|of|do|else|void|delete|throw|new)$")
_REGEX = re.compile(r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")


class Kind(Enum):
    OPEN = auto()
    CLOSE = auto()
    STRING = auto()  # with its quotes; may go on in the next line
    COMMENT = auto()
    QUOTE = auto()  # the beginning of a string or regular expression that nothing on the line closes


class Token(NamedTuple):
    """A piece of a line that is more than plain code: `line[start:end]`."""

    kind: Kind
    start: int
    end: int


class Lexer:
    """Splits lines of one language; holds no state, so that any line can be read again."""

    def __init__(self, language: Language) -> None:
        closings = {quote: quote.replace("[", "]") for quote in language.multiline_quotes}
        if language.block_comment is not None:
            closings[language.block_comment[0]] = language.block_comment[1]
        self._closings = closings
        self._comment = language.block_comment[0] if language.block_comment is not None else ""
        self._line_comments = language.line_comments
        self._raw_quotes = language.raw_quotes
        self._raw_strings = [(re.compile(opening), closing) for opening, closing in language.raw_strings]
        self._regexes = language.regexes
        raw = "|".join(opening for opening, _ in language.raw_strings)
        parts = [f"(?P<raw>{raw})"] if raw else []
        parts += [re.escape(opening) for opening in sorted(closings, key=len, reverse=True)]
        # A sign such as `#` begins a comment only where a word does not go on.
        parts += [(r"(?<![\w$&])" if sign == "#" else "") + re.escape(sign) + r"[^\n]*" for sign in self._line_comments]
        if language.literals:
            parts.append(f"(?P<literal>{language.literals})")
        parts += [rf"{quote}(?:\\.|[^{quote}\\\n])*{quote}" for quote in language.quotes]
        parts.append(rf"[()\[\]{{}}{language.quotes}]")
        if self._regexes:
            parts.append("/")
        self._token = re.compile("|".join(parts))

    def split(self, line: str, inside: str = "") -> tuple[list[Token], str]:
        """The line's tokens, and what has opened a string or comment that goes on below, or "".

        inside: the same of the line above.
        """
        tokens, place = [], 0
        if inside:
            place = self._end_of(line, 0, inside)
            tokens.append(Token(self._kind_inside(inside), 0, place if place >= 0 else len(line)))
            if place < 0:
                return tokens, inside
        while (found := self._token.search(line, place)) is not None:
            start, place = found.span()
            text = found[0]
            if text in self._closings or found.lastgroup == "raw":
                inside = text
                place = self._end_of(line, place, inside)
                tokens.append(Token(self._kind_inside(inside), start, place if place >= 0 else len(line)))
                if place < 0:
                    return tokens, inside
            elif text in PAIRS:
                tokens.append(Token(Kind.CLOSE, start, place))
            elif text in OPENERS:
                tokens.append(Token(Kind.OPEN, start, place))
            elif self._line_comments and text.startswith(self._line_comments) and found.lastgroup != "literal":
                tokens.append(Token(Kind.COMMENT, start, place))
            elif text == "/":
                if self._regex_may_begin(line[:start].rstrip()):
                    regex = _REGEX.match(line, start)
                    place = regex.end() if regex is not None else place
                    tokens.append(Token(Kind.QUOTE if regex is None else Kind.STRING, start, place))
            else:
                tokens.append(Token(Kind.QUOTE if len(text) == 1 else Kind.STRING, start, place))
        return tokens, ""

    def closing_of(self, opening: str) -> str:
        """What ends a string or comment of several lines that `opening` has begun."""
        return self._closings.get(opening) or self._end_of_raw(opening)

    def _kind_inside(self, opening: str) -> Kind:
        comment = opening == self._comment or opening.startswith(self._line_comments or "\n")
        return Kind.COMMENT if comment else Kind.STRING

    def _end_of(self, line: str, start: int, opening: str) -> int:
        """Where a string or comment ends that has begun; -1 when not on this line."""
        ending = self._closings.get(opening)
        if ending is None:
            ending = self._end_of_raw(opening)
            found = line.find(ending, start)
            return found + len(ending) if found >= 0 else -1
        while (found := line.find(ending, start)) >= 0:
            before = line[start:found]
            escaped = (len(before) - len(before.rstrip("\\"))) % 2 == 1
            if not escaped or opening == self._comment or opening in self._raw_quotes:
                return found + len(ending)
            start = found + 1
        return -1

    def _end_of_raw(self, opening: str) -> str:
        for pattern, closing in self._raw_strings:
            if (found := pattern.fullmatch(opening)) is not None:
                return closing.format(found[1])
        raise KeyError(opening)

    @staticmethod
    def _regex_may_begin(before: str) -> bool:
        return not before or before[-1] in _BEFORE_REGEX or _BEFORE_REGEX_WORD.search(before) is not None


@lru_cache(maxsize=64)
def lexer_for(language: Language) -> Lexer:
    """The language's lexer, made once."""
    return Lexer(language)
