"""A scripted server, no engine: it answers in the documented formats of SGLang and vLLM, with faults on demand.

Written from SGLang 0.5.23's and vLLM's sources (see server/engine/dialects.py), since neither runs without a GPU.
What a real one does under load, it cannot show. `python -m tests.scripted_engine FLAVOUR` serves long completions as a
process of its own, prints its address, and tells at /scripted what it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Literal

Phase = Literal["", "connect", "body", "head", "stream", "end"]


@dataclass
class Script:
    """How one completion is answered.

    rounds: text of each round. ids: token ids of each, where they are asked for. events: raw bytes instead.
    reset: in which phase the connection is reset: before the request's body is read, after it, after the
    answer's head, after its first round, or before its last bytes. truncated: the stream ends in the middle.
    """

    rounds: Sequence[str] = ("one ", "two ", "three")
    ids: Sequence[Sequence[int]] | None = None
    finish: str = "stop"
    events: Sequence[bytes] | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    first_byte_s: float = 0.0
    round_s: float = 0.0
    reset: Phase = ""
    truncated: bool = False
    told: dict[str, Any] = field(default_factory=dict)  # SGLang's spec_tokens_details


class ScriptedEngine:
    """Listens on loopback. `deaf`: it misses disconnects and answers 200 to aborts without effect, as reported."""

    def __init__(self, flavour: Literal["sglang", "vllm", "openai"], *, deaf: bool = False) -> None:
        self.flavour = flavour
        self.deaf = deaf
        self.scripts: list[Script] = []  # one a completion; the default afterwards
        self.default = Script()
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.aborted: list[str] = []
        self.connections = 0
        self.running = 0
        self.most_running = 0
        self.metrics = ""
        self.refuses: dict[str, int] = {}  # path -> status
        self._aborts: dict[str, asyncio.Event] = {}
        self._server: asyncio.Server | None = None
        self._over = asyncio.Event()
        self.address = ""

    async def start(self, **tls: Any) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, **tls)
        scheme = "https" if tls else "http"
        self.address = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._over.set()
        if self._server is not None:
            self._server.close()

    def seen(self) -> dict[str, Any]:
        """How many completions run and ran at once, and by their names which were asked for and which aborted."""
        asked = [body.get("rid") or body.get("request_id") for body in self.bodies]
        counts = {"running": self.running, "most_running": self.most_running}
        return {**counts, "asked": asked, "aborted": self.aborted}

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *fields = head.split("\r\n")
        method, path, _ = line.split(" ")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in fields) if name}
        is_completion = path in ("/v1/completions", "/v1/chat/completions") and path not in self.refuses
        script = (self.scripts.pop(0) if self.scripts else self.default) if is_completion else Script()
        if script.reset == "connect":
            return _reset(writer)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.paths.append(path)
        self.headers.append(headers)
        if script.reset == "body":
            return _reset(writer)
        if path in self.refuses:
            await _whole(writer, self.refuses[path], {"error": {"message": f"no {path} here"}})
        elif is_completion:
            return await self._completion(json.loads(body), path, script, reader, writer)
        elif path == "/v1/models":
            await _whole(writer, 200, {"object": "list", "data": [{"id": "mimo", "owned_by": self.flavour}]})
        elif path == "/scripted":
            await _whole(writer, 200, self.seen())
        elif path == "/metrics" and self.metrics:
            await _whole(writer, 200, self.metrics.encode())
        elif path == "/abort_request" and method == "POST" and self.flavour == "sglang":
            rid = json.loads(body)["rid"]
            self.aborted.append(rid)
            if not self.deaf and rid in self._aborts:
                self._aborts[rid].set()
            await _whole(writer, 200, b"")
        else:
            await _whole(writer, 404, {"detail": "Not Found"})
        return True

    async def _completion(
        self,
        body: dict[str, Any],
        path: str,
        script: Script,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        self.bodies.append(body)
        if script.status != 200:
            await _whole(writer, script.status, script.body, script.headers)
            return True
        id = body.get("rid") or body.get("request_id") or "cmpl-1"
        left = self._aborts.setdefault(id, asyncio.Event())
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        leaving = asyncio.ensure_future(self._watch(reader, left))
        try:
            return await self._stream(id, body, path == "/v1/chat/completions", script, writer, left)
        finally:
            leaving.cancel()
            self.running -= 1
            del self._aborts[id]

    async def _watch(self, reader: asyncio.StreamReader, left: asyncio.Event) -> None:
        # The client sends nothing before the answer has ended, so all that can come is the end.
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
        if not self.deaf:
            left.set()

    async def _stream(
        self,
        id: str,
        body: dict[str, Any],
        chat: bool,
        script: Script,
        writer: asyncio.StreamWriter,
        left: asyncio.Event,
    ) -> bool:
        if await self._pause(script.first_byte_s, left):
            return False
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if script.reset == "head":
            await writer.drain()
            return _reset(writer)
        events = list(script.events) if script.events is not None else self._events(id, body, chat, script)
        for number, event in enumerate(events):
            if self.deaf and writer.is_closing():
                await self._pause(script.round_s, left)  # a zombie decodes on for nobody
                continue
            if left.is_set() or writer.is_closing():
                return False
            if script.truncated and number == len(events) // 2:
                event = event[: len(event) // 2]
            writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            try:
                await writer.drain()
            except ConnectionError:
                if not self.deaf:
                    return False
            if script.truncated and number == len(events) // 2:
                return False
            if script.reset == "stream" and number == 0:
                return _reset(writer)
            if script.reset == "end" and number == len(events) - 2:
                return _reset(writer)
            if await self._pause(script.round_s, left):
                return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _pause(self, seconds: float, left: asyncio.Event) -> bool:
        """Wait, at most until the client has left; whether it has."""
        if not seconds:
            return left.is_set()
        try:
            await asyncio.wait_for(left.wait(), seconds)
        except TimeoutError:
            return self._over.is_set()
        return True

    def _events(self, id: str, body: dict[str, Any], chat: bool, script: Script) -> list[bytes]:
        tokens, events = 0, []
        most = body["max_tokens"]
        for number, text in enumerate(script.rounds):
            ids = list(script.ids[number]) if script.ids else [number]
            tokens += len(ids)
            choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": None}
            choice |= {"delta": {"content": text}} if chat else {"text": text}
            choice |= {"matched_stop": None} if self.flavour == "sglang" else {"stop_reason": None}
            if body.get("return_token_ids"):
                choice["token_ids"] = ids
            is_last = number == len(script.rounds) - 1 or tokens >= most
            if is_last:
                choice["finish_reason"] = "length" if tokens >= most else script.finish
            events.append(self._event(id, [choice]))
            if is_last:
                break
        if self.flavour == "sglang" and body.get("return_spec_tokens_details") and script.told:
            events.append(self._event(id, [], sglext={"spec_tokens_details": script.told}))
        usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
        events.append(self._event(id, [], usage=usage))
        return [*events, b"data: [DONE]\n\n"]

    def _event(self, id: str, choices: list[dict[str, Any]], **more: Any) -> bytes:
        said = {"id": id, "object": "text_completion", "created": 1, "model": "mimo", "choices": choices}
        return b"data: " + json.dumps({**said, "usage": None, **more}).encode() + b"\n\n"


@asynccontextmanager
async def scripted(
    flavour: Literal["sglang", "vllm", "openai"], *, deaf: bool = False, **tls: Any
) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(flavour, deaf=deaf)
    await engine.start(**tls)
    try:
        yield engine
    finally:
        await engine.stop()


async def _whole(
    writer: asyncio.StreamWriter, status: int, body: bytes | dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
    await writer.drain()


async def _serve(flavour: Literal["sglang", "vllm", "openai"]) -> None:
    async with scripted(flavour) as engine:
        engine.default = Script(rounds=["x "] * 60, round_s=0.02)
        print(engine.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until whoever started it leaves


def _reset(writer: asyncio.StreamWriter) -> bool:
    """End the connection with a reset instead of an orderly end."""
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()
    return False


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))  # type: ignore[arg-type]
