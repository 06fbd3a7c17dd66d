"""Which text of other places helps at a cursor: names used near it, and what is too much like it to be shown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from server.context.formats import Chunk
from server.context.privacy import holds_secret

NEAR_BEFORE, NEAR_AFTER = 1_500, 500  # characters around the cursor whose names are looked up
MOST_NAMES = 40
# A chunk that shares more than so much with the cursor's surroundings would be copied by the target.
SIMILAR = 0.5
_NAME = re.compile(r"[^\W\d]\w{2,}")
_HYPHENATED = re.compile(r"(?<![\w-])-{0,2}[^\W\d]\w*(?:-\w+)+(?![\w-])|(?<![\w-])--\w+")


def near_text(before: str, after: str) -> str:
    """The text around the cursor that decides what is related."""
    return before[-NEAR_BEFORE:] + after[:NEAR_AFTER]


def names_near(before: str, after: str) -> list[str]:
    """Names used around the cursor, the nearest first, each once."""
    behind = _names(before[-NEAR_BEFORE:])[::-1]
    ahead = _names(after[:NEAR_AFTER])
    # The word that is being typed is rarely whole.
    if before[-1:].isalnum() or before.endswith("_"):
        behind = behind[1:]
    return list(dict.fromkeys([*behind, *ahead]))[:MOST_NAMES]


def _names(text: str) -> list[str]:
    """Names in their order; `--main-color` and `card-title`, as styles have them, besides the words they are of."""
    names = _NAME.findall(text)
    return names if "-" not in text else [*names, *_HYPHENATED.findall(text)]


def similarity(one: str, other: str) -> float:
    """How much of the smaller text's words stand in the other as well: 0.0 none, 1.0 all, each as often."""
    ours, theirs = Counter(_NAME.findall(one)), Counter(_NAME.findall(other))
    smaller = min(ours.total(), theirs.total())
    return (ours & theirs).total() / smaller if smaller else 0.0


def fit_to_show(chunks: Iterable[Chunk], near: str) -> list[Chunk]:
    """The chunks without doubles, without those that hold secrets, and without what is too much like `near`."""
    kept: dict[str, Chunk] = {}
    for chunk in chunks:
        if chunk.text.strip() and chunk.text not in kept and not holds_secret(chunk.text):
            lines = [line.strip() for line in chunk.text.split("\n") if len(line.strip()) > 3]
            shown = sum(line in near for line in lines)
            if lines and shown / len(lines) <= SIMILAR and similarity(chunk.text, near) <= _most(chunk.text):
                kept[chunk.text] = chunk
    return list(kept.values())


def _most(text: str) -> float:
    # The head of a function is nearly all names that its callers use, too.
    return 1.0 if text.count("\n") < 3 else 0.8
