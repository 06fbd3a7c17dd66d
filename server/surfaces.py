"""The three ways in which a completion is offered; a client is offered exactly one of them.

Two at once would ask for the same place twice, and each would supersede the other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from server.documents.document import Place
from server.documents.positions import Position, Range
from server.protocol import STREAM, StreamedCompletionParams
from server.settings import Surface
from server.streaming import GrowthStream

if TYPE_CHECKING:
    from server.completion.request import Growth
    from server.completion.result import CompletionResult
    from server.lsp import DflashServer

ACCEPTED = "dflash.accepted"
MENU_TRIGGERS = (".", "(", "[", "{", "=", ":", ",", " ")
MENU_LABEL_LENGTH = 60
_WORD_BEFORE = re.compile(r"\w*\Z")


def chosen_surface(wanted: Surface | None, params: types.InitializeParams) -> Surface:
    """What the user's settings name, else what fits to what the client says of itself."""
    if wanted is not None:
        return wanted
    declared = params.capabilities.text_document
    made_for_inline = isinstance(params.initialization_options, dict) and "editorInfo" in params.initialization_options
    if declared is None or declared.inline_completion is not None or declared.completion is None or made_for_inline:
        return "inline"
    return "menu"


def add_surface(server: DflashServer, surface: Surface) -> None:
    """Register, and so advertise, one surface."""
    {"inline": _add_inline, "stream": _add_stream, "menu": _add_menu}[surface](server)


def _add_inline(server: DflashServer) -> None:
    # Without options pygls does not advertise the feature.
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        uri = params.text_document.uri
        results = await server.window.complete(uri, position_of(params.position), invoked=_is_invoked(params.context))
        return _inline_list(uri, results)


def _add_stream(server: DflashServer) -> None:
    @server.feature(STREAM)
    async def streamed_completion(params: StreamedCompletionParams) -> types.InlineCompletionList | None:
        uri, token = params.textDocument.uri, params.partialResultToken

        def tell(growth: Growth) -> None:
            insertion = growth.insertion
            item = types.InlineCompletionItem(insertion.text, range=_lsp_range(insertion.range))
            value = {"items": [server.protocol._converter.unstructure(item)]}
            server.protocol.notify(types.PROGRESS, types.ProgressParams(token, value))

        stream = GrowthStream(tell)
        try:
            results = await server.window.complete(
                uri,
                position_of(params.position),
                invoked=_is_invoked(params.context),
                selected=params.selection is not None and params.selection.start != params.selection.end,
                on_growth=None if token is None else stream.grow,
            )
        finally:
            stream.end()
        return _inline_list(uri, results)


def _add_menu(server: DflashServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=MENU_TRIGGERS))
    async def completion(params: types.CompletionParams) -> types.CompletionList:
        uri = params.text_document.uri
        results = await server.window.complete(uri, position_of(params.position))
        document = server.window.documents.get(uri)
        if not results or document is None:
            return types.CompletionList(is_incomplete=True, items=[])
        place = document.place(position_of(params.position))
        found = _WORD_BEFORE.search(document.lines[place.line][: place.column])
        word = found[0] if found is not None else ""
        # Incomplete: the next key must ask again, since no filter of the client's knows what fits then.
        start = document.position(Place(place.line, place.column - len(word)))
        return types.CompletionList(is_incomplete=True, items=[_menu_item(uri, start, word, results[0])])


def _menu_item(uri: str, start: Position, word: str, result: CompletionResult) -> types.CompletionItem:
    """One item with all lines. It begins with the word at the cursor, by which clients filter, at `start`."""
    first_line = (word + result.text).strip().partition("\n")[0].rstrip("\r")
    return types.CompletionItem(
        label=first_line[:MENU_LABEL_LENGTH],
        kind=types.CompletionItemKind.Snippet,
        detail="DFlash",
        documentation=word + result.text,
        sort_text="\x01",
        filter_text=word or first_line,
        preselect=True,
        insert_text_format=types.InsertTextFormat.PlainText,
        insert_text_mode=types.InsertTextMode.AsIs,
        text_edit=types.TextEdit(_lsp_range(Range(start, result.range.end)), word + result.text),
        command=_accepted(uri, result),
    )


def _inline_list(uri: str, results: list[CompletionResult]) -> types.InlineCompletionList | None:
    if not results:
        return None
    return types.InlineCompletionList(
        [
            types.InlineCompletionItem(result.text, range=_lsp_range(result.range), command=_accepted(uri, result))
            for result in results
        ]
    )


def _accepted(uri: str, result: CompletionResult) -> types.Command:
    return types.Command("Accepted", ACCEPTED, arguments=[uri, result.stats.source])


def _is_invoked(context: Any) -> bool:
    return context is not None and context.trigger_kind == types.InlineCompletionTriggerKind.Invoked


def position_of(position: types.Position) -> Position:
    return Position(position.line, position.character)


def _lsp_range(place: Range) -> types.Range:
    start, end = place.start, place.end
    return types.Range(types.Position(start.line, start.character), types.Position(end.line, end.character))
