"""An editor for tests: a client that drives a real server process over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeGuard

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from server.profiles import Profile

SERVER = [sys.executable, "-P", "-m", "server", "lsp", "--stdio"]
URI = "file:///work/a.py"
TRIES = 1000  # of 10 ms


class Editor:
    """A client that remembers what the server told it."""

    def __init__(self) -> None:
        self.name = "test-editor"
        self.client = LanguageClient("test-editor", "1")
        self.statuses: list[Any] = []
        self.asks_for_status = True
        self.copilots_statuses: list[Any] = []
        self.messages: list[str] = []
        self.initialized: types.InitializeResult | None = None
        self.has_configuration = False
        self.progress: list[Any] = []  # params of each $/progress
        self.client.feature("dflash/status")(lambda params: self.statuses.append(params))  # noqa: PLW0108 (pygls reads its signature)
        self.client.feature("didChangeStatus")(lambda params: self.copilots_statuses.append(params))  # noqa: PLW0108
        self.client.feature(types.PROGRESS)(lambda params: self.progress.append(params))  # noqa: PLW0108
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self.messages.append(params.message))

    async def start(self, options: object, encodings: list[str] | None, command: list[str]) -> None:
        await self.client.start_io(*command)
        general = types.GeneralClientCapabilities(
            position_encodings=[types.PositionEncodingKind(each) for each in encodings or []] or None
        )
        self.initialized = await self.client.initialize_async(
            types.InitializeParams(
                capabilities=types.ClientCapabilities(
                    general=general,
                    workspace=types.WorkspaceClientCapabilities(configuration=self.has_configuration or None),
                ),
                process_id=os.getpid(),
                client_info=types.ClientInfo(self.name),
                workspace_folders=[types.WorkspaceFolder("file:///work", "work")],
                initialization_options={"status": True, **options} if self._may_ask(options) else options,
            )
        )
        self.client.initialized(types.InitializedParams())

    def _may_ask(self, options: object) -> TypeGuard[dict[str, object]]:
        return isinstance(options, dict) and self.asks_for_status

    def open(self, text: str, uri: str = URI, language: str = "python") -> None:
        self.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, language, 1, text))
        )

    def change(self, text: str, line: int, start: int, end: int, uri: str = URI) -> None:
        place = types.Range(types.Position(line, start), types.Position(line, end))
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(2, uri),
                [types.TextDocumentContentChangePartial(place, text)],
            )
        )

    async def complete(self, line: int, character: int, uri: str = URI, id: str | None = None) -> Any:
        """The one item that is offered, or None."""
        found = await self.client.protocol.send_request_async(
            types.TEXT_DOCUMENT_INLINE_COMPLETION,
            types.InlineCompletionParams(
                types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic),
                types.TextDocumentIdentifier(uri),
                types.Position(line, character),
            ),
            msg_id=id,
        )
        return None if found is None else found.items[0]

    async def stream(
        self, line: int, character: int, token: str | None = "growth", id: str | None = None, **more: Any
    ) -> Any:
        """The answer to `dflash/inlineCompletion`; growth comes to `progress`."""
        return await self.client.protocol.send_request_async(
            "dflash/inlineCompletion",
            {
                "textDocument": {"uri": URI},
                "position": {"line": line, "character": character},
                "context": {"triggerKind": 2},
                "partialResultToken": token,
                **more,
            },
            msg_id=id,
        )

    async def command(self, name: str, *arguments: Any) -> Any:
        return await self.client.workspace_execute_command_async(
            types.ExecuteCommandParams(name, arguments=list(arguments))
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(TRIES):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"it did not come to that: {self.statuses[-3:]} {self.messages}")

    async def until_state(self, state: str) -> None:
        await self.until(lambda: bool(self.statuses) and self.statuses[-1].state == state)

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self.client._server is not None
        return self.client._server

    async def leave(self) -> int:
        """Shut the server down as an editor should; its exit code."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        return await asyncio.wait_for(self.process.wait(), 20)


@asynccontextmanager
async def editor(
    options: object,
    encodings: list[str] | None = None,
    command: list[str] | None = None,
    prepare: Callable[[Editor], None] | None = None,
    asks_for_status: bool = True,
) -> AsyncIterator[Editor]:
    """A running editor. `prepare` may add features to it, which then can be asked for its configuration."""
    running = Editor()
    running.asks_for_status = asks_for_status
    if prepare is not None:
        prepare(running)
        running.has_configuration = True
    await running.start(options, encodings, command or SERVER)
    try:
        yield running
    finally:
        if running.process.returncode is None:
            await running.leave()
        await running.client.stop()


def options(profile: Profile, **more: object) -> dict[str, object]:
    return {"profile": str(profile.file), **more}
