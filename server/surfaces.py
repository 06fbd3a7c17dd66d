"""The three ways in which a completion is offered; a client is offered exactly one of them.

Two at once would ask for the same place twice, and each would supersede the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from server.copilot import is_made_for_copilot
from server.documents.lines import to_line_feeds
from server.documents.positions import Position, Range
from server.menu import MenuAbilities, MenuSite, menu_item
from server.protocol import STREAM, StreamedCompletionParams
from server.settings import Surface
from server.streaming import GrowthStream

if TYPE_CHECKING:
    from server.completion.request import Growth
    from server.completion.result import CompletionResult
    from server.lsp import DflashServer

ACCEPTED = "dflash.accepted"
MENU_TRIGGERS = (".", "(", "[", "{", "=", ":", ",", " ")


def chosen_surface(wanted: Surface | None, params: types.InitializeParams) -> Surface:
    """What the user's settings name, else what fits to what the client says of itself."""
    if wanted is not None:
        return wanted
    declared = params.capabilities.text_document
    if declared is None or declared.inline_completion is not None or declared.completion is None:
        return "inline"
    return "inline" if is_made_for_copilot(params) else "menu"


def add_surface(server: DflashServer, surface: Surface, params: types.InitializeParams) -> None:
    """Register, and so advertise, one surface, in the form that the client can take."""
    {"inline": _add_inline, "stream": _add_stream, "menu": _add_menu}[surface](server, params)


def _add_inline(server: DflashServer, params: types.InitializeParams) -> None:
    # Neovim tells lines as the file ends them, but inserts a text as lines between `\n` alone: a `\r` would stand in
    # them as a sign. Editors that keep line ends in their text want them as they are; VS Code takes both.
    takes_line_feeds = params.client_info is not None and params.client_info.name == "Neovim"

    # Without options pygls does not advertise the feature.
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        uri = params.text_document.uri
        results = await server.window.complete(uri, position_of(params.position), invoked=_is_invoked(params.context))
        if takes_line_feeds:
            results = [replace(result, text=to_line_feeds(result.text)) for result in results]
        return _inline_list(uri, results)


def _add_stream(server: DflashServer, params: types.InitializeParams) -> None:
    @server.feature(STREAM)
    async def streamed_completion(params: StreamedCompletionParams) -> types.InlineCompletionList | None:
        uri, token = params.textDocument.uri, params.partialResultToken

        def tell(growth: Growth) -> None:
            insertion = growth.insertion
            item = types.InlineCompletionItem(insertion.text, range=_lsp_range(insertion.range))
            value = {"items": [server.protocol._converter.unstructure(item)]}
            server.protocol.notify(types.PROGRESS, types.ProgressParams(token, value))
            server.window.grown(growth)

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


def _add_menu(server: DflashServer, params: types.InitializeParams) -> None:
    abilities = MenuAbilities.of(params)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=MENU_TRIGGERS))
    async def completion(params: types.CompletionParams) -> types.CompletionList:
        uri, position = params.text_document.uri, position_of(params.position)
        document = server.window.documents.get(uri)
        # Before the answer is there: the document may be another one by then.
        site = None if document is None else MenuSite.of(document, document.place(position))
        results = [] if site is None else await server.window.complete(uri, position)
        items = [menu_item(site, each, _accepted(uri, each), abilities) for each in results[:1] if site is not None]
        # Incomplete: the next key must ask again, since no filter of the client's knows what fits then.
        return types.CompletionList(is_incomplete=True, items=items)


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
