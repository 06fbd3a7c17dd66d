"""The engine's HTTP API, the same for every backend: completions, requests, models, health, metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from server.engine.answer import Answer
from server.engine.backend import Backend, Handle
from server.engine.completion_body import CompletionBody, read_completion_body, read_priority
from server.engine.protocol import BadRequest, CompletionChunk, CompletionSummary, EngineHealth
from server.monitoring.metrics import Metrics

BODY_LIMIT = 16 * 1024 * 1024  # bytes; a prompt of a million token ids fits
ALIVE_EVERY_S = 5.0  # how often a waiting client hears that the engine still works
RETRY_AFTER_S = 1
# Of the event loop: so long it takes to hear that a client has left, whose bytes came with those of a new request. An
# engine that was not given the processor for a while finds many at once.
LEAVING_TURNS = 2

log = logging.getLogger(__name__)


class EngineApp:
    """One backend behind HTTP. `asgi` is the application; the rest is what the process around it asks."""

    def __init__(self, backend: Backend, metrics: Metrics, *, version: str, pid: int) -> None:
        self._backend = backend
        self._metrics = metrics
        self._version = version
        self._pid = pid
        self._running: dict[str, Handle] = {}
        self._last_request = time.monotonic()
        self.asgi = Starlette(
            routes=[
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/requests/{id}", self._change, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/metrics", self._metrics_text, methods=["GET"]),
            ],
            exception_handlers={
                BadRequest: _bad_request,
                HTTPException: _http_error,
                ClientDisconnect: _nobody_there,
                Exception: _unexpected,
            },
        )

    def idle_seconds(self) -> float:
        """Seconds since a completion was last asked for or ended; 0.0 while one runs or the model loads."""
        if self._running or self._backend.health().state == "loading":
            self._last_request = time.monotonic()
        return time.monotonic() - self._last_request

    def health(self) -> EngineHealth:
        """The backend's health, with the version and process that serve it."""
        return replace(self._backend.health(), version=self._version, pid=self._pid)

    async def _health(self, request: Request) -> Response:
        return JSONResponse(self.health().to_json())

    async def _metrics_text(self, request: Request) -> Response:
        self._metrics.set_state(self._backend.health().state)
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def _models(self, request: Request) -> Response:
        model = {"id": self._backend.name, "object": "model", "created": 0, "owned_by": "dflash-lsp"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _change(self, request: Request) -> Response:
        id = request.path_params["id"]
        body = await _json_body(request)
        if not isinstance(body, dict) or not {"priority", "cancel"} & set(body):
            raise BadRequest("the body must be an object with priority or cancel")
        if not isinstance(body.get("cancel", False), bool):
            raise BadRequest("cancel must be true or false")
        priority = read_priority(body["priority"]) if "priority" in body else None
        handle = self._running.get(id)
        if handle is None:
            return error_response(404, "no such request is running", "not_found")
        if priority is not None:
            handle.set_priority(priority)
        if body.get("cancel"):
            handle.cancel()
        return JSONResponse({"id": id})

    async def _completions(self, request: Request) -> Response:
        self._last_request = time.monotonic()
        body = read_completion_body(await _json_body(request))
        health = self.health()
        if health.state == "loading":
            message = f"the engine is loading: {health.reason or 'starting'}"
            response = error_response(503, message, "loading", health=health.to_json())
            response.headers["Retry-After"] = str(RETRY_AFTER_S)
            return response
        if health.state == "failed":
            return error_response(503, health.reason, "failed", health=health.to_json())
        for _ in range(LEAVING_TURNS):
            await asyncio.sleep(0)
        handle = self._backend.submit(body.request)
        id = f"cmpl-{secrets.token_hex(12)}"
        self._running[id] = handle
        answer = Answer(handle, body.request.stop, self._backend.units_done)
        return CompletionResponse(self, id, body, handle, answer)

    def ended(self, id: str, finish: str) -> None:
        """A completion's answer is complete, or its client has left."""
        self._running.pop(id, None)
        self._last_request = time.monotonic()
        self._metrics.requests.labels(finish).inc()

    @property
    def model(self) -> str:
        return self._backend.name


class CompletionResponse(Response):
    """One completion as an ASGI response; a client that leaves cancels it before the next round."""

    def __init__(self, app: EngineApp, id: str, body: CompletionBody, handle: Handle, answer: Answer) -> None:
        super().__init__()
        self._app = app
        self._id = id
        self._stream = body.stream
        self._handle = handle
        self._answer = answer
        self._created = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_stream(send) if self._stream else self._send_whole(send))
        leaving = asyncio.ensure_future(self._cancel_when_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            # Whatever ended the answer, no further round may run for it.
            self._handle.cancel()
            sending.cancel()
            leaving.cancel()
            self._app.ended(self._id, self._answer.finish)

    async def _cancel_when_left(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._handle.cancel()

    async def _send_stream(self, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-request-id": self._id,
        }
        raw = [(key.encode(), value.encode()) for key, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

        async def say(line: str) -> None:
            body = f"{line}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async for chunk in self._answer.chunks(ALIVE_EVERY_S):
            if chunk is None:
                await say(": working")
            else:
                await say(f"data: {_json(self._chunk_object(chunk))}")
        if self._answer.finish == "error":
            await say(f"data: {_json(error_object(self._answer.reason, 'engine_error', 'server_error'))}")
        else:
            await say(f"data: {_json(self._last_object(self._answer.tail))}")
        await say("data: [DONE]")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_whole(self, send: Send) -> None:
        pieces = [chunk.text async for chunk in self._answer.chunks(ALIVE_EVERY_S) if chunk is not None]
        if self._answer.finish == "error":
            response = error_response(500, self._answer.reason, "engine_error")
        else:
            response = JSONResponse(self._last_object("".join(pieces) + self._answer.tail))
        response.headers["X-Request-Id"] = self._id
        headers = response.raw_headers
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    def _chunk_object(self, chunk: CompletionChunk) -> dict[str, Any]:
        extension = {
            "accepted": chunk.accepted,
            "drafted": chunk.drafted,
            "token_ids": list(chunk.token_ids),
        }
        return self._object(chunk.text, None) | {"dflash": extension}

    def _last_object(self, text: str) -> dict[str, Any]:
        summary = self._answer.summary()
        # OpenAI knows two words; what exactly ended it stands in dflash.finish.
        reason = "length" if summary.finish == "length" else "stop"
        return self._object(text, reason) | {"usage": _usage(summary), "dflash": _summary_object(summary)}

    def _object(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._app.model,
            "choices": [choice],
        }


def error_object(message: str, code: str, type: str) -> dict[str, Any]:
    """OpenAI's error object around one line."""
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def error_response(status: int, message: str, code: str, **more: Mapping[str, Any]) -> JSONResponse:
    """An error answer; `more` is added beside the error object."""
    type = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse(error_object(message, code, type) | more, status_code=status)


def _usage(summary: CompletionSummary) -> dict[str, Any]:
    return {
        "prompt_tokens": summary.prompt_tokens,
        "completion_tokens": summary.completion_tokens,
        "total_tokens": summary.prompt_tokens + summary.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": summary.reused_tokens},
    }


def _summary_object(summary: CompletionSummary) -> dict[str, Any]:
    return {
        "finish": summary.finish,
        "rounds": summary.rounds,
        "acceptance_length": summary.acceptance_length,
        "prefill_tokens": summary.prefill_tokens,
        "reused_tokens": summary.reused_tokens,
        "prefill_ms": summary.prefill_ms,
        "decode_ms": summary.decode_ms,
    }


def _json(value: object) -> str:
    # ASCII only: no U+2028 for clients whose line splitting would break there.
    return json.dumps(value, separators=(",", ":"))


async def _json_body(request: Request) -> object:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_LIMIT:
            raise HTTPException(413, f"the body is larger than {BODY_LIMIT >> 20} MiB")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not JSON") from error


async def _bad_request(request: Request, error: Exception) -> Response:
    return error_response(400, str(error), "bad_request")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "no such path", 405: "this path does not take that method"}
    message = words.get(error.status_code, error.detail)
    response = error_response(error.status_code, message, "bad_request")
    response.headers.update(error.headers or {})
    return response


async def _nobody_there(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the client left while it was still asking


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s failed: %s", request.url.path, type(error).__name__)
    return error_response(500, "the engine failed to answer; its log says more", "internal_error")
