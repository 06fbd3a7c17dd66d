"""The one item that a completion is in a client's menu: all its lines, in the form that the client can insert."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lsprotocol import types

from server.documents.document import Document, Place
from server.documents.positions import Position

if TYPE_CHECKING:
    from server.completion.result import CompletionResult

LABEL_LENGTH = 60
_WORD_BEFORE = re.compile(r"\w*\Z")
_INDENTATION = re.compile(r"[ \t]*")
_SPECIAL = re.compile(r"[\\$}]")  # in a snippet
# Inserts but the first line of a plain text, and all of a snippet.
_CUTS_PLAIN_TEXT = "Neovim"
# Reads every preview as Markdown, and declares nothing of it.
_READS_MARKDOWN = "helix"


@dataclass(frozen=True)
class MenuAbilities:
    """What a client's menu can do. snippets: whole texts only come through as snippets."""

    snippets: bool = False
    markdown: bool = False

    @classmethod
    def of(cls, params: types.InitializeParams) -> MenuAbilities:
        declared = params.capabilities.text_document
        menu = declared.completion if declared is not None else None
        item = menu.completion_item if menu is not None else None
        if item is None:
            return cls()
        modes = item.insert_text_mode_support.value_set if item.insert_text_mode_support is not None else ()
        client = params.client_info.name if params.client_info is not None else ""
        can_snippets = bool(item.snippet_support) and types.InsertTextMode.AsIs not in modes
        return cls(
            snippets=client == _CUTS_PLAIN_TEXT and can_snippets,
            markdown=client == _READS_MARKDOWN or types.MarkupKind.Markdown in (item.documentation_format or ()),
        )


@dataclass(frozen=True)
class MenuSite:
    """Where an item goes: the word that the cursor is behind, by which clients filter, and where it starts."""

    word: str
    start: Position
    indentation: str  # of the cursor's line
    language: str

    @classmethod
    def of(cls, document: Document, place: Place) -> MenuSite:
        line = document.lines[place.line]
        found, indented = _WORD_BEFORE.search(line[: place.column]), _INDENTATION.match(line)
        word = found[0] if found is not None else ""
        start = document.position(Place(place.line, place.column - len(word)))
        return cls(word, start, indented[0] if indented is not None else "", document.language)


def menu_item(
    site: MenuSite, result: CompletionResult, command: types.Command, abilities: MenuAbilities
) -> types.CompletionItem:
    """The item; its text begins with the site's word and replaces all from there to the end of the result's range."""
    text = site.word + result.text
    first_line = text.strip().partition("\n")[0].rstrip("\r")
    lines = text.count("\n") + 1
    snippet = _snippet(text, site.indentation) if abilities.snippets else None
    return types.CompletionItem(
        label=first_line[:LABEL_LENGTH],
        # No snippet for the eye either: some clients take the kind for the format.
        kind=types.CompletionItemKind.Text,
        detail="DFlash" if lines == 1 else f"DFlash, {lines} lines",
        documentation=_preview(text, site.language) if abilities.markdown else text,
        sort_text="\x01",
        filter_text=site.word or first_line,
        preselect=True,
        insert_text_format=types.InsertTextFormat.PlainText if snippet is None else types.InsertTextFormat.Snippet,
        insert_text_mode=types.InsertTextMode.AsIs if snippet is None else types.InsertTextMode.AdjustIndentation,
        text_edit=types.TextEdit(_range(site.start, result.range.end), text if snippet is None else snippet),
        command=command,
    )


def _snippet(text: str, indentation: str) -> str | None:
    """The text as a snippet, to whose later lines a client adds the indentation; None where that cannot be right."""
    first, *later = text.split("\n")
    if not later or any(line.strip() and not line.startswith(indentation) for line in later):
        return None
    lines = [first, *(line.removeprefix(indentation) for line in later)]
    return _SPECIAL.sub(r"\\\g<0>", "\n".join(lines))


def _preview(text: str, language: str) -> types.MarkupContent:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return types.MarkupContent(types.MarkupKind.Markdown, f"{fence}{language}\n{text}\n{fence}")


def _range(start: Position, end: Position) -> types.Range:
    return types.Range(types.Position(start.line, start.character), types.Position(end.line, end.character))
