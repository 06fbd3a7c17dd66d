"""Which texts may keep a parser in one step for seconds, or end the process.

No callback is asked within a step, so nothing ends it. And the scanners that come with grammars keep what is open in a
room of a fixed size, which not all of them mind: YAML's writes over its end at some 300 levels.

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
AGAIN = 10  # times does what stands in its middle come in a repetitive window; quicker than to pack it
MOST_PIECES = 64  # of one text; where the parser has got so far, the rest is no worse

MOST_LEVELS = 100  # of indentation
_BLANKS = (b" ", b"\t")
_ENTRIES = re.compile(rb"(?:[-?:][ \t]+){%d}" % MOST_LEVELS)  # on one line
_NO_BRACKETS = bytes(set(range(256)) - set(b"()[]{}"))
_AS_ROUND = bytes.maketrans(b"[]{}", b"()()")
_AS_DASH = bytes.maketrans(b"?:", b"--")
_STATEMENT_END = re.compile(rb"[;{}]")


def nests_too_deep(data: bytes) -> bool:
    """Whether a text has hundreds of brackets within brackets, of `<` that may begin type arguments, or of lines or
    entries of lists that each stand deeper than the one before."""
    if any(each * MOST_LEVELS in data for each in _BLANKS) and _levels(data) > MOST_LEVELS:
        return True
    if b"-" * MOST_LEVELS in data.translate(_AS_DASH, b" \t") and _ENTRIES.search(data):
        return True
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


def _levels(data: bytes) -> int:
    """How many lines stand at most each deeper than the one before it that is open still."""
    most, open_lines = 0, [-1]
    for line in data.split(b"\n"):
        bare = line.lstrip(b" \t")
        if not bare.rstrip():
            continue
        indent = len(line) - len(bare)
        while indent <= open_lines[-1]:
            open_lines.pop()
        open_lines.append(indent)
        most = max(most, len(open_lines))
    return most


def is_deep(line: str) -> bool:
    """Whether a line stands so deep that there may be too many levels."""
    return line[:MOST_LEVELS].isspace() and len(line) > MOST_LEVELS


def pieces(data: bytes) -> list[int]:
    """The ends of the pieces to parse one after the other, the text's own last; one where nothing is repetitive.

    Each run of repetitive text has a short first piece, and longer ones the longer it is.
    """
    ends: list[int] = []
    run, size = 0, 0.0  # bytes that are repetitive up to here; those of the next piece
    for start in range(0, len(data) - WINDOW + 1, WINDOW):
        if len(ends) >= MOST_PIECES:
            break
        if not _is_repetitive(data[start : start + WINDOW]):
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


def _is_repetitive(window: bytes) -> bool:
    middle = window[WINDOW // 2 : WINDOW // 2 + 4]
    return window.count(middle) > AGAIN and len(zlib.compress(window, 1)) <= REPETITIVE
