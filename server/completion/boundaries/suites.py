"""Rules for languages whose blocks are told by indentation, read with tree-sitter: Python.

The unit is the statement that the cursor is in, with the block it opens and what continues it (`else`,
`except`). On a blank line it is the block whose head stands right above; otherwise, inside a body, the
statements up to a blank line; and at the top of a module one statement.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum, auto

from server.completion.boundaries.boundary import CursorText, indentation
from server.completion.boundaries.bracket_scanner import BracketScanner, closed_by
from server.completion.boundaries.line_boundary import KEEP, WAIT, Stop, Verdict
from server.completion.boundaries.syntax_rows import SyntaxRow
from server.completion.boundaries.syntax_scanner import KnownTexts, LogicalLine
from server.context.grammars import ParseLimit

STATEMENT_COMPLETE = "statement complete"
BLOCK_COMPLETE = "block complete"
TIME_LIMIT = "parser time limit"
_WORD = re.compile(r"\w+")
_KNOWN = KnownTexts()


class Unit(Enum):
    """What is being completed. It changes when a line turns out to open a block, or to lead to a statement."""

    STATEMENT = auto()  # one statement; its first lines may be leaders or comments
    COMMENT = auto()  # the rest of a comment
    BLOCK = auto()  # everything deeper than `level`, and what continues its head
    HEAD_DONE = auto()  # a compound statement on one line: only a continuation can follow
    BODY = auto()  # statements at `level`, up to a blank line
    UNKNOWN = auto()  # STATEMENT or BODY: the first line's indentation will tell


class SuiteRules:
    """`LineRules` of one completion. `level` is a column; what it means depends on the unit."""

    def __init__(self, cursor: CursorText, row: SyntaxRow) -> None:
        """Read the text before the cursor. Raises ParseLimit."""
        self._cursor = cursor
        self._row = row
        assert cursor.language.syntax is not None
        self._scanner, self._state = _KNOWN.read(cursor.language.syntax, row, cursor.above, cursor.line_before)
        # Brackets that are open at the cursor were opened in its logical line, mostly the line itself.
        self._brackets = BracketScanner(cursor.language)
        far = self._state.depth or self._state.in_string
        at_cursor = self._brackets.advance(cursor.before if far else cursor.line_before)
        self.inside = at_cursor.inside if self._state.in_string else ""
        opened = at_cursor.open[-self._state.depth :] if self._state.depth else []
        self.closed_below = closed_by(cursor.after, opened, cursor.language)[0] if opened else 0
        self._closed_by_others = at_cursor.depth - self._state.depth + self.closed_below
        self._after_blank = False  # a blank line was generated after the last line kept
        self._level, self._head = self._state.indent, self._state.first
        self._unit = self._unit_at_cursor(cursor)

    def _unit_at_cursor(self, cursor: CursorText) -> Unit:
        if not self._state.complete:
            return Unit.STATEMENT
        if cursor.on_blank_line:
            return Unit.BLOCK if self._state.opens_block else Unit.UNKNOWN
        return Unit.COMMENT if self._state.after_comment else Unit.STATEMENT

    @property
    def leads(self) -> bool:
        state = self._state
        return (
            state.opens_block
            or not state.complete
            or state.after_comment
            or state.first in (self._row.leader, *self._row.continuations)
        )

    @property
    def depth(self) -> int:
        return self._state.depth

    @property
    def inside_string(self) -> bool:
        return self._state.in_string

    def blank(self, line: str, first: bool) -> Verdict:
        was_complete = self._state.complete
        if not self._advance("\n"):
            return Stop(TIME_LIMIT)
        if not (was_complete and self._state.complete):
            return KEEP
        if not first:
            self._after_blank = True
        elif not self._cursor.on_blank_line:
            return self._line_break_at_cursor()
        return KEEP

    def _line_break_at_cursor(self) -> Verdict:
        """Nothing was added to the cursor's line: a unit goes on only if that line opens or begins one."""
        if self._unit is Unit.COMMENT or self._state.only_string:
            self._unit = Unit.BLOCK if self._state.opens_block else Unit.UNKNOWN
        elif self._state.opens_block:
            self._unit = Unit.BLOCK
        elif self._state.first != self._row.leader:
            return Stop(STATEMENT_COMPLETE)
        return KEEP

    def begins(self, line: str, whole: bool) -> Verdict:
        if not self._state.complete:
            return KEEP
        column = indentation(line)
        if self._unit is Unit.BLOCK:
            return KEEP if column > self._level else self._continues(line, column, whole)
        if self._unit is Unit.HEAD_DONE:
            return self._continues(line, column, whole)
        if self._unit is Unit.BODY:
            if column == self._level and self._after_blank:
                return self._continues(line, column, whole)
            return KEEP if column >= self._level else Stop()
        if self._unit is Unit.UNKNOWN:
            leaves_block = column < indentation(self._cursor.line_before)
            return Stop(BLOCK_COMPLETE) if leaves_block else KEEP
        return Stop() if self._after_blank else KEEP

    def closes_too_much(self, fresh: str) -> int | None:
        return self._brackets.first_surplus(fresh, max(0, self._closed_by_others))

    def ends(self, line: str, fresh: str) -> bool:
        goes_on = not self._state.complete
        self._after_blank = False
        if not self._advance(fresh + "\n"):
            return True
        state, column = self._state, indentation(line)
        if self._unit is Unit.COMMENT:
            return True
        if self._unit is Unit.UNKNOWN:
            self._level = column
            self._unit = Unit.BODY if column else Unit.STATEMENT
        if self._unit is Unit.HEAD_DONE:
            self._unit = Unit.BLOCK
        if self._unit in (Unit.BODY, Unit.BLOCK):
            if column == self._level and not goes_on:
                self._head = state.first
            return False
        if not state.complete or state.after_comment:
            return False
        return self._statement_ends(state)

    def _statement_ends(self, state: LogicalLine) -> bool:
        """A logical line of the one statement is complete: what can still belong to it?"""
        self._level, self._head = state.indent, state.first
        if state.opens_block:
            self._unit = Unit.BLOCK
        elif state.first in self._row.continuations:
            self._unit = Unit.HEAD_DONE
        else:
            return state.first != self._row.leader
        return False

    def _continues(self, line: str, column: int, whole: bool) -> Verdict:
        """Whether the line continues the compound statement whose last head is `_head`."""
        words = self._row.continuations.get(self._head, frozenset())
        if column != self._level or not words or self._continued_below(words):
            return Stop()
        start = line.lstrip()
        found = _WORD.match(start)
        word = found[0] if found else ""
        if word in words and (whole or len(word) < len(start)):
            return KEEP
        unfinished = not whole and len(word) == len(start)
        return WAIT if unfinished and any(each.startswith(word) for each in words) else Stop()

    def _continued_below(self, words: Collection[str]) -> bool:
        """Whether the file continues the statement itself, right below the cursor."""
        below = self._cursor.next_line
        if below is None or indentation(below) != self._level:
            return False
        found = _WORD.match(below.lstrip())
        return found is not None and found[0] in words

    def _advance(self, text: str) -> bool:
        """Read more text; false when the parser did not finish in time, and the unit must end here."""
        self._brackets.advance(text)
        try:
            self._state = self._scanner.advance(text)
        except ParseLimit:
            return False
        return True
