"""Rules for languages whose blocks are told by brackets, or, without a grammar's help, by indentation.

The unit is the statement of the cursor's line with the block it opens; on a blank line the block whose
opener stands right above, with its closer unless the file has it already; otherwise, inside a block, the
statements up to a blank line; and at the top of a file one statement.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from server.completion.boundaries.boundary import CursorText, indentation
from server.completion.boundaries.enclosing import at_cursor
from server.completion.boundaries.lexer import CLOSERS
from server.completion.boundaries.line_boundary import KEEP, WAIT, Stop, Verdict

BLOCK_COMPLETE = "block complete"
STATEMENT_COMPLETE = "statement complete"

# Statements of these may go on without a bracket: `if (a) b; else c;`.
_CONTROL = frozenset({"if", "else", "for", "while", "do"})
_FIRST_WORD = re.compile(r"[}\s]*(\w*)")
_LEADER = re.compile(r"\s*(@\w|#\[|\[\w[^\]]*\]\s*$|template\s*<)")  # belongs to what follows: a decorator, attribute


class Unit(Enum):
    """What is being completed; a line can turn one into another."""

    STATEMENT = auto()  # from the cursor's line until its brackets are closed, and what is deeper
    COMMENT = auto()  # the rest of a comment
    BLOCK = auto()  # until the bracket at `floor` is closed, or, without brackets, what is deeper
    BODY = auto()  # statements at `level`, up to a blank line
    UNKNOWN = auto()  # STATEMENT or BODY: the first line's indentation will tell


class BlockRules:
    """`LineRules` of one completion. inside: what is open at the cursor of strings and comments of several lines.

    level: a column. floor: so many brackets are open around the unit; it ends when no more are.
    """

    def __init__(self, cursor: CursorText) -> None:
        self._cursor = cursor
        self._language = cursor.language
        self._scanner, above, self._state, self.closed_below, _ = at_cursor(cursor)
        self._depth_at_cursor = self._state.depth
        self.inside = self._state.inside
        self._after_blank = False  # a blank line was generated after the last line kept
        self._grew = False  # the unit has lines deeper than its first
        self._closed = False  # a block of the unit was closed
        self._leading = False  # the last line was a comment or leader, the statement is still to come
        self._head = _first_word(cursor.line_before)  # of the statement
        self._on_cursor_line = not cursor.on_blank_line  # the next line judged continues the cursor's
        column = indentation(cursor.line_before)
        self._level, self._floor = self._state.statement, self._state.lowest
        if not cursor.on_blank_line:
            comment = not self._state.code and not self._state.inside
            self._unit = Unit.COMMENT if comment else Unit.STATEMENT
            return
        self._level, self._floor = column, above.depth
        if above.opens and above.innermost is not None:
            self._unit, self._level, self._floor = Unit.BLOCK, above.innermost.indent, above.depth - 1
        elif above.inside:
            self._unit = Unit.STATEMENT
        elif above.code and column > above.statement and above.last != "}":
            self._unit, self._level = Unit.BLOCK, above.statement
        else:
            self._unit = Unit.UNKNOWN

    @property
    def depth(self) -> int:
        return self._state.depth

    @property
    def inside_string(self) -> bool:
        return bool(self._state.inside)

    @property
    def leads(self) -> bool:
        """Whether the last line that was read is only the beginning of what it belongs to."""
        state = self._state
        begun = self._leading or state.opens or state.last == "," or self._unfinished()
        return begun or bool(state.inside) or not state.code

    def blank(self, line: str, first: bool) -> Verdict:
        inside = self.inside_string
        self._state = self._scanner.advance("\n")
        self._on_cursor_line = False
        if inside:
            return KEEP
        if not first:
            self._after_blank = True
        elif not self._cursor.on_blank_line and self._state.depth <= self._floor:
            if self._unit is Unit.COMMENT:
                self._unit = Unit.UNKNOWN
            elif self._state.last in (";", "}"):
                return Stop(STATEMENT_COMPLETE)
        return KEEP

    def begins(self, line: str, whole: bool) -> Verdict:
        if self._state.inside or self._on_cursor_line:
            return KEEP
        column, closing = indentation(line), _leading_closers(line)
        if closing and not whole and closing == len(line.strip()):
            return WAIT
        if self._is_directive(line) and self._unit in (Unit.BLOCK, Unit.BODY) and not self._after_blank:
            return KEEP
        if self._state.depth - closing < self._floor_of_unit():
            return self._closes_outer_block(self._state.depth - closing)
        if self._unit in (Unit.STATEMENT, Unit.COMMENT):
            return self._begins_in_statement(line, column, whole)
        if self._unit is Unit.BLOCK:
            return self._begins_in_block(line, column, whole, closing)
        if self._unit is Unit.BODY:
            return self._begins_in_body(line, column, whole)
        return Stop(BLOCK_COMPLETE) if column < self._level else KEEP

    def closes_too_much(self, fresh: str) -> int | None:
        return None if self._language.lone_closers else self._scanner.first_surplus(fresh, self.closed_below)

    def ends(self, line: str, fresh: str) -> bool:
        first_word, column = _first_word(line), indentation(line)
        self._after_blank = self._on_cursor_line = False
        before = self._state
        if not self._head or self._leading or (column == self._level and first_word in _CONTROL):
            self._head = first_word
        self._state = self._scanner.advance(fresh + "\n")
        state = self._state
        if self._unit is Unit.COMMENT:
            return True
        if self._unit is Unit.UNKNOWN:
            self._level = column
            at_top = not column and not self._depth_at_cursor and not self._language.prose
            self._unit = Unit.STATEMENT if at_top else Unit.BODY
            self._floor = self._depth_at_cursor
        self._leading = not state.inside and (not state.code or _LEADER.match(line) is not None)
        if state.depth < self._floor_of_unit():
            return True
        if self._unit is Unit.STATEMENT:
            self._grew = self._grew or state.depth > self._floor or column > self._level
            if state.inside or self._leading or state.depth > self._floor:
                return False
            self._closed = self._closed or (state.last == "}" and before.depth > self._floor)
            if state.last == ";" and self._head in _CONTROL:
                self._grew = True
                return False
            return state.last == ";" or (self._grew and first_word in self._language.ending)
        if self._unit is Unit.BLOCK:
            if state.depth > self._floor:
                return False
            if self._floor < self._depth_at_cursor:  # its bracket is closed
                self._unit, self._grew, self._closed = Unit.STATEMENT, True, True
                return state.last == ";"
            return first_word in self._language.ending and column <= self._level
        return False

    def _is_directive(self, line: str) -> bool:
        return self._language.directives and line.lstrip().startswith("#")

    def _floor_of_unit(self) -> int:
        own = self._unit in (Unit.STATEMENT, Unit.COMMENT, Unit.BLOCK)
        return self._floor if own else self._depth_at_cursor

    def _closes_outer_block(self, depth: int) -> Verdict:
        """The line closes the block around the unit: wanted only where the file never closes it."""
        on_own_line = self._cursor.on_blank_line and self._unit in (Unit.BODY, Unit.UNKNOWN)
        wanted = on_own_line and not self._after_blank and depth >= self.closed_below
        return KEEP if wanted else Stop(BLOCK_COMPLETE)

    def _begins_in_statement(self, line: str, column: int, whole: bool) -> Verdict:
        if self._state.depth > self._floor:
            return KEEP
        if self._leading:
            return Stop() if self._after_blank else KEEP
        if self._after_blank or column < self._level:
            return Stop()
        joined = self._joins(line)
        if joined is not None:
            return WAIT if joined is WAIT and not whole else KEEP
        if column > self._level:
            return Stop() if self._state.last in (";", "}") else KEEP
        if self._unfinished():
            return KEEP
        if line.lstrip().startswith("{") and not self._closed:
            return KEEP
        if _first_word(line) in self._language.heads and self._state.last not in (";", "}"):
            return KEEP
        return self._carries_on(line, whole) if self._grew else self._begins_another(line, whole)

    def _unfinished(self) -> bool:
        """Whether a line that is complete ends with a word where statements end with a sign."""
        last = self._state.last
        return self._language.terminated and (last.isalnum() or last in ("_", "*", "&", ">"))

    def _begins_another(self, line: str, whole: bool) -> Verdict:
        """A statement without a block ends before a line at its own column, unless a word there carries it on."""
        words = self._language.heads
        word = _first_word(line)
        if not whole and line.strip() == word and any(each.startswith(word) for each in words):
            return WAIT
        return Stop(STATEMENT_COMPLETE)

    def _joins(self, line: str) -> Verdict | None:
        """KEEP if the line begins with a sign that begins no statement; WAIT where more of it must tell."""
        start = line.lstrip()
        if self._language.markup and start.startswith(("/>", "</")):
            return KEEP
        if self._language.markup and start in ("<", "/"):
            return WAIT  # the next character tells a closing tag from an opening one
        if start[0] not in self._language.joints or start.startswith(("::", "...", "&mut", "&&&")):
            return None
        return WAIT if start in (":", ".", "..", "&") else KEEP

    def _begins_in_block(self, line: str, column: int, whole: bool, closing: int) -> Verdict:
        if self._floor == self._depth_at_cursor:  # told by indentation
            return KEEP if column > self._level else self._carries_on(line, whole)
        if closing and self._state.depth - closing == self._floor:
            return Stop(BLOCK_COMPLETE) if self._floor < self.closed_below else KEEP
        return KEEP if column >= self._level or self._state.depth > self._depth_at_cursor else Stop()

    def _begins_in_body(self, line: str, column: int, whole: bool) -> Verdict:
        if self._state.depth > self._depth_at_cursor:
            return KEEP
        if column == self._level and self._after_blank:
            return self._carries_on(line, whole)
        return KEEP if column >= self._level else Stop()

    def _carries_on(self, line: str, whole: bool) -> Verdict:
        """Whether the line goes on with the statement above it, at the same column, or ends its block."""
        if indentation(line) != self._level:
            return Stop()
        word = _first_word(line)
        words = self._language.continuing | self._language.ending
        below = self._cursor.next_line
        if below is not None and indentation(below) == self._level and _first_word(below) in words:
            return Stop()
        begun = line.strip(" \t}")
        if not whole and begun == word:
            return WAIT if any(each.startswith(word) for each in words) else Stop()
        return KEEP if word in words else Stop()


def _first_word(line: str) -> str:
    found = _FIRST_WORD.match(line)
    return found[1] if found else ""


def _leading_closers(line: str) -> int:
    start = line.lstrip()
    return len(start) - len(start.lstrip("".join(CLOSERS)))
