"""The language server: LSP features and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from io import RawIOBase
from typing import Any, BinaryIO

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException
from pygls.io_ import StdoutWriter
from pygls.lsp.server import LanguageServer

from server import __version__
from server.copilot import STATUS as COPILOTS_STATUS
from server.copilot import add_copilot_features, is_made_for_copilot, status_params
from server.documents.document import Change
from server.documents.positions import Encoding, Range
from server.notebooks import SYNC, add_notebook_features
from server.paths import config_dir
from server.protocol import DflashProtocol
from server.settings import read_settings, read_user_file
from server.stdio import read_messages
from server.surfaces import ACCEPTED, add_surface, chosen_surface, position_of
from server.window import Window

LOG = logging.getLogger(__name__)

RESTART_ENGINE = "dflash.restartEngine"
SET_PROFILE = "dflash.setProfile"
SNOOZE = "dflash.snooze"
COUNTS = "dflash.counts"
DIGEST = "dflash.digest"
STATUS = "dflash/status"
SNOOZE_MINUTES = 5
SECTION = "dflash"  # of a client's configuration


class DflashServer(LanguageServer):
    """One server process serves one editor window."""

    def __init__(self) -> None:
        super().__init__("dflash-lsp", __version__, notebook_document_sync=SYNC, protocol_cls=DflashProtocol)
        self.window = Window(self._say_status, self.complain)
        self.speaks_as_copilots = False  # to a client that is made for it

    def complain(self, message: str) -> None:
        """Show the user one line."""
        self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, f"dflash-lsp: {message}"))

    def change(
        self,
        changed: types.VersionedTextDocumentIdentifier,
        content: Sequence[types.TextDocumentContentChangeEvent],
    ) -> None:
        """A document, or a notebook's cell, was changed."""
        changes = [_change(change) for change in content]
        self.window.documents.change(changed.uri, changes, changed.version)
        self.window.edited(changed.uri, changes)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls would show its errors to the user, and log messages with the user's text in them."""
        if source is not FeatureRequestError:
            LOG.error("a message from the client failed: %s", type(error).__name__)

    async def serve(self, source: RawIOBase, output: BinaryIO) -> None:
        """Speak with one client until it leaves. `source` must be unbuffered; both are the server's alone."""
        protocol = self.protocol
        assert isinstance(protocol, DflashProtocol)
        protocol.set_writer(StdoutWriter(output))
        await read_messages(protocol, source)

    @property
    def ended_well(self) -> bool:
        """Whether the client asked for a shutdown before it left."""
        return self.protocol._shutdown

    async def read_configuration(self) -> None:
        """Ask a client that can tell for what its configuration switches off and excludes."""
        asked = self.client_capabilities.workspace
        if asked is None or not asked.configuration:
            return
        try:
            found = await self.workspace_configuration_async(
                types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
            )
        except JsonRpcException:
            return
        self.window.configure(found[0] if found else None)

    def _say_status(self, status: dict[str, object]) -> None:
        """Only to who knows what it is: others would tell their users of a message that they do not understand."""
        if self.window.settings.status:
            self.protocol.notify(STATUS, status)
        if self.speaks_as_copilots:
            self.protocol.notify(COPILOTS_STATUS, status_params(status))


def create_server() -> DflashServer:
    """A server with all features; `serve` runs it."""
    server = DflashServer()
    window = server.window
    problems: list[str] = []

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        settings, wrong = read_user_file(config_dir() / "settings.toml")
        settings, found = read_settings(params.initialization_options, settings)
        problems.extend([*wrong, *found])
        window.settings = settings
        server.speaks_as_copilots = is_made_for_copilot(params)
        add_surface(server, chosen_surface(settings.surface, params), params)
        window.documents.encoding = Encoding(server.workspace.position_encoding)
        window.folders = [folder.uri for folder in params.workspace_folders or []] or [
            uri for uri in [params.root_uri] if uri
        ]

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        if problems:
            server.complain(f"settings: {'; '.join(problems)}")
        await server.read_configuration()
        await window.start()

    @server.feature(types.SHUTDOWN)
    async def shutdown(params: None) -> None:
        await window.aclose()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        opened = params.text_document
        window.documents.open(opened.uri, opened.text, opened.language_id, opened.version)
        window.opened(opened.uri)
        window.focused(opened.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        server.change(params.text_document, params.content_changes)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        window.closed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        window.saved(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        await server.read_configuration()

    _add_commands(server)
    add_copilot_features(server)
    add_notebook_features(server)
    return server


def _add_commands(server: DflashServer) -> None:
    window = server.window

    @server.command(ACCEPTED)
    def accepted(*arguments: Any) -> None:
        if arguments and isinstance(arguments[0], str):
            window.accepted(arguments[0])

    @server.command(RESTART_ENGINE)
    async def restart_engine(*arguments: Any) -> None:
        await window.restart_engine()

    @server.command(SET_PROFILE)
    async def set_profile(*arguments: Any) -> None:
        if arguments and isinstance(arguments[0], str):
            await window.set_profile(arguments[0])

    @server.command(SNOOZE)
    def snooze(*arguments: Any) -> None:
        minutes = arguments[0] if arguments else SNOOZE_MINUTES
        if isinstance(minutes, int | float) and not isinstance(minutes, bool):
            window.snooze(60 * minutes)

    @server.command(COUNTS)
    async def counts(*arguments: Any) -> dict[str, dict[str, int]]:
        return await window.all_counts() if arguments and arguments[0] == "all" else window.counts()

    @server.command(DIGEST)
    def digest(*arguments: Any) -> str | None:
        return window.digest(arguments[0]) if arguments and isinstance(arguments[0], str) else None


def _change(change: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(change, types.TextDocumentContentChangePartial):
        return Change(change.text, Range(position_of(change.range.start), position_of(change.range.end)))
    return Change(change.text)
