"""The protocol that our server speaks: JSON-RPC's and LSP's rules for a session, and the types of our own requests."""

from __future__ import annotations

from typing import Any

import attrs
from lsprotocol import types

from server.text_sync import TextSyncProtocol

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

    def get_message_type(self, method: str) -> Any:  # type: ignore[override]
        return StreamedCompletionRequest if method == STREAM else super().get_message_type(method)

    def structure_message(self, data: Any) -> Any:
        if isinstance(data, dict) and "method" in data and self.get_message_type(data["method"]) is None:
            data.setdefault("params", None)  # optional in JSON-RPC, but not for pygls
        return super().structure_message(data)

    def handle_message(self, message: Any) -> None:
        method, id = getattr(message, "method", None), getattr(message, "id", None)
        self._has_begun = self._has_begun or method == types.INITIALIZE
        if method is None or (self._has_begun and not self._shutdown) or method == types.EXIT:
            super().handle_message(message)
        elif id is not None:
            code, words = _REFUSED[self._has_begun]
            self._send_response(id, error=types.ResponseError(code, words))


# A request outside a session, by whether it comes after it.
_REFUSED = {
    False: (types.ErrorCodes.ServerNotInitialized, "the server was not initialized yet"),
    True: (types.ErrorCodes.InvalidRequest, "the server was told to shut down"),
}
