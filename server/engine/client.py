"""Client of one engine: ours over a Unix socket or loopback, or any OpenAI-compatible one over HTTP(S)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx

from server.engine.completion_body import write_completion_body, write_plain_body
from server.engine.protocol import (
    BadRequest,
    CompletionChunk,
    CompletionRequest,
    CompletionSummary,
    Endpoint,
    EngineError,
    EngineHealth,
    EngineLoading,
    EngineStalled,
    EngineUnavailable,
)
from server.engine.sse import EventParser

__all__ = [
    "BadRequest",
    "CompletionChunk",
    "CompletionRequest",
    "CompletionStream",
    "CompletionSummary",
    "Endpoint",
    "EngineClient",
    "EngineError",
    "EngineHealth",
    "EngineLoading",
    "EngineStalled",
    "EngineUnavailable",
]

CONNECT_S = 2.0
STALL_S = 15.0  # a stream that says nothing for so long is given up; ours says so while it works
SHORT_S = 5.0  # health, models, metrics
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class EngineClient:
    """One engine. Belongs to one event loop; close it with `aclose()`."""

    def __init__(self, endpoint: Endpoint, *, stall_s: float = STALL_S) -> None:
        self.endpoint = endpoint
        self._models: list[str] | None = None
        headers = {} if endpoint.token is None else {"Authorization": f"Bearer {endpoint.token}"}
        path = endpoint.address.removeprefix("unix:")
        local = path != endpoint.address
        base = "http://engine" if local else endpoint.address.rstrip("/")
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EngineError(f"not an engine address: {endpoint.address}")
        # A remote address is often given with OpenAI's own base path.
        base = base.removesuffix("/v1")
        self._http = httpx.AsyncClient(
            base_url=base,
            headers=headers,
            transport=httpx.AsyncHTTPTransport(uds=path, verify=False) if local else None,
            timeout=httpx.Timeout(SHORT_S, connect=CONNECT_S),
            # Reading the certificate store takes longer than a whole answer; only https needs it.
            verify=parts.scheme == "https",
            # The user's proxy must not see what goes to an engine on this machine.
            trust_env=not local and parts.hostname not in LOOPBACK,
        )
        self._stream_timeout = httpx.Timeout(stall_s, connect=CONNECT_S)

    async def aclose(self) -> None:
        """Close all connections; streams that run are cancelled at the engine."""
        await self._http.aclose()

    def stream(self, request: CompletionRequest) -> CompletionStream:
        """A completion: `async with client.stream(request) as stream`, then `async for chunk in stream`.

        Entering sends it. EngineUnavailable, EngineLoading, BadRequest or EngineError say in one line why
        there is no answer.
        """
        return CompletionStream(self, request)

    async def health(self) -> EngineHealth:
        """The engine's state. An engine that is not ours is ready when it lists its models."""
        response = await self._get("/health")
        if response.status_code == 200 and self.endpoint.dialect == "dflash":
            try:
                return EngineHealth.from_json(response.json())
            except (ValueError, TypeError, AttributeError):
                pass
        models = await self.models()
        return EngineHealth(state="ready", target=", ".join(models), device="remote", kind="remote")

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
        """End a running request before its next round. Harmless when it has ended."""
        await self._change(request_id, {"cancel": True})

    async def set_priority(self, request_id: str, priority: int) -> None:
        """Move a running request in the queue. Harmless when it has ended."""
        await self._change(request_id, {"priority": priority})

    async def _change(self, request_id: str, change: dict[str, Any]) -> None:
        if self.endpoint.dialect != "dflash":
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

    async def send(self, request: CompletionRequest) -> httpx.Response:
        """Post a completion and wait for the answer's head; the stream closes it."""
        if self.endpoint.dialect == "dflash":
            body = write_completion_body(request)
        else:
            body = await self._foreign_body(request)
        outgoing = self._http.build_request("POST", "/v1/completions", json=body, timeout=self._stream_timeout)
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

    async def _foreign_body(self, request: CompletionRequest) -> dict[str, Any]:
        """OpenAI's fields only. Healing text goes back to the prompt's end, where it came from."""
        if request.heal:
            if not isinstance(request.prompt, str):
                raise BadRequest("this engine cannot heal a prompt of token ids")
            request = replace(request, prompt=request.prompt + request.heal)
        body = write_plain_body(request)
        # Others refuse 0; one token warms their prefix cache as well.
        body["max_tokens"] = max(1, request.max_tokens)
        if self._models is None:
            self._models = await self.models()
        if self._models:
            body["model"] = self._models[0]
        return body

    def unavailable(self, error: httpx.HTTPError) -> NoReturn:
        """Raise what a failed connection means to the user."""
        address = self.endpoint.address
        if isinstance(error, httpx.ReadTimeout):
            raise EngineStalled(f"the engine at {address} has stopped answering") from error
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            raise EngineUnavailable(f"the engine at {address} broke off its answer") from error
        raise EngineUnavailable(f"no engine answers at {address}") from error


class CompletionStream:
    """One running completion: async context manager and async iterator of chunks, one a round.

    `summary` is there after the last chunk, `request_id` and `sent_at` (time.monotonic) after entering.
    Leaving it early closes the connection, which cancels the request at the engine.
    """

    def __init__(self, client: EngineClient, request: CompletionRequest) -> None:
        self._client = client
        self._request = request
        self._response: httpx.Response | None = None
        self._chunks: AsyncGenerator[CompletionChunk] | None = None
        self.request_id: str | None = None
        self.summary: CompletionSummary | None = None

    async def __aenter__(self) -> CompletionStream:
        self._response = await self._client.send(self._request)
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

    def __aiter__(self) -> AsyncIterator[CompletionChunk]:
        return self

    async def __anext__(self) -> CompletionChunk:
        if self._chunks is None:
            raise EngineError("the stream was not entered")
        return await anext(self._chunks)

    async def cancel(self) -> None:
        """End it at the engine before its next round; the summary still arrives, with finish "cancelled"."""
        if self.request_id is not None:
            await self._client.cancel(self.request_id)

    async def set_priority(self, priority: int) -> None:
        """Move it in the engine's queue: 0 interactive, 1 ordinary, 2 warm-up and speculation."""
        if self.request_id is not None:
            await self._client.set_priority(self.request_id, priority)

    async def _read(self, response: httpx.Response) -> AsyncGenerator[CompletionChunk]:
        events = EventParser()
        tally = _Tally()
        try:
            async for part in response.aiter_bytes():
                for data in events.feed(part):
                    if data == "[DONE]":
                        self.summary = tally.summary()
                        return
                    chunk = tally.add(_json_object(data))
                    # Another engine has no way to only prefill: what it said is not wanted.
                    if chunk is not None and self._request.max_tokens > 0:
                        yield chunk
        except httpx.HTTPError as error:
            self._client.unavailable(error)
        # Not every engine sends [DONE], but each says why it finished.
        self.summary = tally.summary()


class _Tally:
    """What the chunks of one stream add up to."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._rounds = 0
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self._extension: dict[str, Any] = {}

    def add(self, event: dict[str, Any]) -> CompletionChunk | None:
        """The chunk that an event carries, or None when it carries no text and was no round."""
        if "error" in event:
            error = event["error"]
            message = error.get("message") if isinstance(error, dict) else error
            raise EngineError(_one_line(message) or "the engine failed without saying why")
        try:
            self._usage = event.get("usage") or self._usage
            extension = event.get("dflash") or {}
            choices = event.get("choices") or []
            choice = choices[0] if choices else {}
            self._finish = choice.get("finish_reason") or self._finish
            text = choice.get("text") or ""
            if "finish" in extension:
                self._extension = extension
                return CompletionChunk(text) if text else None
            ids = extension.get("token_ids") or choice.get("token_ids") or ()
            if not text and not ids:
                return None
            self._rounds += 1
            return CompletionChunk(
                text, int(extension.get("accepted", 0)), int(extension.get("drafted", 0)), tuple(ids)
            )
        except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
            raise EngineError("the engine's answer has another shape than a completion chunk") from error

    def summary(self) -> CompletionSummary:
        """The engine's own summary, or what another engine's stream tells; EngineError when it broke off."""
        if self._finish is None:
            raise EngineError("the engine's answer broke off")
        tokens = int(self._usage.get("completion_tokens") or 0)
        rounds = int(self._extension.get("rounds", self._rounds))
        prompt = int(self._usage.get("prompt_tokens") or 0)
        details = self._usage.get("prompt_tokens_details") or {}
        reused = int(self._extension.get("reused_tokens", details.get("cached_tokens") or 0))
        elapsed_ms = (time.monotonic() - self._begun) * 1000
        return CompletionSummary(
            finish=str(self._extension.get("finish", self._finish)),
            rounds=rounds,
            acceptance_length=float(self._extension.get("acceptance_length", tokens / rounds if rounds else 0.0)),
            prompt_tokens=prompt,
            completion_tokens=tokens,
            prefill_tokens=int(self._extension.get("prefill_tokens", prompt - reused)),
            reused_tokens=reused,
            prefill_ms=float(self._extension.get("prefill_ms", 0.0)),
            decode_ms=float(self._extension.get("decode_ms", elapsed_ms)),
        )


def _json_object(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
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
    message = _one_line(error.get("message") or error.get("detail") if isinstance(error, dict) else error)
    health = body.get("health")
    if response.status_code == 503 and isinstance(health, dict) and health.get("state") == "loading":
        raise EngineLoading(EngineHealth.from_json(health))
    if response.status_code in (401, 403):
        raise EngineError(message or "the engine refuses the token")
    if 400 <= response.status_code < 500:
        raise BadRequest(message or f"the engine refuses the request ({response.status_code})")
    raise EngineError(message or f"the engine failed ({response.status_code})")


def _one_line(message: object) -> str:
    return " ".join(str(message).split()) if message else ""
