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
CLOSER_OF = {opener: closer for closer, opener in PAIRS.items()}
LEVEL = "\0"  # between what is open: it stands in no opening
HEREDOC = "<<"  # what begins the level of one; its mark follows
NEAR = 40  # characters before a `/` that tell whether it divides
NOWHERE = -2  # no place on the line
MOST_NESTED = 8  # strings in code in strings on one line
MOST_LEVELS, MOST_OPEN = 16, 100  # levels, and brackets in one: more are no code that somebody wrote
# After one of these, or at a line's beginning, `/` begins a regular expression; after a value it divides.
_BEFORE_REGEX = frozenset("(,=:[!&|?{};+*~^<>%-")
_BEFORE_REGEX_WORD = re.compile(r"\b(?:return|typeof|case|in|of|do|else|void|delete|throw|new)$")
# As long as people write them; a line of nothing but beginnings must not be read for each.
_REGEX = re.compile(r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n]){0,200}+\]|[^/\\\[\n]){1,500}+/[a-z]*")


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
    """Splits lines of one language; holds no state, so that any line can be read again.

    What is open where a line ends is a text of levels, outermost first: what has opened a string or comment of several
    lines, or, for code inside a string, the brackets open in it. "" for plain code.
    """

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
        self._interpolations = dict(language.interpolations)
        self._stops: dict[str, re.Pattern[str]] = {}
        raw = "|".join(opening for opening, _ in language.raw_strings)
        parts = [f"(?P<raw>{raw})"] if raw else []
        parts += [f"(?P<heredoc>{language.heredocs})"] if language.heredocs else []
        parts += [re.escape(opening) for opening in sorted(closings, key=len, reverse=True)]
        # A sign such as `#` begins a comment only where a word does not go on, and in markup `//` none in an address.
        begins = {"#": r"(?<![\w$&])", "//": r"(?<!\w:)" if language.markup else ""}
        code = "".join(rf"(?!{begun})" for begun in {begun for _, begun in language.interpolations})
        parts += [begins.get(sign, "") + code + re.escape(sign) + r"[^\n]*" for sign in self._line_comments]
        if language.literals:
            parts.append(f"(?P<literal>{language.literals})")
        parts.append(rf"[()\[\]{{}}{language.quotes}]")
        if self._regexes:
            parts.append("/")
        self._token = re.compile("|".join(parts))
        self._in_code = re.compile(rf"[()\[\]{{}}{language.quotes}]")

    def split(self, line: str, inside: str = "") -> tuple[list[Token], str]:
        """The line's tokens, and what is open where it ends.

        inside: the same of the line above.
        """
        tokens: list[Token] = []
        levels, heredocs, place = levels_of(inside), [], 0
        unclosed: set[str] = set()  # quotes of which none closes on the rest of the line
        while True:
            if levels and not is_code(levels[-1]):
                place = self._read_string(line, place, place, levels, tokens)
                if place < 0:
                    break
                continue
            found = self._token.search(line, place)
            if found is None:
                break
            start, place = found.span()
            text = found[0]
            if text in self._closings or found.lastgroup == "raw":
                levels.append(text)
                place = self._read_string(line, start, place, levels, tokens)
                if place < 0:
                    break
            elif found.lastgroup == "heredoc":
                # What it holds begins with the next line.
                heredocs.append(HEREDOC + found["mark"])
                tokens.append(Token(Kind.STRING, start, place))
            elif text in PAIRS:
                tokens.append(Token(Kind.CLOSE, start, place))
                _close(levels, text)
            elif text in OPENERS:
                tokens.append(Token(Kind.OPEN, start, place))
                if levels and len(levels[-1]) < MOST_OPEN:
                    levels[-1] += text
            elif self._line_comments and text.startswith(self._line_comments) and found.lastgroup != "literal":
                tokens.append(Token(Kind.COMMENT, start, place))
            elif text == "/":
                if self._regex_may_begin(line[max(0, start - NEAR) : start].rstrip()):
                    regex = _REGEX.match(line, start)
                    place = regex.end() if regex is not None else place
                    tokens.append(Token(Kind.QUOTE if regex is None else Kind.STRING, start, place))
            elif len(text) > 1:
                tokens.append(Token(Kind.STRING, start, place))
            else:
                end = -1 if text in unclosed else self._end_on_line(line, place, text)
                if end == NOWHERE:
                    unclosed.add(text)
                place = max(end, place)
                tokens.append(Token(Kind.STRING if end >= 0 else Kind.QUOTE, start, place))
        return tokens, LEVEL.join([*levels, *reversed(heredocs)])

    def begun_code(self, line: str, inside: str = "") -> int:
        """Where the code begins that the line's end is in, which a string on the line holds; 0 where it is in none."""
        begun = 0
        for _ in range(MOST_NESTED if self._interpolations else 0):
            found = self._code_in_open_string(line[begun:], "" if begun else inside)
            if not found:
                break
            begun += found
        return begun

    def _code_in_open_string(self, line: str, inside: str) -> int:
        quotes = (token for token in self.split(line, inside)[0] if token.kind is Kind.QUOTE)
        quote = next((each for each in quotes if line[each.start] in self._interpolations), None)
        place = quote.end if quote is not None else len(line)
        while quote is not None and (found := self._stop(line[quote.start]).search(line, place)) is not None:
            place = found.end()
            if found.lastgroup == "code":
                end = self._end_of_code(line, place, 0)
                if end < 0:
                    return place
                place = end
        return 0

    def closing_of(self, level: str) -> str:
        """What closes a level: a string or comment of several lines, or the brackets of code inside one."""
        if is_code(level):
            return "".join(CLOSER_OF[opener] for opener in reversed(level))
        if level.startswith(HEREDOC):
            return "\n" + level[len(HEREDOC) :]
        return self._closings.get(level) or self._end_of_raw(level)

    def closing_pattern(self, level: str) -> re.Pattern[str]:
        """Finds what closes a string or comment of several lines in what it holds; group 1 is that."""
        closing = re.escape(self.closing_of(level).strip("\n"))
        if level.startswith(HEREDOC):
            return re.compile(rf"^[ \t]*({closing})(?!\w)(?=[ \t]*(?:$|[;,.)\]]))", re.MULTILINE)
        return re.compile(rf"\\.|({closing})" if self._has_escapes(level) else f"({closing})", re.DOTALL)

    def _read_string(self, line: str, start: int, place: int, levels: list[str], tokens: list[Token]) -> int:
        """Read on from `place` in the string or comment that is the last level, and began at `start` on this line.

        Returns where it ends, or where code in it begins; -1 where it goes on below.
        """
        level = levels[-1]
        kind = self._kind_inside(level)
        if level.startswith(HEREDOC):
            ends = self.closing_pattern(level).match(line) if not start else None
            tokens.append(Token(kind, start, ends.end() if ends else len(line)))
            if ends is None:
                return -1
            levels.pop()
            return ends.end()
        for found in self._stop(level).finditer(line, place):
            if found.lastgroup == "ends":
                levels.pop()
                tokens.append(Token(kind, start, found.end()))
                return found.end()
            if found.lastgroup == "code" and len(levels) < MOST_LEVELS:
                levels.append(line[found.end() - 1])
                tokens += [Token(kind, start, found.end() - 1), Token(Kind.OPEN, found.end() - 1, found.end())]
                return found.end()
        tokens.append(Token(kind, start, len(line)))
        return -1

    def _stop(self, level: str) -> re.Pattern[str]:
        """Finds what ends a string, begins code in it, or is escaped there."""
        found = self._stops.get(level)
        if found is None:
            code = self._interpolations.get(level)
            parts = [f"(?P<code>{code})"] if code else []
            parts += [r"\\."] if self._has_escapes(level) else []
            found = re.compile("|".join([*parts, f"(?P<ends>{re.escape(self.closing_of(level))})"]))
            if level in self._closings or len(level) == 1:  # marks that somebody makes up are not kept
                self._stops[level] = found
        return found

    def _has_escapes(self, level: str) -> bool:
        known = level in self._closings or len(level) == 1
        return known and level != self._comment and level not in self._raw_quotes

    def _end_on_line(self, line: str, place: int, quote: str, nested: int = 0) -> int:
        """Where a string ends on its line that may hold code, which may hold strings.

        -1 where it does not, for all one can tell; NOWHERE where nothing does that closes such a string.
        """
        code = False
        while (found := self._stop(quote).search(line, place)) is not None:
            place = found.end()
            if found.lastgroup == "ends":
                return place
            if found.lastgroup != "code":
                continue
            code = True
            place = self._end_of_code(line, place, nested)
            if place < 0:
                return -1
        return NOWHERE if not code else -1

    def _end_of_code(self, line: str, place: int, nested: int) -> int:
        depth = 1
        while depth and (found := self._in_code.search(line, place)) is not None:
            place = found.end()
            if found[0] in OPENERS:
                depth += 1
            elif found[0] in PAIRS:
                depth -= 1
            elif nested < MOST_NESTED and found[0] in self._interpolations:
                place = self._end_on_line(line, place, found[0], nested + 1)
                if place < 0:
                    return -1
            elif nested >= MOST_NESTED:
                return -1
        return -1 if depth else place

    def _kind_inside(self, level: str) -> Kind:
        comment = level == self._comment or level.startswith(self._line_comments or "\n")
        return Kind.COMMENT if comment else Kind.STRING

    def _end_of_raw(self, opening: str) -> str:
        for pattern, closing in self._raw_strings:
            if (found := pattern.fullmatch(opening)) is not None:
                return closing.format(found[1])
        return opening  # a quote

    @staticmethod
    def _regex_may_begin(before: str) -> bool:
        return not before or before[-1] in _BEFORE_REGEX or _BEFORE_REGEX_WORD.search(before) is not None


def levels_of(inside: str) -> list[str]:
    """The levels of what is open where a line ends, outermost first."""
    return inside.split(LEVEL) if inside else []


def is_code(level: str) -> bool:
    """Whether a level is code inside a string."""
    return level[0] in "({"  # `[[` opens a string somewhere


def open_string(inside: str) -> str:
    """The string or comment of several lines that a text ends in, "" where it ends in code."""
    level = inside.rpartition(LEVEL)[2]
    return "" if not level or is_code(level) else level


def _close(levels: list[str], closer: str) -> None:
    """Take a bracket off the code inside a string; with its own last one the code ends."""
    if not levels:
        return
    opener = levels[-1].rfind(PAIRS[closer])
    if opener == 0:
        levels.pop()
    elif opener > 0:
        levels[-1] = levels[-1][:opener]


@lru_cache(maxsize=64)
def lexer_for(language: Language) -> Lexer:
    """The language's lexer, made once."""
    return Lexer(language)
