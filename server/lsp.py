"""The language server: LSP features and nothing else."""

from __future__ import annotations

import logging
from typing import Any

from lsprotocol import types
from pygls.exceptions import FeatureRequestError
from pygls.lsp.server import LanguageServer

from server import __version__
from server.documents.document import Change
from server.documents.positions import Encoding, Position, Range
from server.settings import read_settings
from server.text_sync import TextSyncProtocol
from server.window import Window

LOG = logging.getLogger(__name__)

ACCEPTED = "dflash.accepted"
RESTART_ENGINE = "dflash.restartEngine"
STATUS = "dflash/status"


class DflashServer(LanguageServer):
    """One server process serves one editor window."""

    def __init__(self) -> None:
        super().__init__("dflash-lsp", __version__, protocol_cls=TextSyncProtocol)
        self.window = Window(self._say_status, self.complain)

    def complain(self, message: str) -> None:
        """Show the user one line."""
        self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, f"dflash-lsp: {message}"))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls would show its errors to the user, and log messages with the user's text in them."""
        if source is not FeatureRequestError:
            LOG.error("a message from the client failed: %s", type(error).__name__)

    @property
    def ended_well(self) -> bool:
        """Whether the client asked for a shutdown before it left."""
        return self.protocol._shutdown

    def _say_status(self, status: dict[str, object]) -> None:
        self.protocol.notify(STATUS, status)


def create_server() -> DflashServer:
    """A server with all features; `start_io()` runs it."""
    server = DflashServer()
    window = server.window
    problems: list[str] = []

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        window.settings, found = read_settings(params.initialization_options)
        problems.extend(found)
        window.documents.encoding = Encoding(server.workspace.position_encoding)
        window.folders = [folder.uri for folder in params.workspace_folders or []] or [
            uri for uri in [params.root_uri] if uri
        ]

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        if problems:
            server.complain(f"settings: {'; '.join(problems)}")
        await window.start()

    @server.feature(types.SHUTDOWN)
    async def shutdown(params: None) -> None:
        await window.aclose()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        opened = params.text_document
        window.documents.open(opened.uri, opened.text, opened.language_id, opened.version)
        window.opened(opened.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        changed = params.text_document
        window.documents.change(changed.uri, map(_change, params.content_changes), changed.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        window.documents.close(params.text_document.uri)
        window.closed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        window.saved(params.text_document.uri)

    # Without options pygls does not advertise the feature.
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
        uri = params.text_document.uri
        explicit = params.context.trigger_kind != types.InlineCompletionTriggerKind.Automatic
        result = await window.complete(uri, _position(params.position), explicit=explicit)
        if result is None:
            return None
        accepted = types.Command("Accepted", ACCEPTED, arguments=[uri, len(result.text)])
        place = types.Range(_lsp(result.range.start), _lsp(result.range.end))
        return types.InlineCompletionList([types.InlineCompletionItem(result.text, range=place, command=accepted)])

    @server.command(ACCEPTED)
    def accepted(*arguments: Any) -> None:
        window.accepted()

    @server.command(RESTART_ENGINE)
    async def restart_engine(*arguments: Any) -> None:
        await window.restart_engine()

    _add_copilot_features(server)
    return server


def _add_copilot_features(server: DflashServer) -> None:
    """What clients made for Copilot's server ask for; nothing here needs a sign-in."""

    @server.feature("textDocument/didFocus")
    @server.feature("textDocument/didShowCompletion")
    @server.feature("textDocument/didPartiallyAcceptCompletion")
    def noted(params: Any) -> None:
        pass

    @server.feature("checkStatus")
    def check_status(params: Any) -> dict[str, str]:
        return {"status": "OK"}

    @server.feature("signIn")
    def sign_in(params: Any) -> dict[str, str]:
        return {"status": "AlreadySignedIn"}


def _change(change: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(change, types.TextDocumentContentChangePartial):
        return Change(change.text, Range(_position(change.range.start), _position(change.range.end)))
    return Change(change.text)


def _position(position: types.Position) -> Position:
    return Position(position.line, position.character)


def _lsp(position: Position) -> types.Position:
    return types.Position(position.line, position.character)
