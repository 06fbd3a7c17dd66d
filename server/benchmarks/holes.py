"""Cuts holes out of real source files: places where a user may be typing, and the text of the unit that is due there.

The unit is what the cursor is in or opens. Which one that is depends on where the cursor stands, so each kind
of hole has a cursor of its own and a unit told by the file's syntax tree, never by the rules under test:

- `line`: inside a statement of one line, before one of its tokens; the unit is the rest of that statement.
- `head`: inside the first line of a statement of several lines; the unit is the rest of the statement, with the
  blocks that it opens and what continues it.
- `expression`: before an argument, parameter or element that more text follows on its line; the unit is that
  argument, parameter or element, over as many lines as it has.
- `element`: at the line's beginning, after its indentation, before an argument or element that ends its line; the
  unit is that element with its comma.
- `statement`: after the indentation of a statement's line; the unit is the statement.
- `function`: the same before a function of several lines; the unit is the function.
- `block`: at the end of a line that opens a block; the unit is what stands in the block. Its closer is the file's.
- `body`: on a new line of a block that is empty but for the cursor, after the indentation; the same unit.

A unit that ends its line has with it what belongs to its end: `;`, `,` and a comment behind it on that line. Places
where other code follows on that line, units inside strings and comments, directives of a preprocessor, and attributes
without what they belong to are no holes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from server.context.grammars import ParseLimit, error_count, parse, parser_for
from server.context.languages import LANGUAGES, Language
from server.context.syntax import Syntax
from server.documents.lines import to_line_feeds

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

PARSE_LIMIT_S = 2.0
LARGEST_FILE = 120_000  # bytes; longer ones are mostly made by programs
LONGEST_LINE = 300  # characters; a file with longer lines was not written by hand
LONGEST_UNIT = 4_000  # characters; nobody wants more at once
SKIPPED = frozenset({"node_modules", ".git", "__pycache__", "vendor"})
LEADERS = ("attribute", "annotation", "decorator")  # nodes that belong to the statement below them
KINDS = ("line", "head", "expression", "element", "statement", "function", "block", "body")


@dataclass(frozen=True)
class Hole:
    """A unit of a file: `text[start:end]` is what a completion at `start` should insert."""

    kind: str
    start: int
    end: int


def source_files(paths: Sequence[Path], language: Language) -> list[Path]:
    """The language's files under the paths, in an order of their own."""
    found = []
    for path in paths:
        each = [path] if path.is_file() else path.rglob("*")
        for file in each:
            declared = file.name.endswith(".d.ts")  # written by a compiler
            if (
                file.suffix[1:] in language.extensions
                and not declared
                and not SKIPPED.intersection(file.parts)
                and file.is_file()
            ):
                found.append(file)
    return sorted(set(found))


def languages_with_grammar(names: Sequence[str]) -> list[Language]:
    """The languages of these names, or all, that have a grammar to cut holes by."""
    return [each for each in LANGUAGES if each.syntax is not None and (not names or each.name in names)]


def read_source(file: Path, syntax: Syntax) -> tuple[str, Tree] | None:
    """A file's text with `\\n` line ends and its tree; None when it is no file that somebody wrote, and valid."""
    data = file.read_bytes()
    if len(data) > LARGEST_FILE:
        return None
    try:
        text = to_line_feeds(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None
    # Offsets of tree-sitter count bytes; only in ASCII are they the text's own.
    if not text.isascii() or max(map(len, text.split("\n"))) > LONGEST_LINE:
        return None
    try:
        tree = parse(parser_for(syntax), text.encode(), PARSE_LIMIT_S)
    except ParseLimit:
        return None
    return None if error_count(tree) else (text, tree)


def cut_holes(text: str, tree: Tree, syntax: Syntax, count: int, seed: int) -> list[Hole]:
    """At most `count` holes of each kind, chosen at random but the same for the same seed."""
    found: dict[str, set[Hole]] = {kind: set() for kind in KINDS}
    for hole in _Cutter(text, syntax, random.Random(seed)).holes(tree.root_node):
        if _is_a_unit(text, hole):
            found[hole.kind].add(hole)
    chosen = []
    for kind in KINDS:
        candidates = sorted(found[kind], key=lambda hole: (hole.start, hole.end))
        chosen += random.Random(seed).sample(candidates, min(count, len(candidates)))
    return chosen


def holes_at(text: str, tree: Tree, syntax: Syntax, offset: int, chance: random.Random) -> list[Hole]:
    """The holes whose units hold the character at `offset`, the innermost first, without walking the whole tree."""
    cutter = _Cutter(text, syntax, chance)
    node: Node | None = tree.root_node.descendant_for_byte_range(offset, offset + 1)
    found: list[Hole] = []
    while node is not None and node.type not in syntax.comments:
        parent = node.parent
        if node.type in syntax.blocks and parent is not None:
            found += cutter.inside(node)
        if parent is not None and node.is_named:
            if parent.type in syntax.blocks:
                found += cutter.of_member(node)
            if parent.type in syntax.lists:
                found += cutter.of_element(node)
        node = parent
    return [hole for hole in found if _is_a_unit(text, hole)]


def _is_a_unit(text: str, hole: Hole) -> bool:
    return 0 < hole.end - hole.start <= LONGEST_UNIT and bool(text[hole.start : hole.end].strip())


class _Cutter:
    """Walks the tree of one text."""

    def __init__(self, text: str, syntax: Syntax, chance: random.Random) -> None:
        self._text = text
        self._syntax = syntax
        self._chance = chance
        self._opaque = syntax.comments | syntax.strings

    def holes(self, node: Node) -> Iterator[Hole]:
        if node.type in self._syntax.comments:
            return
        if node.type in self._syntax.blocks:
            yield from self._of_block(node)
        if node.type in self._syntax.lists:
            yield from self._of_list(node)
        for child in node.named_children:
            yield from self.holes(child)

    def _of_block(self, block: Node) -> Iterator[Hole]:
        if block.parent is not None:
            yield from self.inside(block)
        for member in block.named_children:
            yield from self.of_member(member)

    def of_member(self, member: Node) -> Iterator[Hole]:
        """The holes of one statement or member of a block."""
        end = self._line_end(member)
        # A node that names its parts, such as a block in a block, is no statement.
        if end is None or not self._begins_line(member.start_byte) or member.type in self._syntax.blocks:
            return
        if member.type in self._opaque or member.type.startswith("preproc"):
            return
        if any(kind in member.type for kind in LEADERS):
            return
        several = member.end_point.row > member.start_point.row
        is_function = several and self._is_function(member)
        yield Hole("function" if is_function else "statement", member.start_byte, end)
        if "label" in member.type:
            return  # a label and the statement below it
        inner = list(self._leaves(member, member.start_point.row))[1:]
        if inner:
            yield Hole("head" if several else "line", self._chance.choice(inner).start_byte, end)

    def inside(self, block: Node) -> Iterator[Hole]:
        """The holes that hold all of a block that begins at a line's end and ends before a line's beginning."""
        if all(each.type in self._opaque for each in block.named_children):
            return
        text, first, last = self._text, block.children[0], block.children[-1]
        if text[first.start_byte : first.end_byte] == "{":
            opened, closed = first.end_byte, last.start_byte
            if not self._begins_line(closed):
                return
        elif text[block.start_byte - 1] == ":" or self._begins_line(block.start_byte):
            opened = len(text[: block.start_byte].rstrip())
            if not text[:opened].endswith((":", "then", "do")):
                return
            closed = self._line_end(block.named_children[-1]) or 0
        else:
            return
        end = len(text[:closed].rstrip())
        start = opened + len(text[opened:end]) - len(text[opened:end].lstrip())
        if text.find("\n", opened, start) < 0 or text[opened : text.find("\n", opened)].strip():
            return
        yield Hole("block", opened, end)
        yield Hole("body", start, end)

    def _of_list(self, node: Node) -> Iterator[Hole]:
        for member in node.named_children:
            yield from self.of_element(member)

    def of_element(self, member: Node) -> Iterator[Hole]:
        """The hole of one argument, parameter or element."""
        if member.type in self._syntax.comments:
            return
        begins, end = self._begins_line(member.start_byte), self._line_end(member)
        if begins and end is not None:
            yield Hole("element", member.start_byte, end)
        elif not begins and end is None:
            yield Hole("expression", member.start_byte, member.end_byte)

    def _is_function(self, member: Node) -> bool:
        nodes = [member, *member.named_children]
        return any(each.type in self._syntax.functions for each in nodes)

    def _leaves(self, node: Node, row: int) -> Iterator[Node]:
        """The leaves of a node that begin on a row, which must be the node's first."""
        if node.type in self._opaque or not node.child_count:
            yield node
            return
        for child in node.children:
            if child.start_point.row > row:
                break
            yield from self._leaves(child, row)

    def _begins_line(self, offset: int) -> bool:
        return not self._text[self._text.rfind("\n", 0, offset) + 1 : offset].strip()

    def _line_end(self, node: Node) -> int | None:
        """The end of the line that the node ends; None when more than marks and a comment follows there."""
        text = self._text
        # Some grammars have the line's end in a statement.
        end = len(text[: node.end_byte].rstrip()) if node.end_byte > node.start_byte else node.end_byte
        following, place = text.find("\n", end), end
        following = len(text) if following < 0 else following
        sibling = node.next_sibling
        while place < following:
            rest = text[place:following]
            stripped = rest.lstrip()
            place += len(rest) - len(stripped)
            if not stripped:
                return place - len(rest)
            if stripped[0] in ";,":
                place += 1
                continue
            while sibling is not None and sibling.start_byte < place:
                sibling = sibling.next_sibling
            comment = sibling is not None and sibling.type in self._syntax.comments and sibling.start_byte == place
            if not comment or sibling is None or sibling.end_byte < len(text[:following].rstrip()):
                return None
            return following if sibling.end_point.row == node.end_point.row else None
        return place
