"""The boundary where more of the line stands right of the cursor: the argument or expression ends before that.

The unit ends where the generated text comes to what stands right of the cursor, where it closes a bracket that
the file closes there itself, and otherwise with its line; while a bracket of its own is open it goes on below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from server.completion.boundaries.boundary import CursorText, Decision
from server.completion.boundaries.enclosing import Enclosing, at_cursor, enclosing
from server.completion.boundaries.lexer import OPENERS, Kind, Token, lexer_for, open_string
from server.completion.boundaries.line_boundary import BOUNDARY, FENCE, NO_TEXT

_BLANKS = " \t"
_ENDS_WITH_LINE = Enclosing("", 0, re.compile("()"))
_WORD = re.compile(r"\w")
_GOES_ON = ("<", ",", "|", "&", "=", "+", "?")


@dataclass(frozen=True)
class _Open:
    """What is open where a line begins: own brackets, brackets of the line's that are ours to close, a string."""

    depth: int
    owed: int
    inside: str


class MidLine:
    """One completion in the middle of a line; keeps the contract of `Boundary`."""

    def __init__(self, cursor: CursorText, *, fence_ends: bool) -> None:
        _, above, state, below, on_line = at_cursor(cursor)
        self._lexer = lexer_for(cursor.language)
        # Where the cursor is in code that a string on its line holds, the line begins there.
        code = self._lexer.begun_code(cursor.line_before, above.inside)
        self._line_before = cursor.line_before[code:]
        self._joins = bool(cursor.language.joints)
        self._fence_ends = fence_ends
        self._right = cursor.line_after.strip(_BLANKS)
        # Below a line that opens something stands what that holds, which may begin as ours does.
        opens = self._right.endswith((*OPENERS, ":"))
        self._below = "" if opens or cursor.next_line is None else cursor.next_line
        self._around = None if code else self._string_around(cursor, above.inside, state.inside)
        self._open = _Open(0, state.depth - below - on_line, "" if code else above.inside)
        self._start = 0  # where the line begins that is not complete yet
        self._decision = Decision()

    def _string_around(self, cursor: CursorText, above: str, inside: str) -> Enclosing | None:
        """What closes the string or comment that the cursor is in, a line's end if nothing else; None in code."""
        if open_string(inside):
            return enclosing(cursor, inside) or _ENDS_WITH_LINE
        column = len(cursor.line_before)
        for token in self._lexer.split(cursor.line_before + cursor.line_after, above)[0]:
            if token.start < column < token.end and token.kind is Kind.STRING:
                quote = cursor.line_after[token.end - column - 1]
                return Enclosing(quote, token.end - column - 1, self._lexer.closing_pattern(quote))
            if token.start < column <= token.end and token.kind is Kind.COMMENT:
                return _ENDS_WITH_LINE
        return None

    @property
    def inside_string(self) -> bool:
        return bool(self._open.inside)

    def feed(self, text: str) -> Decision:
        while self._decision.end is None:
            newline = text.find("\n", self._start)
            if newline < 0:
                line = text[self._start :]
                stop, sure, _ = self._read(line, whole=False)
                if stop is None:
                    sure = min(sure, len(line) - self._beginning_of_right(line))
                self._decide(text, self._start + sure, stop is not None)
                break
            stop, sure, left = self._read(text[self._start : newline], whole=True)
            self._decide(text, self._start + sure, stop is not None)
            self._start, self._open = newline + 1, left
        return self._decision

    def finish(self, text: str, *, ran_out: bool = False) -> Decision:
        if self.feed(text).end is None:
            copied = self._copied(text[self._start :]) if ran_out else 0
            self._decide(text, len(text) - copied, ended=True)
        return self._decision

    def _copied(self, line: str) -> int:
        """How many characters at the end of a line that broke off are words that stand right of the cursor."""
        begun = self._beginning_of_right(line)
        inside_word = begun and line[-begun].isalnum() and line[-begun - 1 : -begun].isalnum()
        return begun if not inside_word and any(map(str.isalnum, line[len(line) - begun :])) else 0

    def _read(self, line: str, whole: bool) -> tuple[int | None, int, _Open]:
        """Where in this line the unit ends, if it does, how much of the line belongs to it, and what is left open."""
        if self._around is not None:
            return self._read_in_string(self._around, line, whole)
        if self._start and self._fence_ends and not self._open.inside and (fence := _fence(line, whole)):
            return (0 if fence == FENCE else None), 0, self._open
        if self._start and line.strip() and self._is_below(line, whole):
            return (0 if whole else None), 0, self._open
        offset = len(self._line_before) if self._start == 0 else 0
        tokens, inside = self._lexer.split(self._line_before + line if offset else line, self._open.inside)
        depth, owed, place = self._open.depth, self._open.owed, 0
        for token in tokens:
            start, end = token.start - offset, token.end - offset
            if end <= 0 and (whole or token.kind is not Kind.QUOTE):
                continue
            if start >= 0 and not depth and (found := self._right_in(line, place, start + 1)) is not None:
                return found, found, self._open
            if not whole and _may_change(token, end == len(line)):
                return None, max(start, 0), self._open
            if not whole and not depth and 0 <= len(line) - self._beginning_of_right(line) <= start:
                return None, start, self._open
            if token.kind is Kind.OPEN:
                depth += 1
            elif token.kind is Kind.CLOSE and depth:
                depth -= 1
            elif token.kind is Kind.CLOSE and owed:
                owed -= 1
            elif token.kind is Kind.CLOSE:
                return start, start, self._open
            place = end
        if depth or inside:
            return None, len(line), _Open(depth, owed, inside)
        if (found := self._right_in(line, place, len(line))) is not None:
            return found, found, self._open
        # Behind a sign that needs more an expression goes on below, as type parameters do behind `<`.
        if whole and not (self._joins and line.rstrip().endswith(_GOES_ON)):
            return len(line), len(line), self._open
        return None, len(line), self._open

    def _is_below(self, line: str, whole: bool) -> bool:
        """Whether the line is the next one below, or may yet be."""
        line = line.rstrip()
        return line == self._below and _WORD.search(line) is not None if whole else self._below.startswith(line)

    def _read_in_string(self, around: Enclosing, line: str, whole: bool) -> tuple[int | None, int, _Open]:
        """The same for text in a string or comment: it ends with what closes that, and with its line, at the latest."""
        closing = next((each.start(1) for each in around.pattern.finditer(line) if each[1]), -1)
        ends = [place for place in (line.find(self._right), closing) if place >= 0]
        begun = max(self._beginning_of_right(line), _beginning_of(around.closing, line))
        if not ends or (not whole and len(line) - begun < min(ends)):
            return (len(line) if whole else None), len(line) - (0 if whole else begun), self._open
        return min(ends), min(ends), self._open

    def _right_in(self, line: str, start: int, end: int) -> int | None:
        """Where from `start` on, before `end`, the line comes to all that stands right of the cursor."""
        while 0 <= (found := line.find(self._right, start)) < end:
            inside_word = (
                found > 0 and self._right[0].isalnum() and (line[found - 1].isalnum() or line[found - 1] == "_")
            )
            if not inside_word:
                return found
            start = found + 1
        return None

    def _beginning_of_right(self, line: str) -> int:
        """How many characters at the line's end may be the beginning of what stands right of the cursor."""
        return _beginning_of(self._right, line)

    def _decide(self, text: str, length: int, ended: bool) -> None:
        length = max(len(text[:length].rstrip()), self._decision.settled)
        reason = (BOUNDARY if length else NO_TEXT) if ended else ""
        self._decision = Decision(length, length if ended else None, reason)


def _beginning_of(text: str, line: str) -> int:
    return next((size for size in range(min(len(text), len(line)), 0, -1) if line.endswith(text[:size])), 0)


def _fence(line: str, whole: bool) -> str:
    """The fence that the line begins with, or what of it has come; "" where it begins with none."""
    start = line.lstrip()[: len(FENCE)]
    return start if start == FENCE or (not whole and start and FENCE.startswith(start)) else ""


def _may_change(token: Token, at_end: bool) -> bool:
    """Whether more text on its line could make the token another one."""
    return token.kind is Kind.QUOTE or (at_end and token.kind in (Kind.STRING, Kind.COMMENT))
