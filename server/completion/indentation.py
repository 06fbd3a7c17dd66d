"""How a file indents, and what that means for the blanks that a completion begins with."""

from __future__ import annotations

from itertools import pairwise

from server.completion.boundaries.boundary import CursorText, indentation

_BLANKS = " \t"
_OPENS_BLOCK = (":", "{", "(", "[", "then", "do", "=>", "->")
DEFAULT_UNIT = "    "
SMALLEST_UNIT = 2
ENOUGH_LINES = 5  # indented lines that make a style
LARGEST_UNIT = 8  # a longer step lines something up


def indentation_unit(cursor: CursorText) -> str:
    """What one more level of indentation is in this file: a tab or some spaces; told by the nearest deeper line."""
    for lines in (cursor.above.split("\n")[::-1], cursor.lines_below):
        blanks = (_blanks_of(line) for line in lines if line.strip())
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
    missing = max(0, indentation(wanted_blanks(cursor) + "x") - indentation(line + "x"))
    kept = 0
    while kept < len(blanks) and indentation(line + blanks[: kept + 1] + "x") <= indentation(line + "x") + missing:
        kept += 1
    return len(blanks) - kept


class IndentationStyle:
    """Rewrites the blanks that generated lines begin with to the file's own: tabs, or spaces.

    Only where the file around the cursor uses the one and never the other; else they stay as they are.
    """

    def __init__(self, cursor: CursorText) -> None:
        text = "\n".join(("", cursor.above, *cursor.lines_below))
        tabs, spaces = text.count("\n\t"), text.count("\n  ")
        self._to_tabs = tabs >= ENOUGH_LINES and not spaces
        self._to_spaces = spaces >= ENOUGH_LINES and not tabs
        self._unit = indentation_unit(cursor)
        self._levels = len(wanted_blanks(cursor) if cursor.on_blank_line else _blanks_of(cursor.line_before))
        self._width = 0  # spaces that the target takes for a tab; told by the first line that has any

    def rewritten(self, blanks: str, generated: str = "") -> str:
        """The blanks at the beginning of a line below `generated` as the file would have them."""
        if self._to_spaces and "\t" in blanks:
            return blanks.replace("\t", self._unit)
        if not self._to_tabs or "\t" in blanks or len(blanks) < SMALLEST_UNIT:
            return blanks
        if not self._width:
            levels = self._levels + generated.rstrip().endswith(_OPENS_BLOCK)
            width, rest = divmod(len(blanks), max(1, levels))
            self._width = width if not rest and SMALLEST_UNIT <= width <= LARGEST_UNIT else len(DEFAULT_UNIT)
        tabs, rest = divmod(len(blanks), self._width)
        return "\t" * tabs + " " * rest


def wanted_blanks(cursor: CursorText) -> str:
    """The indentation that a new line at the cursor has: of the line above, and one more in the block it opens."""
    above = next((each for each in reversed(cursor.above.split("\n")) if each.strip()), "")
    return _blanks_of(above) + (indentation_unit(cursor) if above.rstrip().endswith(_OPENS_BLOCK) else "")


def _blanks_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_BLANKS))]
