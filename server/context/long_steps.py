"""Which texts may keep a parser in one step for seconds: no callback is asked within a step, so nothing ends it.

A step takes long where the parser meets an error, or the text's end, with hundreds of things begun and none of them
ended: it tries for each what would end it. In brackets that is seen in the text. Where signs of the grammar's own do
it, as `/` and `*` in rows do in Python, it shows only as the parser gets there; a person writes so many of them only by
holding a key or pasting a row many times, so that such text is highly repetitive, and is parsed piece by piece.
"""

from __future__ import annotations

import re
import zlib

MOST_OPEN = 200  # brackets within brackets
PIECE = 512  # bytes of repetitive text that are parsed first
GROWTH = 1.5  # times as long is each piece as the one before
WINDOW = 1024  # bytes of which it is told whether they are repetitive
REPETITIVE = 200  # bytes that so many can be packed into; three in a thousand of written code can
MOST_PIECES = 64  # of one text; where the parser has got so far, the rest is no worse

_NO_BRACKETS = bytes(set(range(256)) - set(b"()[]{}"))
_AS_ROUND = bytes.maketrans(b"[]{}", b"()()")
_STATEMENT_END = re.compile(rb"[;{}]")


def nests_too_deep(data: bytes) -> bool:
    """Whether a text has hundreds of brackets within brackets, or of `<` that may begin type arguments."""
    if data.count(b"(") + data.count(b"[") + data.count(b"{") > MOST_OPEN:
        left = data.translate(_AS_ROUND, _NO_BRACKETS)
        for _ in range(MOST_OPEN):
            size = len(left)
            left = left.replace(b"()", b"")
            if len(left) == size:
                break
        if left.count(b"(") > MOST_OPEN or b"()" in left:
            return True
    return data.count(b"<") > MOST_OPEN and any(
        each.count(b"<") - 2 * each.count(b"<<") - each.count(b">") > MOST_OPEN for each in _STATEMENT_END.split(data)
    )


def may_hold_up(data: bytes) -> bool:
    """Whether a text is of one of these kinds."""
    return nests_too_deep(data) or len(pieces(data)) > 1


def pieces(data: bytes) -> list[int]:
    """The ends of the pieces to parse one after the other, the text's own last; one where nothing is repetitive.

    Each run of repetitive text has a short first piece, and longer ones the longer it is.
    """
    ends: list[int] = []
    run, size = 0, 0.0  # bytes that are repetitive up to here; those of the next piece
    for start in range(0, len(data) - WINDOW + 1, WINDOW):
        if len(ends) >= MOST_PIECES:
            break
        if len(zlib.compress(data[start : start + WINDOW], 1)) > REPETITIVE:
            run = 0
            continue
        if not run:
            ends.append(start)
            size = PIECE
        run += WINDOW
        while ends[-1] + size <= start + WINDOW:
            ends.append(ends[-1] + int(size))
            size *= GROWTH
    return [*(end for end in ends if end), len(data)]
