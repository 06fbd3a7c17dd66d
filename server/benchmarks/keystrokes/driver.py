"""An editor for benches: drives a real server process over stdio, and keeps the same text as it does."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

from server.documents.document import Change, Document, Place
from server.documents.positions import Position, Range
from server.errors import DflashError
from server.lsp import DIGEST
from server.protocol import STREAM

COMMAND = (sys.executable, "-P", "-m", "server", "lsp", "--stdio")
READY_S = 120.0
CANCELLED = -32800


@dataclass
class Asked:
    """One request: what it was answered with and when, in milliseconds from its sending.

    first_ms: until something could be shown, by growth or by the answer; None when nothing was.
    grown: what had been shown by growth. source: where the answer came from, "" for none.
    code: of the error that it was answered with, 0 for none.
    """

    text: str = ""
    grown: str = ""
    source: str = ""
    first_ms: float | None = None
    total_ms: float = 0.0
    code: int = 0


@dataclass(frozen=True)
class Edit:
    """Text in the place of a range, or of everything where there is none."""

    start: Position | None
    end: Position | None
    text: str


class Driver:
    """One window with one document."""

    def __init__(self, uri: str) -> None:
        self._client = LanguageClient("dflash-bench", "1")
        self._statuses: list[Any] = []
        self._growth: dict[str, tuple[float, str]] = {}  # by request: when it was first told, and the last text
        self._sent = 0
        self._uri = uri
        self.document = Document(uri, "")
        self._listen()

    async def start(self, profile: str, more: dict[str, object]) -> None:
        await self._client.start_io(*COMMAND)
        await self._client.initialize_async(
            types.InitializeParams(
                types.ClientCapabilities(),
                initialization_options={"profile": profile, "surface": "stream", "status": True, **more},
            )
        )
        self._client.initialized(types.InitializedParams())
        deadline = time.monotonic() + READY_S
        while not self._statuses or self._statuses[-1].state not in ("ready", "degraded"):
            if time.monotonic() > deadline or (self._statuses and self._statuses[-1].state == "failed"):
                reason = self._statuses[-1].reason if self._statuses else "no status"
                raise DflashError(f"the server did not become ready: {reason}")
            await asyncio.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._client._server is not None
        return self._client._server.pid

    def open(self, text: str, language: str) -> None:
        self.document = Document(self._uri, text, language=language)
        self._client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(self._uri, language, 0, text))
        )

    def edit(self, start: Position, end: Position, text: str) -> None:
        """Replace a range, here and in the server."""
        self.document.apply([Change(text, Range(start, end))])
        self.tell([Edit(start, end, text)])

    def tell(self, edits: Sequence[Edit]) -> None:
        """Tell the server of edits, in one message, each of the text that the one before left."""
        self.document.version = (self.document.version or 0) + 1
        self._client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(self.document.version, self._uri),
                [_change(each) for each in edits],
            )
        )

    def type(self, place: Place, text: str) -> Place:
        """Put text at a place; returns the place behind it."""
        position = self.document.position(place)
        self.edit(position, position, text)
        *above, last = text.split("\n")
        return Place(place.line + len(above), len(last) + (0 if above else place.column))

    def ask(self, place: Place) -> tuple[str, asyncio.Task[Asked]]:
        """Send a request; returns its id and what will be its answer."""
        return self.ask_at(self.document.position(place))

    def ask_at(self, position: Position) -> tuple[str, asyncio.Task[Asked]]:
        """The same for who keeps the text elsewhere."""
        self._sent += 1
        id, begun = f"request-{self._sent}", time.perf_counter()
        params = {
            "textDocument": {"uri": self._uri},
            "position": {"line": position.line, "character": position.character},
            "context": {"triggerKind": 2},
            "partialResultToken": id,
        }
        return id, asyncio.ensure_future(self._answer(id, begun, self._send(STREAM, params, id)))

    async def asked(self, place: Place) -> Asked:
        """Ask and wait for the answer."""
        return await self.ask(place)[1]

    async def asked_without_work(self) -> float:
        """Milliseconds until the answer to a request that the server answers with a constant."""
        begun = time.perf_counter()
        await self._send("checkStatus", {})
        return (time.perf_counter() - begun) * 1000

    def cancel(self, id: str) -> None:
        self._client.cancel_request(types.CancelParams(id))

    def command(self, name: str, *arguments: Any) -> asyncio.Future[Any]:
        """Send a command; returns what will be its answer."""
        params = types.ExecuteCommandParams(name, arguments=list(arguments))
        return self._send(types.WORKSPACE_EXECUTE_COMMAND, params)

    def digest(self) -> asyncio.Future[Any]:
        """SHA-256 of the text that the server has of the document by now."""
        return self.command(DIGEST, self._uri)

    async def accepted(self) -> None:
        await self.command("dflash.accepted", self._uri)

    async def leave(self) -> None:
        if self._client._server is not None and self._client._server.returncode is None:
            await self._client.shutdown_async(None)
            self._client.exit(None)
            await self._client._server.wait()
        await self._client.stop()

    def _send(self, method: str, params: object, id: str | None = None) -> asyncio.Future[Any]:
        """Send a request now, and not only when somebody waits for its answer."""
        return asyncio.wrap_future(self._client.protocol.send_request(method, params, msg_id=id))

    async def _answer(self, id: str, begun: float, answer: asyncio.Future[Any]) -> Asked:
        asked = Asked()
        try:
            found = await answer
        except JsonRpcException as error:
            found, asked.code = None, error.code
        asked.total_ms = (time.perf_counter() - begun) * 1000
        if found is not None:
            item = found.items[0]
            asked.text, asked.source = item.insertText, item.command.arguments[1]
            asked.first_ms = asked.total_ms
        if id in self._growth:
            first, asked.grown = self._growth.pop(id)
            asked.first_ms = (first - begun) * 1000
        return asked

    def _listen(self) -> None:
        @self._client.feature("dflash/status")
        def status(params: Any) -> None:
            self._statuses.append(params)

        @self._client.feature(types.PROGRESS)
        def progress(params: types.ProgressParams) -> None:
            id = str(params.token)
            first, _ = self._growth.get(id, (time.perf_counter(), ""))
            value: Any = params.value
            self._growth[id] = first, value["items"][0]["insertText"]


def _change(edit: Edit) -> types.TextDocumentContentChangeEvent:
    if edit.start is None or edit.end is None:
        return types.TextDocumentContentChangeWholeDocument(edit.text)
    place = types.Range(_lsp_position(edit.start), _lsp_position(edit.end))
    return types.TextDocumentContentChangePartial(place, edit.text)


def _lsp_position(position: Position) -> types.Position:
    return types.Position(position.line, position.character)


@asynccontextmanager
async def driver(profile: str, uri: str = "file:///bench/a.py", **more: object) -> AsyncIterator[Driver]:
    """A window with a running server; it is shut down afterwards."""
    running = Driver(uri)
    try:
        await running.start(profile, more)
        yield running
    finally:
        await running.leave()
