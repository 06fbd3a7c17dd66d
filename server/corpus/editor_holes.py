"""Chooses holes in a document as an editor makes them: where somebody may be typing, and what is due there.

Units come from the syntax tree, by the same code that measures where completions stop (`benchmarks.holes`). On
top of them stand the cursors that no unit of a tree describes: inside a word, over several statements, where
nothing is due, and in text that no grammar fits, for which lines must do.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from server.benchmarks.holes import Hole, holes_at
from server.context.syntax import Syntax

if TYPE_CHECKING:
    from tree_sitter import Tree

# How often each kind is asked for; where a place has no hole of the kind, what it has is taken in these shares.
KIND_WEIGHTS: dict[str, float] = {
    "line": 30,
    "word": 12,
    "statement": 14,
    "lines": 8,
    "block": 5,
    "body": 6,
    "function": 5,
    "head": 7,
    "expression": 20,
    "element": 10,
    "random": 5,
    "nothing": 3,
}
_WORD = re.compile(r"[^\W\d]\w{2,}")
TRIES = 4  # places looked at for one hole: in comments and between definitions there is none
MOST_STATEMENTS = 4  # of a hole over several
MOST_RANDOM = 240  # characters of a random hole
MOST_LINES = 4  # of a hole in text without a grammar


def choose_holes(text: str, tree: Tree | None, syntax: Syntax | None, count: int, chance: random.Random) -> list[Hole]:
    """At most `count` holes at random places of the text, each at a place of its own.

    tree: of the text, which must then be ASCII; without one, holes are cut by lines.
    """
    chosen: dict[tuple[int, int], Hole] = {}
    for _ in range(count):
        found: list[Hole] = []
        for _ in range(TRIES):
            offset = chance.randrange(len(text))
            if tree is None or syntax is None:
                found = _by_lines(text, offset, chance)
            elif found := holes_at(text, tree, syntax, offset, chance):
                found += _in_a_word(text, offset, found, chance) + _several(text, tree, syntax, found, chance)
                found += _random(text, offset, chance) + _nothing(found)
            if found:
                break
        by_kind: dict[str, list[Hole]] = {}
        for hole in found:
            by_kind.setdefault(hole.kind, []).append(hole)
        if by_kind:
            kinds = sorted(by_kind)
            kind = chance.choices(kinds, [KIND_WEIGHTS[each] for each in kinds])[0]
            hole = chance.choice(by_kind[kind])
            chosen.setdefault((hole.start, hole.end), hole)
    return list(chosen.values())


def _in_a_word(text: str, offset: int, found: Sequence[Hole], chance: random.Random) -> list[Hole]:
    """From inside the word at the offset to where the rest of its line, or of its argument, ends."""
    begin = text.rfind("\n", 0, offset) + 1
    for word in _WORD.finditer(text, begin, _line_end(text, offset)):
        if word.start() <= offset < word.end():
            cursor = word.start() + chance.randrange(1, len(word[0]))
            ends = [hole.end for hole in found if hole.start <= word.start() and hole.end >= word.end()]
            return [Hole("word", cursor, min(ends))] if ends else []
    return []


def _several(text: str, tree: Tree, syntax: Syntax, found: Sequence[Hole], chance: random.Random) -> list[Hole]:
    """A statement with the next ones of its block."""
    first = next((hole for hole in found if hole.kind in ("statement", "function")), None)
    if first is None:
        return []
    end, begin = first.end, text.rfind("\n", 0, first.start) + 1
    for _ in range(chance.randrange(1, MOST_STATEMENTS)):
        after = re.compile(r"\s*").match(text, end)
        following = after.end() if after else end
        if text[text.rfind("\n", 0, following) + 1 : following] != text[begin : first.start]:
            break  # the block ends here
        inner = [h for h in holes_at(text, tree, syntax, following, chance) if h.start == following]
        ends = [h.end for h in inner if h.kind in ("statement", "function")]
        if not ends:
            break
        end = max(ends)
    return [Hole("lines", first.start, end)] if end > first.end else []


def _random(text: str, offset: int, chance: random.Random) -> list[Hole]:
    end = min(len(text), offset + chance.randrange(1, MOST_RANDOM))
    return [Hole("random", offset, end)] if text[offset:end].strip() else []


def _nothing(found: Sequence[Hole]) -> list[Hole]:
    """Right behind a statement: nothing is due."""
    return [Hole("nothing", hole.end, hole.end) for hole in found if hole.kind == "statement"][:1]


def _by_lines(text: str, offset: int, chance: random.Random) -> list[Hole]:
    """From a place in a line to its end, or the whole of a few lines after the indentation of the first."""
    begin, end = text.rfind("\n", 0, offset) + 1, _line_end(text, offset)
    line = text[begin:end]
    if not line.strip():
        return []
    indented = begin + len(line) - len(line.lstrip())
    start = max(offset, indented)
    rest = [Hole("line", start, end)] if text[start:end].strip() else []
    last = end
    for _ in range(chance.randrange(MOST_LINES)):
        following = _line_end(text, last + 1) if last < len(text) else last
        if not text[last:following].strip():
            break
        last = following
    return [*rest, Hole("lines" if last > end else "statement", indented, last)]


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end
