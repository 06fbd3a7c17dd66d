"""What a request sees of its document: taken once, so that later edits cannot change it under way.

Windows are taken from the lines near the cursor, so that a request costs the same in a file of 200 lines
and of 20,000.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from server.completion.boundaries.boundary import CursorText, indentation
from server.completion.spot import Spot
from server.context.injections import injection_at
from server.context.languages import Language, language_for
from server.context.prompt import TextBefore
from server.documents.document import Document, Place
from server.documents.lines import to_line_feeds, without_ending
from server.documents.positions import Encoding

BEFORE_LIMIT = 8_000  # characters; with 16,000 no case and none of 402 Python holes ended elsewhere
AFTER_LIMIT = 4_000
BLOCK = 64  # lines

# Lines at which reading may begin: the head of a definition, hardly ever a line inside a string.
_PYTHON_HEAD = re.compile(r"\s*(?:(?:async\s+def|def|class)\s+\w+\s*[\[(:]|@\w+[\w.]*(?:\(|$))")
_ANY_HEAD = re.compile(r"[A-Za-z@#]")


@dataclass(frozen=True)
class Surroundings:
    """One place in a document with all that a completion needs of it.

    language: of the document; the cursor's own may be another, in a page's script.
    line: the cursor's line without its ending, as it stands in the document. line_ending: what line ends
    in inserted text must be. cursor: the windows around it. before: the window for the prompt.
    single_line: no more than the line is offered.
    """

    uri: str
    path: str
    language: Language
    place: Place
    line: str
    line_ending: str
    encoding: Encoding
    cursor: CursorText
    before: TextBefore
    single_line: bool = False

    @property
    def spot(self) -> Spot:
        """The place as generated texts know it."""
        return Spot(self.uri, self.path, self.cursor, self.before, self.single_line)


def surroundings(document: Document, place: Place, path: str, prompt_limit: int) -> Surroundings:
    """The surroundings of a place. `path`: as the target should see it; `prompt_limit` in characters."""
    language = language_for(document.language, path)
    return Surroundings(
        document.uri,
        path,
        language,
        place,
        without_ending(document.lines[place.line]),
        document.line_ending_near(place.line),
        document.encoding,
        cursor_text(document.lines, place, language),
        text_before(document.lines, place, prompt_limit),
    )


def cursor_text(lines: Sequence[str], place: Place, language: Language) -> CursorText:
    """The windows before and after a place; the one before begins with a definition where it can.

    In a region of another language (a script in a page) they are of that language, and end with the region.
    """
    region = injection_at(lines, place.line, place.column, language)
    if region is not None:
        inner, inner_place = region.lines_of(lines, place)
        return replace(_cursor_text(inner, inner_place, region.language), end_mark=region.end_mark)
    return _cursor_text(lines, place, language)


def _cursor_text(lines: Sequence[str], place: Place, language: Language) -> CursorText:
    line = lines[place.line]
    before_on_line, after_on_line = line[: place.column], line[place.column :]
    above = _lines_above(lines, place.line, BEFORE_LIMIT - len(before_on_line))
    if len(above) < place.line:
        above = _from_head(above, _PYTHON_HEAD if language.name == "python" else _ANY_HEAD)
    before = "".join(above) + before_on_line[-BEFORE_LIMIT:]
    below = _lines_below(lines, place.line, AFTER_LIMIT)
    after = after_on_line[:AFTER_LIMIT] + "".join(below)
    ends = place.line + 1 + len(below) == len(lines)
    return CursorText(to_line_feeds(before), to_line_feeds(after), language, ends)


def text_before(lines: Sequence[str], place: Place, limit: int) -> TextBefore:
    """The last `limit` characters before a place; line ends count as one character whatever they are."""
    first, size = place.line, place.column
    # Many lines at once as long as they cannot be enough: a long prompt takes a thousand.
    while first >= BLOCK and size + (many := sum(map(len, lines[first - BLOCK : first]))) < limit:
        first -= BLOCK
        size += many - "".join(lines[first : first + BLOCK]).count("\r\n")
    while first and size < limit:
        first -= 1
        size += len(lines[first]) - lines[first].endswith("\r\n")
    text = to_line_feeds("".join(lines[first : place.line]) + lines[place.line][: place.column])
    above = "".join(lines[:first])  # counting in one text is ten times faster than line by line
    skipped = len(above) - (above.count("\r\n") if "\r" in above else 0)
    return TextBefore(text[-limit:], skipped + max(0, len(text) - limit), first)


def _lines_above(lines: Sequence[str], line: int, limit: int) -> list[str]:
    first, size = line, 0
    while first and size + len(lines[first - 1]) <= limit:
        first -= 1
        size += len(lines[first])
    return list(lines[first:line])


def _from_head(lines: list[str], head: re.Pattern[str]) -> list[str]:
    """Drop lines before the outermost line that matches."""
    outermost, least = 0, sys.maxsize
    for number, line in enumerate(lines):
        if head.match(line) and (indented := indentation(line)) < least:
            outermost, least = number, indented
            if not indented:
                break
    return lines[outermost:]


def _lines_below(lines: Sequence[str], line: int, limit: int) -> list[str]:
    below, size = [], 0
    for each in lines[line + 1 :]:
        size += len(each)
        if size > limit:
            break
        below.append(each)
    return below
