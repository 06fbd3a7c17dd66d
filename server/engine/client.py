"""Client of one engine: ours over a Unix socket or loopback, or any OpenAI-compatible one over HTTP(S)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, NoReturn

import httpx

from server.engine.completion_body import write_completion_body
from server.engine.dialects import abort_request, stop_strings, write_request
from server.engine.left_behind import LeftBehind
from server.engine.protocol import (
    BadRequest,
    Chat,
    CompletionChunk,
    CompletionRequest,
    CompletionSummary,
    Endpoint,
    EngineBusy,
    EngineError,
    EngineHealth,
    EngineLoading,
    EngineStalled,
    EngineUnavailable,
)
from server.engine.retry import with_retries
from server.engine.sse import EventParser
from server.engine.tally import BUSY, Tally, TextOf, one_line
from server.engine.transport import CONNECT_S, open_connections

__all__ = [
    "BadRequest",
    "CompletionChunk",
    "CompletionRequest",
    "CompletionStream",
    "CompletionSummary",
    "Endpoint",
    "EngineBusy",
    "EngineClient",
    "EngineError",
    "EngineHealth",
    "EngineLoading",
    "EngineStalled",
    "EngineUnavailable",
]

STALL_S = 15.0  # a stream that says nothing for so long is given up; ours says so while it works
LAST_BYTES_S = 0.2  # to read the end of an answer that is whole, so that its connection can be used again
NO_SUCH_PATH = (404, 405, 501)


class EngineClient:
    """One engine. Belongs to one event loop; close it with `aclose()`.

    retried: how often another engine was asked again. left_behind: what it may still generate for nobody.
    """

    def __init__(self, endpoint: Endpoint, *, stall_s: float = STALL_S) -> None:
        self.endpoint = endpoint
        self.retried = 0
        self.left_behind = LeftBehind()
        self._models: list[str] | None = None
        self._as_chat = endpoint.api == "chat"
        self._http = open_connections(endpoint)
        self._stream_timeout = httpx.Timeout(stall_s, connect=CONNECT_S, pool=CONNECT_S)
        self._aborting: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close all connections; streams that run are cancelled at the engine."""
        if self._aborting:
            await asyncio.wait(self._aborting, timeout=CONNECT_S)
        await self._http.aclose()

    def stream(
        self,
        request: CompletionRequest,
        on_sent: Callable[[], None] = lambda: None,
        text_of: TextOf = lambda ids: "",
    ) -> CompletionStream:
        """A completion: `async with client.stream(request) as stream`, then `async for chunk in stream`.

        Entering sends it. EngineUnavailable, EngineLoading, BadRequest or EngineError say in one line why
        there is no answer. on_sent: called when the engine has the request and is at work on it. text_of: what the
        target's token ids spell, to end the text at a stop token that another engine runs past.
        """
        return CompletionStream(self, request, on_sent, text_of)

    async def health(self) -> EngineHealth:
        """The engine's state. An engine that is not ours is ready when it lists its models."""
        response = await self._get("/health")
        if response.status_code == 200 and self.endpoint.is_ours:
            try:
                return EngineHealth.from_json(response.json())
            except (ValueError, TypeError, AttributeError):
                pass
        target = self.endpoint.model or ", ".join(await self.models())
        return EngineHealth(state="ready", target=target, device="remote", kind="remote")

    async def probe(self) -> None:
        """Whether it completes, asked with one token and no text of the user's. Raises EngineError when not."""
        request = CompletionRequest(prompt="x =", max_tokens=1, chat=Chat("Say x.", "", "\n"))
        async with self.stream(request) as stream:
            async for _ in stream:
                pass

    async def models(self) -> list[str]:
        """Names of the models it serves."""
        response = await self._get("/v1/models")
        if response.status_code != 200:
            await _refuse(response)
        try:
            return [str(model["id"]) for model in response.json()["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"{self.endpoint.address} does not answer like an engine") from error

    async def metrics(self) -> str:
        """Prometheus text."""
        response = await self._get("/metrics")
        if response.status_code != 200:
            await _refuse(response)
        return response.text

    async def cancel(self, request_id: str) -> None:
        """End a running request of an engine of ours before its next round. Harmless when it has ended."""
        await self._change(request_id, {"cancel": True})

    async def set_priority(self, request_id: str, priority: int) -> None:
        """Move a running request in the queue. Harmless when it has ended."""
        await self._change(request_id, {"priority": priority})

    def give_up(self, request_id: str, tokens_to_go: int) -> None:
        """A request to another engine is no longer wanted: its connection is closed, and the engine is told."""
        self.left_behind.left(tokens_to_go)
        abort = abort_request(self.endpoint.dialect, request_id)
        if abort is not None:
            task = asyncio.get_running_loop().create_task(self._abort(*abort), name="abort")
            self._aborting.add(task)
            task.add_done_callback(self._aborting.discard)

    async def _abort(self, path: str, body: dict[str, Any]) -> None:
        try:
            response = await self._http.post(path, json=body)
        except (httpx.HTTPError, RuntimeError):  # RuntimeError: the client was closed meanwhile
            self.left_behind.unheard += 1
        else:
            self.left_behind.unheard += response.status_code != 200

    async def _change(self, request_id: str, change: dict[str, Any]) -> None:
        if not self.endpoint.is_ours:
            return
        try:
            response = await self._http.post(f"/v1/requests/{request_id}", json=change)
        except httpx.HTTPError as error:
            self.unavailable(error)
        if response.status_code not in (200, 404):
            await _refuse(response)

    async def _get(self, path: str) -> httpx.Response:
        try:
            return await self._http.get(path)
        except httpx.HTTPError as error:
            self.unavailable(error)

    async def send(
        self,
        request: CompletionRequest,
        request_id: str,
        running: Callable[[bool], None],
        on_sent: Callable[[], None],
        text_of: TextOf,
    ) -> tuple[httpx.Response, Tally]:
        """Post a completion and wait for the answer's head; the stream closes it.

        running: hears whether another engine may be at work on it, from now on. on_sent: it was sent to the end.
        """
        if self.endpoint.is_ours:
            return await self._post("/v1/completions", write_completion_body(request), on_sent), Tally()

        async def ask() -> tuple[httpx.Response, Tally]:
            path, body = write_request(request, self.endpoint.dialect, model, request_id, as_chat=self._as_chat)
            stop = stop_strings(request, as_chat=self._as_chat)
            tally = Tally(stop, request.joint, request.stop_token_ids, text_of)
            running(True)
            try:
                return await self._post(path, body, on_sent), tally
            except EngineError:
                running(False)  # refused, or not there
                raise

        def retried() -> None:
            self.retried += 1

        model = await self._model(retried)
        await self.left_behind.room()
        try:
            return await with_retries(ask, retried)
        except _NoSuchPath as error:
            if self._as_chat or request.chat is None or self.endpoint.api == "completions":
                raise BadRequest(str(error)) from error
        self._as_chat = True
        return await with_retries(ask, retried)

    async def _post(self, path: str, body: dict[str, Any], on_sent: Callable[[], None]) -> httpx.Response:
        async def trace(event: str, details: object) -> None:
            if event.endswith("send_request_body.complete"):
                on_sent()

        extensions = {"trace": trace}
        outgoing = self._http.build_request(
            "POST", path, json=body, timeout=self._stream_timeout, extensions=extensions
        )
        try:
            response = await self._http.send(outgoing, stream=True)
        except httpx.HTTPError as error:
            self.unavailable(error)
        if response.status_code != 200:
            try:
                await _refuse(response)
            finally:
                await response.aclose()
        return response

    async def _model(self, retried: Callable[[], None]) -> str:
        if self.endpoint.model is not None:
            return self.endpoint.model
        if not self._models:
            try:
                self._models = await with_retries(self.models, retried)
            except _NoSuchPath:
                self._models = []
        if not self._models:
            raise EngineError(f"{self.endpoint.address} lists no model: name one in the profile")
        return self._models[0]

    def unavailable(self, error: httpx.HTTPError) -> NoReturn:
        """Raise what a failed connection means to the user."""
        address = self.endpoint.address
        if isinstance(error, httpx.ReadTimeout):
            raise EngineStalled(f"the engine at {address} has stopped answering") from error
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            raise EngineUnavailable(f"the engine at {address} broke off its answer") from error
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise EngineError(f"this system does not trust the certificate of {address}") from error
        raise EngineUnavailable(f"no engine answers at {address}") from error


class CompletionStream:
    """One running completion: async context manager and async iterator of chunks, one a round.

    `summary` is there after the last chunk, `request_id` after entering. Leaving it early closes the
    connection, which cancels the request at the engine.
    """

    def __init__(
        self, client: EngineClient, request: CompletionRequest, on_sent: Callable[[], None], text_of: TextOf
    ) -> None:
        self._client = client
        self._request = request
        self._on_sent = on_sent
        self._text_of = text_of
        self._response: httpx.Response | None = None
        self._chunks: AsyncGenerator[CompletionChunk] | None = None
        self._tally = Tally()
        self._is_running = False  # at another engine, as far as we know
        self.request_id: str | None = None
        self.summary: CompletionSummary | None = None

    async def __aenter__(self) -> CompletionStream:
        ours = self._client.endpoint.is_ours
        self.request_id = secrets.token_hex(16)
        try:
            self._response, self._tally = await self._client.send(
                self._request, self.request_id, self._note_running, self._on_sent, self._text_of
            )
        except asyncio.CancelledError:
            self._give_up()
            raise
        if ours:
            self.request_id = self._response.headers.get("x-request-id")
        self._chunks = self._read(self._response)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._chunks is not None:
            await self._chunks.aclose()
        if self._response is not None:
            await self._response.aclose()
        self._give_up()

    def __aiter__(self) -> AsyncIterator[CompletionChunk]:
        return self

    async def __anext__(self) -> CompletionChunk:
        if self._chunks is None:
            raise EngineError("the stream was not entered")
        return await anext(self._chunks)

    async def cancel(self) -> None:
        """End it at the engine before its next round; the summary has finish "cancelled".

        An engine of ours still sends it. To another the connection is closed, and what it said by then is summed up.
        """
        if self._client.endpoint.is_ours:
            if self.request_id is not None:
                await self._client.cancel(self.request_id)
        elif self._chunks is not None and self._response is not None:
            await self._chunks.aclose()
            await self._response.aclose()
            self.summary = self.summary or self._tally.summary(cancelled=True)
            self._give_up()

    def hang_up(self) -> None:
        """Let an engine of ours know at once that nobody reads on, before the loop has come to leaving the stream."""
        if self._client.endpoint.is_ours and self._response is not None and not self._response.is_closed:
            network_stream = self._response.extensions.get("network_stream")
            connection = None if network_stream is None else network_stream.get_extra_info("socket")
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    async def set_priority(self, priority: int) -> None:
        """Move it in the engine's queue: 0 interactive, 1 ordinary, 2 warm-up and speculation."""
        if self.request_id is not None:
            await self._client.set_priority(self.request_id, priority)

    def _note_running(self, running: bool) -> None:
        self._is_running = running

    def _give_up(self) -> None:
        if self._is_running and self.request_id is not None:
            self._is_running = False
            self._client.give_up(self.request_id, max(0, self._request.max_tokens - self._tally.tokens))

    async def _read(self, response: httpx.Response) -> AsyncGenerator[CompletionChunk]:
        tally = self._tally
        body = response.aiter_bytes()
        try:
            async for data in _events(body):
                if data == "[DONE]":
                    break
                chunk = tally.add(_json_object(data))
                # Another engine has no way to only prefill: what it said is not wanted.
                if chunk is not None and self._request.max_tokens > 0:
                    yield chunk
                if tally.stopped:
                    break
            # Not every engine sends [DONE], but each says why it finished.
            self.summary = tally.summary()
            rest = tally.rest()
            if rest is not None and self._request.max_tokens > 0:
                yield rest
        except httpx.HTTPError as error:
            self._is_running = False
            self._client.unavailable(error)
        except EngineError:
            self._is_running = False
            raise
        if not tally.stopped:
            self._is_running = False
            await _read_to_end(body)
            self._note_speed(self.summary)

    def _note_speed(self, summary: CompletionSummary) -> None:
        if summary.completion_tokens and summary.decode_ms:
            self._client.left_behind.measured(summary.decode_ms / 1000 / summary.completion_tokens)


class _NoSuchPath(BadRequest):
    """The engine does not serve this path at all."""


async def _events(body: AsyncIterator[bytes]) -> AsyncIterator[str]:
    events = EventParser()
    async for part in body:
        for data in events.feed(part):
            yield data


async def _read_to_end(body: AsyncIterator[bytes]) -> None:
    """Read what comes after the last event: a connection whose answer was not read to its end is closed."""
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(LAST_BYTES_S):
            async for _ in body:
                pass


def _json_object(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EngineError("the engine's answer is not JSON") from error
    if not isinstance(found, dict):
        raise EngineError("the engine's answer is not a JSON object")
    return found


async def _refuse(response: httpx.Response) -> NoReturn:
    """Raise what an answer other than 200 means, in the engine's own words where it has some."""
    body: dict[str, Any] = {}
    with contextlib.suppress(EngineError, httpx.HTTPError):
        body = _json_object((await response.aread()).decode("utf-8", "replace"))
    error = body.get("error", body)
    message = one_line(error.get("message") or error.get("detail") if isinstance(error, dict) else error)
    health, status = body.get("health"), response.status_code
    if status == 503 and isinstance(health, dict) and health.get("state") == "loading":
        raise EngineLoading(EngineHealth.from_json(health))
    if status in BUSY:
        raise EngineBusy(message or f"the engine is busy ({status})", _retry_after(response))
    if status in (401, 403):
        raise EngineError(message or "the engine refuses the token")
    if status in NO_SUCH_PATH:
        raise _NoSuchPath(message or f"the engine refuses the request ({status})")
    if 300 <= status < 400:
        raise EngineError(f"the engine's address leads elsewhere ({status}), which is not followed")
    if 400 <= status < 500:
        raise BadRequest(message or f"the engine refuses the request ({status})")
    raise EngineError(message or f"the engine failed ({status})")


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the engine asks to wait, also where it names a time by its own clock; None when it does not."""
    said = response.headers.get("retry-after", "")
    if said.isascii() and said.isdigit():
        return float(said[:6])
    try:
        until = parsedate_to_datetime(said)
        now = parsedate_to_datetime(response.headers["date"]) if "date" in response.headers else datetime.now(UTC)
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None
