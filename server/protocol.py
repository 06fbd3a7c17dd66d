"""The protocol that our server speaks: JSON-RPC's and LSP's rules for a session, and the types of our own requests."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import attrs
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from server.text_sync import TextSyncProtocol

LOG = logging.getLogger(__name__)
STREAM = "dflash/inlineCompletion"


@attrs.define
class StreamedCompletionParams:
    """As of `textDocument/inlineCompletion`, with more that a client can tell.

    partialResultToken: under which growth is told; None for none. selection: what is selected in the editor.
    """

    textDocument: types.TextDocumentIdentifier
    position: types.Position
    context: types.InlineCompletionContext | None = None
    partialResultToken: Any = None  # a string or an integer
    selection: types.Range | None = None


@attrs.define
class StreamedCompletionRequest:
    id: Any
    params: StreamedCompletionParams
    method: str = STREAM
    jsonrpc: str = "2.0"


class DflashProtocol(TextSyncProtocol):
    """pygls leaves requests outside a session unanswered or serves them; LSP has an error for each."""

    _has_begun = False
    _is_ending = False  # a shutdown was asked for
    _exit: Any = None  # what came while the shutdown was still under way

    def get_message_type(self, method: str) -> Any:  # type: ignore[override]
        return StreamedCompletionRequest if method == STREAM else super().get_message_type(method)

    def receive(self, body: bytes) -> bool:
        """Handle one message; False when it is no JSON. Nothing that a client sends ends the session."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            return False
        if not isinstance(data, dict) or data.get("jsonrpc") != self.VERSION:
            id = data.get("id") if isinstance(data, dict) else None
            self._refuse(types.ErrorCodes.InvalidRequest, "not a message of JSON-RPC 2.0", id)
            return True
        try:
            self.handle_message(self.structure_message(data))
        except JsonRpcException as error:
            # It was answered if it was a request; the error's own words may hold the user's text.
            LOG.error("a message from the client cannot be read: %s", type(error).__name__)
        return True

    def refuse(self, reason: str) -> None:
        """What came is no message; JSON-RPC has an answer for that as well."""
        self._refuse(types.ErrorCodes.ParseError, reason)

    def _refuse(self, code: types.ErrorCodes, reason: str, id: Any = None) -> None:
        LOG.warning("%s", reason)
        error = {"code": code.value, "message": reason}
        self._send_data({"jsonrpc": self.VERSION, "id": id if isinstance(id, int | str) else None, "error": error})

    def structure_message(self, data: Any) -> Any:
        if isinstance(data, dict) and "method" in data and self.get_message_type(data["method"]) is None:
            data.setdefault("params", None)  # optional in JSON-RPC, but not for pygls
        return super().structure_message(data)

    def handle_message(self, message: Any) -> None:
        method, id = getattr(message, "method", None), getattr(message, "id", None)
        self._has_begun = self._has_begun or method == types.INITIALIZE
        if method == types.EXIT and self._is_ending and not self._shutdown:
            self._exit = message
        elif method is None or (self._has_begun and not self._is_ending) or method == types.EXIT:
            self._is_ending = self._is_ending or method == types.SHUTDOWN
            super().handle_message(message)
        elif id is not None:
            code, words = _REFUSED[self._has_begun]
            self._send_response(id, error=types.ResponseError(code, words))

    def _execute_handler(self, msg_id: Any, *args: Any, **more: Any) -> None:
        """pygls 2.1 forgets the future of a request once it is answered, but never that of a notification."""
        super()._execute_handler(msg_id, *args, **more)
        future, loop = self._request_futures.get(msg_id), asyncio.get_running_loop()
        if future is not None:
            # A turn later: a shutdown cancels all of them, one by one.
            future.add_done_callback(lambda done: loop.call_soon(self._request_futures.pop, msg_id, None))

    def _send_response(self, msg_id: Any, result: Any = None, error: types.ResponseError | None = None) -> None:
        super()._send_response(msg_id, result, error)
        if self._shutdown and self._exit is not None:
            super().handle_message(self._exit)


# A request outside a session, by whether it comes after it.
_REFUSED = {
    False: (types.ErrorCodes.ServerNotInitialized, "the server was not initialized yet"),
    True: (types.ErrorCodes.InvalidRequest, "the server was told to shut down"),
}
