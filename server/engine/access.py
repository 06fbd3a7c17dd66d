"""Who may speak to an engine that listens on loopback: the holder of its token, and no web page."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.engine.app import error_response


class LoopbackAccess:
    """ASGI layer that checks Host, Origin and bearer token before anything else.

    Host: a page that rebinds its own name to 127.0.0.1 sends that name. Origin: only browsers send it, and
    no page has business here.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Headers(scope=scope))
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        if headers.get("host") not in self._hosts:
            return error_response(403, "this host name is not served", "forbidden")
        if "origin" in headers:
            return error_response(403, "web pages are not served", "forbidden")
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
            return error_response(401, "the token is missing or wrong", "unauthorized")
        return None
