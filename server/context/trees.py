"""The syntax tree of an open document, kept in step with its edits and never parsed anew for a key.

Edits are noted as they come and parsed when somebody asks or pauses, for what they touched only. A parse has a time
limit; where it strikes, the tree of before the edits, moved along with them, serves on, and a thread
parses in peace. A text that would keep the parser in one step for long has no tree until it has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.context.grammars import LongStep, ParseLimit, parse_lines, parser_for
from server.context.long_steps import WINDOW, is_deep, nests_too_deep, pieces
from server.context.syntax import Syntax
from server.documents.common_prefix import common_prefix
from server.documents.document import Document, LineEdit

if TYPE_CHECKING:
    from tree_sitter import Tree

REQUEST_LIMIT_S = 0.005  # of a parse that a request waits for
THREAD_LIMIT_S = 3.0  # of processor time, of a parse in a thread; a grammar that hangs must not hold it for ever
FIRST_LIMIT_S = 0.002  # small documents are parsed at once: no thread is faster
FIRST_SIZE = 20_000  # bytes of one that may be
AT_ENGINE_S = 0.02  # after a prompt: its request is at the engine by then
GIVES_WAY_S = 0.01  # after an edit a thread's parse stands still, until the key is answered
PAUSE_S = 0.05  # without a key; the next one is seldom so quick, and finds the tree
RESTS = 4  # times as long as it parsed does a thread rest before the next parse
LARGEST_TREE = 8_000_000  # characters; beyond it a document has no tree


@dataclass(frozen=True)
class _ByteEdit:
    """An edit in the words of tree-sitter: bytes, and (row, byte column) points."""

    start: int
    old_end: int
    new_end: int
    start_point: tuple[int, int]
    old_end_point: tuple[int, int]
    new_end_point: tuple[int, int]

    def apply(self, tree: Tree) -> None:
        tree.edit(
            start_byte=self.start,
            old_end_byte=self.old_end,
            new_end_byte=self.new_end,
            start_point=self.start_point,
            old_end_point=self.old_end_point,
            new_end_point=self.new_end_point,
        )


class DocumentTree:
    """The tree of one open document. Belongs to one thread, but for the parse it runs in another.

    tree: the last one parsed, with all edits since applied to it, so that its places are right but what
    was typed may be missing in it; None before the first parse. fresh: nothing is missing.
    """

    def __init__(self, document: Document, syntax: Syntax) -> None:
        self.tree: Tree | None = None
        self.fresh = False
        self._document = document
        self._syntax = syntax
        self._sizes = [_size(line) for line in document.lines]
        self._thread: asyncio.Task[None] | None = None
        self._since: list[_ByteEdit] = []  # edits while a thread parses
        self._given_up_at = -1  # bytes of a text that took even the thread too long
        self._slow = False  # the last parse took longer than a request may wait
        self._rest_until = 0.0  # time.monotonic(); a thread that parses takes the engine's processor
        self._edited_at = 0.0  # time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        document.watch(self._edited)

    @property
    def too_large(self) -> bool:
        return sum(self._sizes) > LARGEST_TREE

    def refresh(self, limit_s: float = REQUEST_LIMIT_S) -> Tree | None:
        """The tree, with the edits parsed if that takes no longer than the limit; else it goes on in a thread."""
        if self.fresh or self._thread is not None or self.too_large:
            return self.tree
        if self.tree is None:
            limit_s = min(limit_s, FIRST_LIMIT_S)
        # Code that is being typed is often broken, and mending it can cost as much as a first parse.
        is_long = self.tree is None and sum(self._sizes) > FIRST_SIZE
        tree = None if self._slow or is_long else self._parsed(limit_s)
        if tree is not None:
            self.tree, self.fresh = tree, True
        else:
            self._slow = self.tree is not None
            self._parse_in_thread()
        return self.tree

    async def ready(self) -> Tree | None:
        """The tree once the parse that runs, or is needed, has ended."""
        self.refresh()
        while self._thread is not None:
            await asyncio.wait({self._thread})
            self.refresh()
        return self.tree

    def _parsed(self, limit_s: float) -> Tree | None:
        try:
            return parse_lines(parser_for(self._syntax), self._document.lines, limit_s, self.tree)
        except LongStep:
            self.tree = None  # read anew, such text is found out before it takes longer
        except ParseLimit:
            pass
        return None

    def _parsed_for_nobody(self, lines: Sequence[str], old_tree: Tree | None) -> tuple[Tree | None, float, bool]:
        """The tree, the processor time that it took, and whether a step was too long; to be called in a thread.

        Keys have the interpreter to themselves: it hands its lock over but now and then, and one answer needs it often.
        """

        def give_way() -> None:
            while (left_s := self._edited_at + GIVES_WAY_S - time.monotonic()) > 0:
                time.sleep(left_s)

        begun, tree, long_step = time.thread_time(), None, False
        try:
            tree = parse_lines(parser_for(self._syntax), lines, THREAD_LIMIT_S, old_tree, give_way)
        except ParseLimit as limit:
            long_step = isinstance(limit, LongStep)
        return tree, time.thread_time() - begun, long_step

    def _parse_in_thread(self) -> None:
        size = sum(self._sizes)
        # A text that defeated the parser is not tried again until it has changed a good deal.
        if self._given_up_at >= 0 and abs(size - self._given_up_at) < max(200, size // 10):
            return
        if time.monotonic() < self._rest_until:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no loop to come back to: the next call tries again
        self._since = []
        self._thread = loop.create_task(self._parse_lines(list(self._document.lines), size), name="parse")

    async def _parse_lines(self, lines: list[str], size: int) -> None:
        old_tree = self.tree and self.tree.copy()
        try:
            tree, taken_s, long_step = await asyncio.to_thread(self._parsed_for_nobody, lines, old_tree)
            self._slow = taken_s > REQUEST_LIMIT_S
            self._rest_until = time.monotonic() + RESTS * taken_s
            self._given_up_at = -1 if tree is not None else size
            if tree is not None:
                for edit in self._since:
                    edit.apply(tree)
                self.tree, self.fresh = tree, not self._since
            elif long_step:
                self.tree = None
        finally:
            self._thread = None

    def _edited(self, edit: LineEdit) -> None:
        change = self._byte_edit(edit)
        self._sizes[edit.first : edit.first + len(edit.removed)] = [_size(line) for line in edit.added]
        if change is None:
            return
        self.fresh, self._edited_at = False, time.monotonic()
        if self.tree is not None and self._may_hold_up(change):
            self.tree = None
        if self.tree is not None:
            change.apply(self.tree)
        if self._thread is not None:
            self._since.append(change)
        self._refresh_later(PAUSE_S)

    def _may_hold_up(self, change: _ByteEdit) -> bool:
        """Whether the text must be read anew, which is done with care."""
        lines = self._document.lines[change.start_point[0] : change.new_end_point[0] + 1]
        if any(map(is_deep, lines)):
            lines = self._document.lines
        data = "".join(lines).encode("utf-8", "replace")
        return nests_too_deep(data) or (change.new_end - change.start > WINDOW and len(pieces(data)) > 1)

    def shown(self) -> None:
        """A prompt was made, for which the moved tree did: parse while the engine is at work."""
        if not self.fresh:
            self._refresh_later(AT_ENGINE_S)

    def _refresh_later(self, after_s: float) -> None:
        """Parse after a while without another edit.

        A key that is answered without the engine needs no tree, and a parse would keep its answer waiting.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # whoever has no loop asks for a fresh tree

        def refresh() -> None:
            self._timer = None
            self.refresh()

        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(after_s, refresh)

    def _byte_edit(self, edit: LineEdit) -> _ByteEdit | None:
        """The smallest edit that does the same; None when nothing changed. Clients may send whole texts."""
        first, old, new = edit.first, edit.removed, edit.added
        same = _common(old, new)
        if same == len(old) == len(new):
            return None
        # One line stays on each side, for its characters are compared below.
        same = min(same, len(old) - 1, len(new) - 1)
        tail = min(_common(old[::-1], new[::-1]), len(old) - same - 1, len(new) - same - 1)
        old_bytes = _encoded("".join(old[same : len(old) - tail]))
        new_bytes = _encoded("".join(new[same : len(new) - tail]))
        head = common_prefix(old_bytes, new_bytes)
        rest = min(common_prefix(old_bytes[::-1], new_bytes[::-1]), min(len(old_bytes), len(new_bytes)) - head)
        row = first + same
        base = sum(self._sizes[:row])
        return _ByteEdit(
            base + head,
            base + len(old_bytes) - rest,
            base + len(new_bytes) - rest,
            _point(row, old_bytes[:head]),
            _point(row, old_bytes[: len(old_bytes) - rest]),
            _point(row, new_bytes[: len(new_bytes) - rest]),
        )


def _encoded(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return data if b"\r" not in data else data.replace(b"\r\n", b"\0\n").replace(b"\r", b"\n").replace(b"\0\n", b"\r\n")


def _size(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode("utf-8", "replace"))


def _point(row: int, data: bytes) -> tuple[int, int]:
    rows = data.count(b"\n")
    return row + rows, len(data) - (data.rfind(b"\n") + 1)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items both begin with."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
