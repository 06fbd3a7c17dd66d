"""Whether a text leaves a file sound, told by the few things of the file's top level that stand around its place.

A parser that is asked about a long file anew looks at each thing of its top level, though but one has changed. What
stands far away is read as before, if what lies between is read without an error and the first things behind it are
what they were: the parser is then where it was. Where that is not so, only the whole file tells.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from server.context.grammars import note_edit, parse, parse_watched, parser_for, top_level
from server.context.syntax import Syntax

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

# Things of the top level: the text may go on with the last before it, or take in the next.
BEFORE, BEHIND = 2, 3
SOUND = 3  # things of the top level above the place, the first of those before it included, in which nothing is wrong
TAIL = 40  # bytes
LARGEST = 24_000  # bytes; what is larger is no quicker than the file

Thing = tuple[str, int, int]  # a node of the top level: its type, and the bytes from which to which it stands


class Vicinity:
    """The bytes around a place of a file, which begin and end with things of its top level. Any thread may ask."""

    def __init__(self, syntax: Syntax, before: bytes, after: bytes, tree: Tree, behind: list[Thing]) -> None:
        """before, after: what stands near the place. tree: of that alone.

        behind: the last things, by their places from the end; none where the file ends there.
        """
        self._syntax = syntax
        self._before, self._after = before, after
        self._tree = tree
        self._behind = behind

    @classmethod
    def of(cls, syntax: Syntax, before: bytes, after: bytes, tree: Tree, limit_s: float) -> Vicinity | None:
        """The vicinity of the place between `before` and `after`.

        tree: of the file, edited up to now; what was typed near the place may be missing in it. None where the
        vicinity is no smaller than the file, or is not read alone as in the file. Raises ParseLimit.
        """
        place, nodes = len(before), top_level(tree)
        starts = [each.start_byte for each in nodes]
        # Where they stand is known of those that no edit has touched.
        changed = [number for number, each in enumerate(nodes) if each.has_changes]
        first = max(0, min([bisect_left(starts, place), *changed[:1]]) - BEFORE)
        last = max([bisect_right(starts, place) - 1, *changed[-1:]]) + BEHIND
        ends_with_file = last >= len(nodes) - 1
        begin, end = starts[first] if first else 0, place + len(after) if ends_with_file else nodes[last].end_byte
        if end - begin > min(LARGEST, (place + len(after)) // 2) or before[begin - 1 : begin] not in (b"", b"\n"):
            return None
        above, below = nodes[: first + 1 if first else 0], [] if ends_with_file else nodes[last - BEHIND + 1 : last + 1]
        # Right behind an error nobody knows where the parser stands.
        if tree.root_node.is_error or any(each.has_error for each in above[-SOUND:]):
            return None
        # How much is skipped at an error below can depend on what stands here.
        if any(each.has_error for each in nodes[last + 1 :]):
            return None
        before, after = before[begin:], after[: end - place]
        alone = parse(parser_for(syntax), before + after, limit_s)
        near = cls(syntax, before, after, alone, [_thing(each, end) for each in below])
        things = top_level(alone)
        begins_so = not first or (bool(things) and _thing(things[0], -begin) == _thing(nodes[first], 0))
        return near if begins_so and near._ends_as_the_file(alone) else None

    def is_sound(self, text: bytes, gone: int, limit_s: float) -> bool:
        """Whether the file has surely no more errors with the text in the place of `gone` bytes behind the place.

        Raises ParseLimit.
        """
        if len(self._after) < gone:
            return False
        tree = self._tree.copy()
        note_edit(tree, self._before, self._after[:gone], text)
        data = self._before + text + self._after[gone:]
        read, looks_further = parse_watched(parser_for(self._syntax), data, limit_s, tree, TAIL if self._behind else 0)
        # What a quote or the beginning of a comment is can depend on what stands far behind.
        if self._behind and looks_further:
            return False
        return not read.root_node.has_error and self._ends_as_the_file(read)

    def _ends_as_the_file(self, tree: Tree) -> bool:
        last = top_level(tree)[-BEHIND:] if self._behind else []
        return [_thing(each, tree.root_node.end_byte) for each in last] == self._behind


def _thing(node: Node, origin: int) -> Thing:
    return node.type, node.start_byte - origin, node.end_byte - origin
