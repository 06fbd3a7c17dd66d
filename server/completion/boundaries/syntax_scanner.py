"""Reads a growing text with tree-sitter and says in what state each line leaves it.

The text is code that is being written, so the tree's shape is often an error node. Its tokens stay
reliable, though: brackets, strings, comments and joints are told by them, and the logical line (all lines
of one statement's head) that they form.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.completion.boundaries.boundary import indentation
from server.completion.boundaries.syntax_rows import SyntaxRow
from server.context.grammars import ParseLimit, parse, parser_for, top_level
from server.context.syntax import Syntax

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

PARSE_LIMIT_S = 0.1  # a grammar that hangs must not hang the editor
LIMIT_LATER = 0.5  # of that once the text grows, when somebody waits for each piece
NODES_PER_LOOK = 16  # nodes met between two looks at the clock; deep in a tree each takes a while
MOST_COMMENTS = 32  # that are read to find the statement below them
LAST_THINGS = 3
MOST_KNOWN = 8  # texts above a cursor
GROWN = 300  # characters; so much more than a known text is worth knowing
OPENERS, CLOSERS = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True)
class LogicalLine:
    """The last logical line of the text that has code, as far as it goes.

    indent: column of its first line. first: its first token. opens_block: it ends with the block opener.
    only_string: it is nothing but one string. depth: brackets open at the text's end.
    in_string: the text ends inside a string of several lines. joined: its last line goes on below.
    after_comment: a comment on a line of its own is the last thing in the text.
    """

    indent: int = 0
    first: str = ""
    opens_block: bool = False
    only_string: bool = False
    depth: int = 0
    in_string: bool = False
    joined: bool = False
    after_comment: bool = False

    @property
    def complete(self) -> bool:
        """Whether the next line begins a new logical line."""
        return not (self.depth or self.in_string or self.joined)


class SyntaxScanner:
    """One text, grown by `advance`; only what is new is parsed, and only its last logical line is read."""

    def __init__(self, syntax: Syntax, row: SyntaxRow) -> None:
        self._row = row
        self._syntax = syntax
        self._parser = parser_for(syntax)
        self._state = LogicalLine()
        self._open_quote = ""  # the character of the quotes that the text's end is in
        self._unparsed = ""
        self._data = bytearray()
        self._end = (0, 0)  # row and byte column where the data ends
        self._tree: Tree | None = None
        self._line_start = 0  # byte where the last logical line begins
        self._limit_s = PARSE_LIMIT_S

    def __copy__(self) -> SyntaxScanner:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._data = bytearray(self._data)
        other._tree = None if self._tree is None else self._tree.copy()
        other._parser = parser_for(self._syntax)
        return other

    def advance(self, text: str) -> LogicalLine:
        """Add text and return the state that the whole text ends in. Raises ParseLimit."""
        self._unparsed += text
        # A string that stays open is an error to the parser, and costs it more with every line.
        if self._open_quote and self._open_quote not in text:
            return self._state
        if self._open_quote:
            self._tree = None  # parts of the string that were read as code would be taken from it
        fresh, self._unparsed, self._open_quote = self._unparsed, "", ""
        self._parse(fresh.encode("utf-8", "replace"))
        self._state = self._read()
        self._limit_s = PARSE_LIMIT_S * LIMIT_LATER
        return self._state

    def shortened(self) -> SyntaxScanner:
        """One in the same state that has read no more than the last things of the text's top level, where that will do.

        A parser looks at each of them anew whenever text is added.
        """
        things = [] if self._tree is None else top_level(self._tree)
        if len(things) <= LAST_THINGS or any(each.has_error for each in things[-LAST_THINGS - 1 :]):
            return self
        begin = things[-LAST_THINGS]
        if begin.start_point.column or self._line_start < begin.start_byte:
            return self
        short = SyntaxScanner(self._syntax, self._row)
        short.advance(self._data[begin.start_byte :].decode("utf-8", "replace"))
        return short if short._state == self._state else self

    def _parse(self, fresh: bytes) -> None:
        old_size, old_end = len(self._data), self._end
        self._data += fresh
        rows = fresh.count(b"\n")
        self._end = (
            old_end[0] + rows,
            len(fresh) - fresh.rfind(b"\n") - 1 if rows else old_end[1] + len(fresh),
        )
        if self._tree is not None:
            self._tree.edit(
                start_byte=old_size,
                old_end_byte=old_size,
                new_end_byte=len(self._data),
                start_point=old_end,
                old_end_point=old_end,
                new_end_point=self._end,
            )
        self._tree = parse(self._parser, bytes(self._data), self._limit_s, self._tree)

    def _read(self) -> LogicalLine:
        row, size = self._row, len(self._data)
        indent, first, tokens, depth = 0, "", 0, 0
        opens_block = only_string = joined = after_comment = False
        previous_row = -1  # where the token before ended
        unread_row = -1  # the row of an open string, whose text was read as code but is none
        for node in self._tokens():
            kind, start_row = node.type, node.start_point.row
            if start_row == unread_row:
                continue
            begins = start_row > previous_row and not depth and not joined
            previous_row = node.end_point.row
            if kind == row.comment:
                after_comment = after_comment or begins
                continue
            if kind == row.line_joint:
                joined = node.end_byte == size
                continue
            if begins:
                self._line_start = node.start_byte
                indent, first, tokens, joined = self._indent(node), self._first(node), 0, False
            tokens += 1
            depth = max(0, depth + (kind in OPENERS) - (kind in CLOSERS))
            after_comment = False
            opens_block = kind == row.block_opener and not depth
            only_string = kind == row.string and tokens == 1
            if kind == row.string_start:
                if self._text(node).endswith(row.multiline_quotes):
                    self._open_quote = self._text(node)[-1]
                    return LogicalLine(indent, first, opens_block, only_string, depth, True, joined)
                previous_row = unread_row = start_row
        return LogicalLine(indent, first, opens_block, only_string, depth, False, joined, after_comment)

    def _tokens(self) -> Iterator[Node]:
        """The tokens from the last logical line on; a closed string, or a sound statement above, is one.

        Raises ParseLimit.
        """
        assert self._tree is not None
        cursor, limit = self._tree.walk(), time.thread_time() + self._limit_s
        for count in itertools.count():
            if count % NODES_PER_LOOK == 0 and time.thread_time() > limit:
                raise ParseLimit
            node = cursor.node
            assert node is not None
            if node.end_byte <= self._line_start or node.start_byte == node.end_byte:
                pass
            elif self._is_one_token(node) or not node.child_count:
                yield node
            elif cursor.goto_first_child_for_byte(self._line_start) is not None:
                continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return

    def _is_one_token(self, node: Node) -> bool:
        if node.type == self._row.string:
            end = node.children[-1] if node.child_count else node
            # The parser makes up an end of no width to mend a string that is open.
            return end.type == self._row.string_end and end.start_byte < end.end_byte
        if node.has_error or node.parent is None or node.parent.type not in self._row.statement_parents:
            return False
        # A block that is still empty is sound as well, so only a statement further down closes it.
        below = node.next_named_sibling
        for _ in range(MOST_COMMENTS):
            if below is None or below.type != self._row.comment:
                break
            below = below.next_named_sibling
        return below is not None and below.type != self._row.comment

    def _indent(self, node: Node) -> int:
        begin = self._data.rfind(b"\n", 0, node.start_byte) + 1
        return indentation(self._data[begin : node.start_byte + 1].decode("utf-8", "replace"))

    def _first(self, node: Node) -> str:
        while node.child_count:
            node = node.children[0]
        return self._text(node)

    def _text(self, node: Node) -> str:
        return self._data[node.start_byte : node.end_byte].decode("utf-8", "replace")


class KnownTexts:
    """Scanners of texts above a cursor: the next key mostly finds the same text there, or a little more. Any thread."""

    def __init__(self) -> None:
        self._known: list[tuple[SyntaxRow, str, SyntaxScanner]] = []  # the latest last
        self._keeping = threading.Lock()

    def read(self, syntax: Syntax, row: SyntaxRow, above: str, line: str) -> tuple[SyntaxScanner, LogicalLine]:
        """A scanner that has read `above`, which ends a line, and the line, and its state. Raises ParseLimit."""
        with self._keeping:
            of_row = [(text, scanner) for each, text, scanner in self._known if each is row and above.startswith(text)]
            text, scanner = max(of_row, key=lambda each: len(each[0]), default=("", None))
            found = SyntaxScanner(syntax, row) if scanner is None else copy(scanner)
        fresh = above[len(text) :]
        if scanner is None or len(fresh) > GROWN:
            found.advance(fresh)
            found, fresh = found.shortened(), ""
            with self._keeping:
                self._known = [*self._known, (row, above, copy(found))][-MOST_KNOWN:]
        return found, found.advance(fresh + line)
