"""How many errors a file has with a text put in at one place of it, by its grammar.

The file is parsed once for each place, from the tree that an open document has, and for a text only what that changes.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from server.context.grammars import ParseLimit, error_count, note_edit, parse, parser_for
from server.context.syntax import Syntax
from server.context.vicinity import Vicinity
from server.documents.document import Place

if TYPE_CHECKING:
    from tree_sitter import Tree

PARSE_LIMIT_S = 0.05  # of processor time, for each parse
AT_ONCE_S = 0.002  # the same of one for which the event loop may wait
MOSTLY_AT_ONCE_S = 0.01  # so long may the file without a text have taken: with one it is mostly quicker
SMALL = 16_000  # bytes of a file that is parsed as quickly as what is near a place
LARGEST_UNREAD = 120_000  # characters of a file without a tree that are parsed for its errors
_LONE_CR = re.compile(rb"\r(?!\n)")


class FileErrors:
    """The errors of a file with texts at one place of it. Any thread may ask."""

    def __init__(self, syntax: Syntax, before: bytes, after: bytes, tree: Tree | None = None) -> None:
        """before, after: all that stands left and right of the place. tree: one of the file, edited up to now."""
        self._syntax = syntax
        self._before, self._after = before, after
        self._tree = tree
        self.gave_up = False  # a text took the parser too long
        self._parsed = self._hangs = False
        self._took_s = 0.0  # of processor time, to parse the file without a text
        self._known: dict[tuple[str, int], int | None] = {}
        self._vicinity: Vicinity | None = None
        self._parsing = threading.Lock()

    def get_ready(self) -> None:
        """Read what `is_surely_sound` needs, where a tree is at hand; takes a millisecond or two."""
        if self._tree is not None and self._is_long:
            with contextlib.suppress(ParseLimit):
                self._vicinity = Vicinity.of(self._syntax, self._before, self._after, self._tree, PARSE_LIMIT_S)

    @property
    def _is_long(self) -> bool:
        return len(self._before) + len(self._after) > SMALL

    @property
    def is_ready(self) -> bool:
        """Whether `is_surely_sound` can tell anything."""
        return self._vicinity is not None

    @property
    def is_long_unread(self) -> bool:
        """Whether all of it would have to be parsed, and is long."""
        return self._tree is None and self._is_long

    def is_surely_sound(self, text: str, replaced: int = 0) -> bool:
        """Whether the file surely has no more errors with the text than without; False where that takes time to tell.

        For the event loop. Waits for nobody.
        """
        if self._vicinity is None:
            return False
        try:
            return self._vicinity.is_sound(encoded(text), self._size(replaced), AT_ONCE_S)
        except ParseLimit:
            return False

    def errors_with(self, text: str, replaced: int = 0) -> int | None:
        """How many errors the file has with the text in the place of so many characters that follow on the line.

        None when the grammar does not tell in time.
        """
        key = (text, replaced)
        with self._parsing:
            if key not in self._known:
                self._known[key] = self._counted(text, replaced)
            return self._known[key]

    def errors_at_once(self, text: str) -> int | None:
        """The same where it is known, or takes no time worth speaking of.

        For the event loop; None when the answer is for a thread to find.
        """
        if not self._parsing.acquire(blocking=False):
            return None
        try:
            if (text, 0) not in self._known and self._parsed and self._took_s <= MOSTLY_AT_ONCE_S:
                with contextlib.suppress(ParseLimit):
                    self._known[text, 0] = self._errors(text, 0, AT_ONCE_S)
            return self._known.get((text, 0))
        finally:
            self._parsing.release()

    def before_typed(self, typed: str) -> FileErrors | None:
        """The file as it was before `typed`, which stands before the place, was; None where something else does."""
        for data in (encoded(typed), encoded(typed.replace("\n", "\r\n"))):
            if self._before.endswith(data):
                before = self._before[: len(self._before) - len(data)]
                tree = None
                if self._tree is not None:
                    tree = self._tree.copy()
                    note_edit(tree, before, data, b"")
                return FileErrors(self._syntax, before, self._after, tree)
        return None

    def _counted(self, text: str, replaced: int) -> int | None:
        if self._hangs:
            return None
        try:
            if not self._parsed:
                begun = time.thread_time()
                self._tree = self._parse(self._before + self._after, self._tree, PARSE_LIMIT_S)
                self._parsed, self._took_s = True, time.thread_time() - begun
            return self._errors(text, replaced, PARSE_LIMIT_S)
        except ParseLimit:
            self.gave_up, self._hangs = True, not self._parsed  # a grammar that hangs is not tried again
            return None

    def _errors(self, text: str, replaced: int, limit_s: float) -> int:
        assert self._tree is not None
        if not text and not replaced:
            return error_count(self._tree)
        data, gone = encoded(text), self._size(replaced)
        tree = self._tree.copy()
        note_edit(tree, self._before, self._after[:gone], data)
        return error_count(self._parse(self._before + data + self._after[gone:], tree, limit_s))

    def _size(self, replaced: int) -> int:
        """Bytes of so many characters behind the place."""
        return len(self._after[: 4 * replaced].decode("utf-8", "ignore")[:replaced].encode())

    def _parse(self, data: bytes, tree: Tree | None, limit_s: float) -> Tree:
        return parse(parser_for(self._syntax), data, limit_s, tree)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A document when a completion was asked for. tree: as it then was, edited up to then; None before the first."""

    lines: Sequence[str]
    place: Place
    syntax: Syntax
    tree: Tree | None = None

    @cached_property
    def errors(self) -> FileErrors | None:
        """Of the whole file at the place; None where that would have to be parsed first, and is long."""
        if self.tree is None and sum(map(len, self.lines)) > LARGEST_UNREAD:
            return None
        line = self.lines[self.place.line]
        before = "".join(self.lines[: self.place.line]) + line[: self.place.column]
        after = line[self.place.column :] + "".join(self.lines[self.place.line + 1 :])
        return FileErrors(self.syntax, encoded(before), encoded(after), self.tree)


def encoded(text: str) -> bytes:
    """As a document's tree is parsed: a lone `\r` ends a line."""
    data = text.encode("utf-8", "replace")
    return _LONE_CR.sub(b"\n", data) if b"\r" in data else data
