"""How a file indents, and what that means for the blanks that a completion begins with."""

from __future__ import annotations

from itertools import pairwise

from server.completion.boundaries.boundary import CursorText, indentation

_BLANKS = " \t"
_OPENS_BLOCK = (":", "{", "(", "[", "then", "do", "=>", "->")
DEFAULT_UNIT = "    "
LARGEST_UNIT = 8  # a longer step lines something up


def indentation_unit(cursor: CursorText) -> str:
    """What one more level of indentation is in this file: a tab or some spaces; told by the nearest deeper line."""
    for lines in (cursor.above.split("\n")[::-1], cursor.lines_below):
        blanks = [line[: len(line) - len(line.lstrip(_BLANKS))] for line in lines if line.strip()]
        for one, other in pairwise(blanks):
            shorter, longer = sorted((one, other), key=len)
            step = longer[len(shorter) :]
            if step and longer.startswith(shorter) and len(step) <= LARGEST_UNIT:
                return "\t" if step.startswith("\t") else step
    return DEFAULT_UNIT


def doubled_blanks(cursor: CursorText, blanks: str) -> int:
    """How many of the blanks that a completion begins with must go, for they stand before the cursor already.

    Behind a blank in a line all of them do. On a line of blanks so many stay as the line's block still needs.
    """
    line = cursor.line_before
    if not line.endswith(tuple(_BLANKS)):
        return 0
    if line.strip():
        return len(blanks)
    above = next((each for each in reversed(cursor.above.split("\n")) if each.strip()), "")
    wanted = above[: len(above) - len(above.lstrip(_BLANKS))]
    if above.rstrip().endswith(_OPENS_BLOCK):
        wanted += indentation_unit(cursor)
    missing = max(0, indentation(wanted + "x") - indentation(line + "x"))
    kept = 0
    while kept < len(blanks) and indentation(line + blanks[: kept + 1] + "x") <= indentation(line + "x") + missing:
        kept += 1
    return len(blanks) - kept
