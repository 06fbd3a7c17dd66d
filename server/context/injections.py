"""Languages inside a language: scripts and styles of a page, and code in fences of Markdown.

A place inside one is completed by the rules of what it is in, and sees no further than its ends. Regions are told
by their opening and closing lines or tags, which are there before a page parses.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from server.context.grammars import ParseLimit, parse_lines, parser_for
from server.context.languages import Language, language_for
from server.context.tags import Definition, definitions
from server.documents.document import Place

if TYPE_CHECKING:
    from tree_sitter import Tree

PARSE_LIMIT_S = 0.2  # of one region

# A comment, as far as it goes on its line, or a tag with the values of its attributes, which may hold anything.
_PIECE = re.compile(
    r"<!--(?:.*?(?P<closed>-->))?"
    r"|<(?P<end>/?)(?P<name>[A-Za-z][^\s/<>]*+)(?P<attributes>(?:[^\"'<>]++|\"[^\"]*+\"|'[^']*+')*+)>"
)
_BEGUN = re.compile(r"<(?:script|style)(?:\s[^<>]*)?$", re.IGNORECASE | re.ASCII)  # a tag that goes on below
_REGIONS = ("script", "style")
LONGEST_TAG = 20  # lines
_TYPE = re.compile(r"\b(?:type|lang)\s*=\s*[\"']?([\w./+-]+)", re.IGNORECASE)
_FENCE = re.compile(r"(?P<blanks>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<name>[\w+#-]*)")
_TYPES = {
    "json": "json",
    "ts": "typescript",
    "typescript": "typescript",
    "tsx": "typescriptreact",
    "jsx": "javascriptreact",
    "babel": "javascriptreact",
    "scss": "scss",
}
_FENCE_NAMES = {
    "py": "python", "js": "javascript", "ts": "typescript", "tsx": "typescriptreact", "jsx": "javascriptreact",
    "sh": "shellscript", "bash": "shellscript", "shell": "shellscript", "rs": "rust", "c++": "cpp", "cs": "csharp",
    "c#": "csharp", "rb": "ruby", "kt": "kotlin", "yml": "yaml",
}  # fmt: skip


@dataclass(frozen=True)
class Injection:
    """A region of another language: from `start` to before `end`, each a row and a column in characters.

    end: None where the document ends before the region does. end_mark: what ends it, in lower case, "" where the
    end of a line does.
    """

    language: Language
    start: tuple[int, int]
    end: tuple[int, int] | None
    end_mark: str = ""

    def lines_of(self, lines: Sequence[str], place: Place | None = None) -> tuple[list[str], Place]:
        """The region's own lines, and where in them a place of the document is."""
        row, column = self.start
        last, length = self.end or (len(lines) - 1, len(lines[-1]))
        own = [*lines[row:last], lines[last][:length]]
        if place is None:
            place = Place(row, column)
        inner = Place(place.line - row, place.column - column if place.line == row else place.column)
        own[0] = own[0][column:]
        return own, inner


def injection_at(lines: Sequence[str], row: int, column: int, language: Language) -> Injection | None:
    """The region of another language that a place is in, if it is in one."""
    if language.name == "html":
        return _in_page(lines, row, column)
    return _in_fence(lines, row) if language.name == "markdown" else None


def injections(lines: Sequence[str], language: Language) -> Iterator[Injection]:
    """All regions of other languages of a page."""
    if language.name != "html":
        return
    opened: _Tag | None = None
    commented = False
    for row, line in enumerate(lines):
        if commented and "-->" in line:
            commented = False
        elif not commented and _may_hold_tag(line):
            for tag in _tags(lines, row):
                if opened is None and not tag.closes:
                    opened = tag
                elif opened is not None and tag.closes and tag.name == opened.name:
                    yield Injection(_language_of(opened), opened.end, tag.start, _end_mark(opened))
                    opened = None
            commented = opened is None and line.rfind("<!--") > line.rfind("-->")


def holds_others(language: Language) -> bool:
    """Whether files of the language define names in regions of others."""
    return language.name == "html"


def all_definitions(tree: Tree, lines: Sequence[str], language: Language) -> list[Definition]:
    """The definitions of a file and of the regions of other languages in it, in their order."""
    found = definitions(tree, lines, language.syntax) if language.syntax is not None else []
    for region in injections(lines, language):
        if region.language.syntax is None:
            continue
        own, _ = region.lines_of(lines)
        with contextlib.suppress(ParseLimit):
            inner = parse_lines(parser_for(region.language.syntax), own, PARSE_LIMIT_S)
            of_region = definitions(inner, own, region.language.syntax)
            found += [replace(each, row=each.row + region.start[0]) for each in of_region]
    return found


@dataclass(frozen=True)
class _Tag:
    """A tag that opens or closes a region; its name in lower case, its places rows and columns."""

    name: str
    closes: bool
    attributes: str
    start: tuple[int, int]
    end: tuple[int, int]


def _tags(lines: Sequence[str], row: int) -> list[_Tag]:
    """The tags of regions that begin on a row, but for those in attributes and comments on it."""
    found, line = [], lines[row]
    commented = False
    for piece in _PIECE.finditer(line):
        if piece["name"] is None:
            commented = piece["closed"] is None
        elif piece["name"].lower() in _REGIONS and (piece["end"] or not commented):
            place = (row, piece.start()), (row, piece.end())
            found.append(_Tag(piece["name"].lower(), bool(piece["end"]), piece["attributes"], *place))
    begun = _BEGUN.search(line)
    if begun is not None and not commented:
        attributes = begun[0]
        for below in range(row + 1, min(len(lines), row + LONGEST_TAG)):
            inner, closed, _ = lines[below].partition(">")
            attributes += inner
            if closed:
                name = attributes[1:].split()[0].lower()
                found.append(_Tag(name, False, attributes, (row, begun.start()), (below, len(inner) + 1)))
                break
    return found


def _in_page(lines: Sequence[str], row: int, column: int) -> Injection | None:
    opened = None
    for above in range(row, -1, -1):
        tags = [tag for tag in _tags(lines, above) if tag.end <= (row, column)] if _may_hold_tag(lines[above]) else []
        tags = [tag for tag in tags if tag.closes or not _in_comment(lines, tag.start)]
        if tags:
            opened = tags[-1]
            break
    if opened is None or opened.closes:
        return None
    closing = re.compile(rf"</{opened.name}(?=[\s/>]|$)", re.IGNORECASE | re.ASCII)
    end = None
    for below in range(row, len(lines)):
        line = lines[below]
        found = closing.search(line, column if below == row else 0) if _may_hold_tag(line) else None
        if found is not None:
            end = (below, found.start())
            break
    return Injection(_language_of(opened), opened.end, end, _end_mark(opened))


def _in_comment(lines: Sequence[str], place: tuple[int, int]) -> bool:
    """Whether a comment that began on an earlier line goes on at a place."""
    row, column = place
    if "-->" in lines[row][:column]:
        return False
    for above in range(row - 1, -1, -1):
        line = lines[above]
        if "--" in line and ("<!--" in line or "-->" in line):
            return line.rfind("<!--") > line.rfind("-->")
    return False


def _may_hold_tag(line: str) -> bool:
    """Whether it is worth looking for a tag: a page has many lines, and each is looked at for each request."""
    return "<s" in line or "</s" in line or "<S" in line or "</S" in line


def _end_mark(opened: _Tag) -> str:
    return f"</{opened.name}"


def _language_of(opened: _Tag) -> Language:
    if opened.name == "style":
        wanted = _TYPE.search(opened.attributes)
        return language_for("scss" if wanted is not None and wanted[1].lower() == "scss" else "css")
    for wanted in _TYPE.findall(opened.attributes):
        kind = wanted.lower().rpartition("/")[2].rpartition("+")[2].removeprefix("x-")
        if "template" in kind or kind in ("html", "handlebars"):
            return language_for("html")
        if kind in _TYPES:
            return language_for(_TYPES[kind])
    return language_for("javascript")


def _in_fence(lines: Sequence[str], row: int) -> Injection | None:
    """The fenced code that a row is in; fences come in pairs from the document's beginning on."""
    opened, first = None, 0
    for number in range(row):
        line = lines[number]
        found = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if found is None:
            continue
        if opened is None:
            opened, first = found, number
        elif found["fence"].startswith(opened["fence"]) and not found["name"]:
            opened = None
    if opened is None:
        return None
    name = opened["name"].lower()
    language = language_for(_FENCE_NAMES.get(name, name))
    if language.prose or not language.name:
        return None
    end = None
    for below in range(row, len(lines)):
        found = _FENCE.match(lines[below])
        if found is not None and found["fence"].startswith(opened["fence"]) and not found["name"]:
            if below == row:
                return None  # on the closing fence itself
            end = (below, 0)
            break
    return Injection(language, (first + 1, 0), end)
