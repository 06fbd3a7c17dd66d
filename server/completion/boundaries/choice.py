"""Which boundary decides at a cursor: by grammar, by brackets and indentation, or by what stands right of it."""

from __future__ import annotations

import re
from dataclasses import replace

from server.completion.boundaries.blocks import BlockRules
from server.completion.boundaries.boundary import Boundary, CursorText, indentation
from server.completion.boundaries.enclosing import enclosing
from server.completion.boundaries.end_mark import EndMark
from server.completion.boundaries.line_boundary import LineBoundary
from server.completion.boundaries.mid_line import MidLine
from server.completion.boundaries.repetition import LoopGuard
from server.completion.boundaries.single_line import SingleLine
from server.completion.boundaries.suites import SuiteRules
from server.completion.boundaries.syntax_rows import SYNTAX_ROWS
from server.context.grammars import ParseLimit

# What an editor closes by itself, and what may stand behind that at a line's end.
_ONLY_CLOSERS = re.compile(r"[\s)\]}>\"'`]*[:;,]?\s*")


def boundary_for(cursor: CursorText, *, single_line: bool = False, fence_ends: bool = True) -> Boundary:
    """The boundary of one completion at the cursor.

    single_line: no more than the cursor's line is offered.
    fence_ends: a line that begins with a code fence ends the completion; prose is spared.
    """
    boundary = LoopGuard(_unguarded(cursor, single_line, fence_ends))
    return EndMark.of_tag(boundary, cursor.end_mark) if cursor.end_mark else boundary


def _unguarded(cursor: CursorText, single_line: bool, fence_ends: bool) -> Boundary:
    fence_ends = fence_ends and not cursor.language.prose
    if not _ONLY_CLOSERS.fullmatch(cursor.line_after) or _heads_a_block(cursor):
        return MidLine(cursor, fence_ends=fence_ends)
    known = SingleLine(cursor) if single_line else _rules(cursor)
    around = enclosing(cursor, known.inside)
    if around is not None and around.closing in cursor.line_after:
        around = None  # what stands right of the cursor may come with the text, and is replaced then
    if around is not None:
        cursor = replace(cursor, after=cursor.after[: around.place])  # below it no line is compared
    boundary = known if isinstance(known, SingleLine) else LineBoundary(cursor, known, fence_ends=fence_ends)
    return boundary if around is None else EndMark(boundary, around)


def _heads_a_block(cursor: CursorText) -> bool:
    """Whether the line opens a block behind the cursor that the file fills already."""
    below = cursor.next_line
    opens = cursor.line_after.rstrip().endswith((":", "{"))
    return opens and below is not None and indentation(below) > indentation(cursor.line_before)


def _rules(cursor: CursorText) -> SuiteRules | BlockRules:
    row = SYNTAX_ROWS.get(cursor.language.name)
    if row is not None:
        try:
            return SuiteRules(cursor, row)
        except ParseLimit:
            pass  # brackets and indentation need no parser
    return BlockRules(cursor)
