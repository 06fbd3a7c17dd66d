"""Whether a completion is offered at a place, whether of one line or more, and why: never silence without a reason.

A completion that the user asked for is always offered. Otherwise none is where hardly one is accepted; what
is refused here is little, for users take silence for a fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from server.completion.boundaries.boundary import CursorText, indentation
from server.context.languages import Language
from server.documents.document import Place
from server.documents.edits import Edit

# Why nothing is offered where text was just taken away: also nothing that was shown before.
TAKEN_BACK = ("after a deletion", "after an undo")
MOST_ON_THE_RIGHT = 60  # characters right of the cursor that are more than closers
_ONLY_CLOSERS = re.compile(r"[\s)\]}>\"'`]*[:;,{]?\s*")
_WORD_END, _WORD_START = re.compile(r"\w$"), re.compile(r"\w")
# A whole statement that nothing can be added to on its line.
_FINISHED_KEYWORD = re.compile(r"\s*(?:pass|break|continue)\s*")
_KEYWORD_LANGUAGES = frozenset({"python"})
_SCRIPTS = frozenset({"javascript", "javascriptreact", "typescript", "typescriptreact"})
_SEMICOLON_LANGUAGES = _SCRIPTS | {"rust", "java", "c", "cpp", "csharp", "php", "css", "scss", "sql"}
# Elsewhere an apostrophe may open no string: a lifetime, a character, a word of prose.
_APOSTROPHE_LANGUAGES = _SCRIPTS | {"python", "ruby", "php", "lua", "shellscript"}

Inside = Literal["", "string", "comment"]


@dataclass(frozen=True)
class Offer:
    """reason: why nothing is offered, "" when something is. single_line: why only one line is, "" when more may be."""

    reason: str = ""
    single_line: str = ""


@dataclass(frozen=True)
class Situation:
    """What is known of a request beside the text.

    explicit: the user asked for it. selected: text is selected. last_edit: of the document.
    inside: a string or a comment of one line that the cursor is inside of.
    """

    explicit: bool = False
    selected: bool = False
    last_edit: Edit | None = None
    inside: Inside = ""


def offer_at(cursor: CursorText, place: Place, situation: Situation) -> Offer:
    """What is offered at the cursor."""
    single_line = _single_line(cursor, situation)
    if situation.explicit:
        return Offer(single_line=single_line)
    return Offer(_refusal(cursor, place, situation), single_line)


def inside_line(line_before: str, language: Language) -> Inside:
    """What a cursor is inside of by its line alone, for when no tree tells."""
    if language.prose or language.name in ("", "html"):
        return ""
    quotes = "\"'" if language.name in _APOSTROPHE_LANGUAGES else '"'
    quote, place = "", 0
    while place < len(line_before):
        character = line_before[place]
        if quote:
            place += character == "\\"  # what it escapes is skipped as well
            quote = "" if character == quote else quote
        elif character in quotes:
            if line_before.startswith(language.multiline_quotes, place):
                return ""  # of several lines, perhaps
            quote = character
        elif line_before.startswith(language.line_comments, place):
            return "comment"
        place += 1
    return "string" if quote else ""


def _refusal(cursor: CursorText, place: Place, situation: Situation) -> str:
    if situation.selected:
        return "text is selected"
    edit = situation.last_edit
    if edit is not None and edit.end == place:
        if edit.kind == "deletion":
            return TAKEN_BACK[0]
        if edit.kind == "undo":
            return TAKEN_BACK[1]
    before, after = cursor.line_before, cursor.line_after
    if _WORD_END.search(before) and _WORD_START.match(after):
        return "inside a word"
    if not _ONLY_CLOSERS.fullmatch(after) and len(after.strip()) > MOST_ON_THE_RIGHT:
        return "too much text right of the cursor"
    if not after.strip() and _is_finished(before, cursor.language.name):
        return "after a finished statement"
    return ""


def _is_finished(before: str, language: str) -> bool:
    if language in _KEYWORD_LANGUAGES and _FINISHED_KEYWORD.fullmatch(before):
        return True
    # `for (a; ` is not finished, and a line of nothing but `;` says little.
    if language not in _SEMICOLON_LANGUAGES or not before.endswith(";") or len(before.strip()) < 2:
        return False
    return before.count("(") <= before.count(")")


def _single_line(cursor: CursorText, situation: Situation) -> str:
    if situation.inside:
        return f"inside a {situation.inside}"
    if not _ONLY_CLOSERS.fullmatch(cursor.line_after):
        return "text right of the cursor"
    below = cursor.next_line
    if below is not None and not cursor.line_after.strip() and _opens_block(cursor):
        next_is_adjacent = cursor.after.partition("\n")[2].split("\n", 1)[0].strip() != ""
        if next_is_adjacent and indentation(below) > indentation(cursor.line_before):
            return "its block is there already"
    return ""


def _opens_block(cursor: CursorText) -> bool:
    return cursor.line_before.rstrip().endswith(("{", ":", "(", "[")) and not cursor.on_blank_line
