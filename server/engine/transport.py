"""How bytes reach an engine: its socket or its URL, TLS with the system's trust store, the token, one proxy or none.

The environment is not asked for a proxy, since the user's text would go there; one is named in the profile.
Redirects are not followed: an engine is where the profile says.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
import truststore

from server.engine.protocol import Endpoint, EngineError
from server.profiles.loading import keeps_a_token

CONNECT_S = 2.0
SHORT_S = 5.0  # health, models, metrics
# A window has few requests at once; an idle connection is kept for the next key.
LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=8, keepalive_expiry=30.0)


class _Transport(httpx.AsyncHTTPTransport):
    """The library's, whose answers are closed to the end whatever happens to who reads them."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _ClosedToTheEnd(response.stream)
        return response


class _ClosedToTheEnd(httpx.AsyncByteStream):
    """An answer that a cancelled reader cannot leave half closed.

    A task that is cancelled while httpcore closes its answer leaves the connection in the pool, in use for ever
    (httpcore shields itself from anyio's cancellation only); after so many of them nobody gets a connection any more.
    """

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream
        self._closing: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._stream.aclose(), name="close an answer")
        await asyncio.shield(self._closing)


def open_connections(endpoint: Endpoint) -> httpx.AsyncClient:
    """Connections to an engine, none of them made yet. Raises EngineError for an address that cannot be one."""
    path = endpoint.address.removeprefix("unix:")
    local = path != endpoint.address
    base = "http://engine" if local else endpoint.address.rstrip("/")
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EngineError(f"not an engine address: {endpoint.address}")
    if endpoint.token is not None and not keeps_a_token(endpoint.address):
        raise EngineError(f"a token is sent over https only, or to this machine: not to {endpoint.address}")
    # Reading the certificate store takes longer than a whole answer; only https needs it.
    verify: ssl.SSLContext | bool = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if parts.scheme == "https" else False
    return httpx.AsyncClient(
        # A remote address is often given with OpenAI's own base path.
        base_url=base.removesuffix("/v1"),
        headers={} if endpoint.token is None else {"Authorization": f"Bearer {endpoint.token}"},
        transport=_Transport(
            uds=path if local else None,
            verify=verify,
            limits=LIMITS,
            proxy=httpx.Proxy(endpoint.proxy) if endpoint.proxy else None,
        ),
        timeout=httpx.Timeout(SHORT_S, connect=CONNECT_S),
        trust_env=False,
    )
