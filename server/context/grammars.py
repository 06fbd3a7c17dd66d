"""Grammars, loaded once each, and parsing through a read callback: only there may a parse be stopped.

Parsing bytes holds the interpreter's lock throughout and knows no time limit.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from server.context.long_steps import nests_too_deep, pieces
from server.context.syntax import Syntax

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Node, Parser, Tree

READ_SIZE = 4096  # bytes handed to the parser at once
LONGEST_STEP_S = 0.05  # of processor time; in written text none takes a tenth of it
READ_LINES = 8  # handed to the parser at once when it looks for what an edit changed

Read = Callable[[int, tuple[int, int]], bytes]  # what stands at a byte, which is at a (row, byte column)


class ParseLimit(Exception):
    """The parser did not finish in time."""


class LongStep(ParseLimit):
    """A step of the parser took long, or would: more of such text could hold up the process for seconds."""


@cache
def grammar(syntax: Syntax) -> Grammar:
    """The grammar of a language, loaded once."""
    from tree_sitter import Language as Grammar

    return Grammar(getattr(importlib.import_module(syntax.module), syntax.function)())


def parser_for(syntax: Syntax) -> Parser:
    """A parser of its own, for one text at a time."""
    from tree_sitter import Parser

    return Parser(grammar(syntax))


def parse(parser: Parser, data: bytes, limit_s: float, old_tree: Tree | None = None) -> Tree:
    """Parse, from an edited old tree if there is one. Raises ParseLimit.

    limit_s: processor time of this thread; how busy the machine is must not change a completion.
    """
    if nests_too_deep(data):
        raise LongStep
    if old_tree is None:
        return _parse_pieces(parser, data, limit_s, time.thread_time)
    return _parse(parser, lambda offset, _: data[offset : offset + READ_SIZE], limit_s, time.thread_time, old_tree)


def parse_watched(parser: Parser, data: bytes, limit_s: float, old_tree: Tree, tail: int) -> tuple[Tree, bool]:
    """The same, and whether a token was looked for through all of the text's last `tail` bytes. Raises ParseLimit.

    Where none was, no token before them depends on what may stand behind the end, as one that may begin a comment or
    a string does. tail: more than one token has.
    """
    if nests_too_deep(data):
        raise LongStep
    end = len(data)
    begin = max(0, end - tail)
    while begin < end and data[begin] & 0xC0 == 0x80:  # within a character
        begin += 1
    next_character = begin
    looked_through = False

    def read(offset: int, point: tuple[int, int]) -> bytes:
        nonlocal next_character, looked_through
        # Handed one by one: for the next token the parser goes back to the character that ended the token before.
        size = _size_of_character(data, offset)
        next_character = offset + size if offset in (begin, next_character) else begin
        looked_through = looked_through or (offset == end and next_character > end)
        return data[offset : min(offset + READ_SIZE, begin) if offset < begin else offset + size]

    return _parse(parser, read, limit_s, time.thread_time, old_tree), looked_through


def _size_of_character(data: bytes, offset: int) -> int:
    """Bytes of the character that begins there; 1 at the end, so that it is passed as well."""
    first = data[offset] if offset < len(data) else 0
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def parse_lines(
    parser: Parser,
    lines: Sequence[str],
    limit_s: float,
    old_tree: Tree | None = None,
    give_way: Callable[[], None] | None = None,
) -> Tree:
    """The same for lines with their ends. Raises ParseLimit. A line ended by a lone `\\r` ends with `\\n` for the
    parser: rows then equal lines.

    limit_s: time by the wall, for somebody may be waiting; processor time where nobody is, and `give_way` is called
    again and again, which may sleep.
    """
    clock = time.monotonic if give_way is None else time.thread_time
    give_way = give_way or (lambda: None)
    if old_tree is not None:
        return _parse(parser, _LineReader(lines), limit_s, clock, old_tree, give_way)
    data = b"".join(map(_line_bytes, lines))
    if nests_too_deep(data):
        raise LongStep
    return _parse_pieces(parser, data, limit_s, clock, give_way)


def _parse_pieces(
    parser: Parser,
    data: bytes,
    limit_s: float,
    clock: Callable[[], float],
    give_way: Callable[[], None] = lambda: None,
) -> Tree:
    """Parse a text anew: where it is repetitive in pieces, so that a step is noticed before it takes seconds."""
    tree, begin, limit = None, 0, clock() + limit_s
    for end in pieces(data):

        def read(offset: int, point: tuple[int, int], end: int = end) -> bytes:
            return data[offset : min(offset + READ_SIZE, end)]

        if tree is not None:
            note_edit(tree, data[:begin], b"", data[begin:end])
        tree = _parse(parser, read, max(0.0, limit - clock()), clock, tree, give_way)
        begin = end
    assert tree is not None
    return tree


def _line_bytes(line: str) -> bytes:
    """A line as the parser reads it."""
    data = line.encode("utf-8", "replace")
    return data[:-1] + b"\n" if data.endswith(b"\r") else data


def _parse(
    parser: Parser,
    read: Read,
    limit_s: float,
    clock: Callable[[], float],
    old_tree: Tree | None,
    give_way: Callable[[], None] = lambda: None,
) -> Tree:
    limit, latest = clock() + limit_s, time.monotonic() + limit_s
    step_began, longest_step_s = time.thread_time(), 0.0
    old: dict[str, Any] = {} if old_tree is None else {"old_tree": old_tree}
    handed: list[bytes] = []
    handed_from = 0
    late = False

    def is_late() -> bool:
        # No time of the processor's is over that the wall clock's is not, which costs no call to the system.
        nonlocal late
        late = late or (time.monotonic() > latest and clock() > limit)
        return late

    def step_ended() -> None:
        nonlocal step_began, longest_step_s
        now = time.thread_time()
        longest_step_s = max(longest_step_s, now - step_began)
        step_began = now

    def hand(offset: int, point: tuple[int, int]) -> bytes:
        # A scanner that reads on and on within one token asks nobody else: for it the text ends here. But where a
        # piece ended within a character, the parser asks for that character again, and trusts to get it.
        nonlocal handed_from
        again = bool(handed) and handed_from <= offset < handed_from + len(handed[-1])
        handed.append(b"" if is_late() and not again else read(offset, point))
        handed_from = offset
        return handed[-1]

    def is_over(offset: int, failing: bool) -> bool:
        step_ended()
        give_way()
        return is_late()

    try:
        tree = parser.parse(hand, progress_callback=is_over, **old)
    except ValueError as error:  # the binding's word for a parse that the callback ended
        parser.reset()  # or the next parse would go on with this text
        raise (ParseLimit if longest_step_s <= LONGEST_STEP_S else LongStep) from error
    finally:
        if _keeps_what_it_reads():
            for data in handed:
                _let_go(data)
        handed.clear()  # the tree keeps the callback
    step_ended()
    if longest_step_s > LONGEST_STEP_S:
        raise LongStep
    if late:
        raise ParseLimit  # the text was cut off under way
    return tree


def top_level(tree: Tree) -> list[Node]:
    """The things of a text's top level. What may stand everywhere, as comments do, tells not where the parser is."""
    return [each for each in tree.root_node.children if not each.is_extra]


def note_edit(tree: Tree, before: bytes, old: bytes, new: bytes) -> None:
    """Note in a tree that `new` stands in the place of `old` behind `before`."""
    start = len(before)
    point = _moved((0, 0), before)
    tree.edit(
        start_byte=start,
        old_end_byte=start + len(old),
        new_end_byte=start + len(new),
        start_point=point,
        old_end_point=_moved(point, old),
        new_end_point=_moved(point, new),
    )


def _moved(point: tuple[int, int], data: bytes) -> tuple[int, int]:
    rows = data.count(b"\n")
    return point[0] + rows, len(data) - data.rfind(b"\n") - 1 if rows else point[1] + len(data)


@cache
def _keeps_what_it_reads() -> bool:
    """Whether the binding never lets go of what the callback gave it, so that all text read would stay for ever.

    tree-sitter 0.26.1 and before take one reference too many of each. A version that does not must not lose one.
    """
    from tree_sitter import Parser

    if sys.implementation.name != "cpython":
        return False
    import tree_sitter_json
    from tree_sitter import Language as Grammar

    text = b"[" + b"0, " * 20 + b"0]"
    before, calls = sys.getrefcount(text), 0

    def read(offset: int, point: tuple[int, int]) -> bytes:
        nonlocal calls
        calls += offset == 0
        return text if offset == 0 else b""

    Parser(Grammar(tree_sitter_json.language())).parse(read)
    return sys.getrefcount(text) - before == calls > 0


def _let_go(data: bytes) -> None:
    """Give back the reference that nobody else will."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(data))


class _LineReader:
    """Hands out lines as bytes."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._row, self._bytes = -1, b""

    def __call__(self, offset: int, point: tuple[int, int]) -> bytes:
        row, column = point
        if row >= len(self._lines):
            return b""
        if row != self._row:
            self._row = row
            self._bytes = b"".join(map(_line_bytes, self._lines[row : row + READ_LINES]))
        return self._bytes[column:]


def error_count(tree: Tree) -> int:
    """How many nodes of a tree are errors or were made up by the parser."""
    count, cursor = 0, tree.walk()
    while True:
        node = cursor.node
        assert node is not None
        if node.is_error or node.is_missing:
            count += 1
        if node.has_error and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return count
