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

_TAG = re.compile(r"<(?P<end>/?)(?P<name>script|style)\b(?P<attributes>[^>]*)>", re.IGNORECASE)
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
    opened: re.Match[str] | None = None
    start = (0, 0)
    for row, line in enumerate(lines):
        for tag in _TAG.finditer(line) if _may_hold_tag(line) else ():
            if opened is None and not tag["end"]:
                opened, start = tag, (row, tag.end())
            elif opened is not None and tag["end"] and tag["name"].lower() == opened["name"].lower():
                yield Injection(_language_of(opened), start, (row, tag.start()), _end_mark(opened))
                opened = None


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


def _in_page(lines: Sequence[str], row: int, column: int) -> Injection | None:
    opened = None
    for above in range(row, -1, -1):
        line = lines[above][:column] if above == row else lines[above]
        tags = list(_TAG.finditer(line)) if _may_hold_tag(line) else []
        if tags:
            opened = tags[-1]
            break
    if opened is None or opened["end"]:
        return None
    closing = re.compile(rf"</{opened['name']}\b", re.IGNORECASE)
    end = None
    for below in range(row, len(lines)):
        line = lines[below]
        found = closing.search(line, column if below == row else 0) if _may_hold_tag(line) else None
        if found is not None:
            end = (below, found.start())
            break
    return Injection(_language_of(opened), (above, opened.end()), end, _end_mark(opened))


def _may_hold_tag(line: str) -> bool:
    """Whether it is worth looking for a tag: a page has many lines, and each is looked at for each request."""
    return "<s" in line or "</s" in line or "<S" in line or "</S" in line


def _end_mark(opened: re.Match[str]) -> str:
    return f"</{opened['name'].lower()}"


def _language_of(opened: re.Match[str]) -> Language:
    if opened["name"].lower() == "style":
        wanted = _TYPE.search(opened["attributes"])
        return language_for("scss" if wanted is not None and wanted[1].lower() == "scss" else "css")
    wanted = _TYPE.search(opened["attributes"])
    kind = wanted[1].lower().rpartition("/")[2].rpartition("+")[2] if wanted is not None else ""
    if "template" in kind or kind in ("html", "handlebars"):
        return language_for("html")
    return language_for(_TYPES.get(kind.removeprefix("x-"), "javascript"))


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
