"""What clients made for Copilot's server ask for and tell; nothing here needs a sign-in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types

if TYPE_CHECKING:
    from server.lsp import DflashServer

STATUS = "didChangeStatus"

# States of ours in the words of `didChangeStatus`.
_KINDS = {"ready": "Normal", "degraded": "Warning", "loading": "Normal", "failed": "Error"}


def is_made_for_copilot(params: types.InitializeParams) -> bool:
    """Whether a client speaks as with Copilot's server, which it tells by naming its editor."""
    return isinstance(params.initialization_options, dict) and "editorInfo" in params.initialization_options


def add_copilot_features(server: DflashServer) -> None:
    """Register them; the methods are Copilot's own."""
    window = server.window

    @server.feature("textDocument/didFocus")
    def did_focus(params: Any) -> None:
        uri = getattr(getattr(params, "textDocument", None), "uri", None)
        if isinstance(uri, str):
            window.focused(uri)

    @server.feature("textDocument/didShowCompletion")
    def did_show(params: Any) -> None:
        pass  # it is counted when it is answered, which works for every client

    @server.feature("textDocument/didPartiallyAcceptCompletion")
    def did_partially_accept(params: Any) -> None:
        uri, length = _uri_of_item(params), getattr(params, "acceptedLength", None)
        if uri is not None and isinstance(length, int):
            window.partly_accepted(uri, length)

    @server.feature("checkStatus")
    def check_status(params: Any) -> dict[str, str]:
        return {"status": "OK"}

    @server.feature("signIn")
    def sign_in(params: Any) -> dict[str, str]:
        return {"status": "AlreadySignedIn"}


def status_params(status: dict[str, object]) -> dict[str, object]:
    """A status of ours as the params of `didChangeStatus`."""
    state = str(status["state"])
    return {"busy": state == "loading", "kind": _KINDS[state], "message": status["reason"]}


def _uri_of_item(params: Any) -> str | None:
    """The document that an item of ours was for: the first argument of its command."""
    arguments = getattr(getattr(getattr(params, "item", None), "command", None), "arguments", None)
    first = arguments[0] if isinstance(arguments, list) and arguments else None
    return first if isinstance(first, str) else None
