"""Our client against engines that are not ours, and against answers that break off or make no sense.

The other engines here are fakes: a socket that says canned bytes, since no such engine runs on a CPU.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from server.engine.client import (
    BadRequest,
    CompletionRequest,
    Endpoint,
    EngineBusy,
    EngineClient,
    EngineError,
    EngineStalled,
    EngineUnavailable,
)
from server.engine.protocol import Dialect
from server.engine.sse import EventParser

MODELS = json.dumps({"data": [{"id": "some/model"}]}).encode()
Answer = Callable[[str, dict[str, Any]], list[bytes]]


def head(status: int = 200, kind: str = "text/event-stream") -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode()


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def chunk(text: str, finish: str | None = None, **more: object) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more})


@asynccontextmanager
async def fake_engine(
    completion: list[bytes] | None, dialect: Dialect = "openai", *, health: bytes = b"", hang: bool = False
) -> AsyncIterator[tuple[EngineClient, list[dict[str, Any]]]]:
    """A client of a fake engine, and the completion bodies it was sent. `hang`: it never ends its answer."""
    bodies: list[dict[str, Any]] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        path = request.split()[1]
        length = int(request.partition("content-length: ")[2].split()[0]) if "content-length" in request else 0
        body = await reader.readexactly(length)
        parts = [head(404)]
        if path == "/v1/models":
            parts = [head(kind="application/json"), MODELS]
        elif path == "/health":
            parts = [head(), health]
        elif path == "/v1/completions":
            bodies.append(json.loads(body))
            parts = completion or []
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if hang and path == "/v1/completions":
            await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = EngineClient(Endpoint(f"http://127.0.0.1:{port}/v1", "secret", dialect), stall_s=0.3)
    try:
        yield client, bodies
    finally:
        over.set()
        await client.aclose()
        server.close()


async def read(engine: EngineClient, **more: Any) -> tuple[list[str], Any]:
    request = CompletionRequest(**{"prompt": "x", "max_tokens": 9} | more)
    async with engine.stream(request) as stream:
        return [part.text async for part in stream], stream.summary


GOOD = [chunk("één "), chunk("a\u2028b"), chunk("", "length", usage={"prompt_tokens": 5, "completion_tokens": 7})]


async def test_another_engine_is_sent_openais_fields_only() -> None:
    async with fake_engine([head(), *GOOD, event(b"[DONE]")]) as (client, bodies):
        texts, summary = await read(
            client, session="s", client="c", priority=2, draft="off", block_size=4, stop=("!",), stop_token_ids=(0,)
        )
    assert texts == ["één ", "a\u2028b"]
    assert (summary.finish, summary.prompt_tokens, summary.completion_tokens, summary.rounds) == ("length", 5, 7, 2)
    # Chunks of another engine need not be rounds.
    assert summary.acceptance_length == 0.0
    assert bodies == [
        {
            **{"model": "some/model", "prompt": "x", "max_tokens": 9, "temperature": 0.0, "stream": True},
            **{"stream_options": {"include_usage": True}, "stop": ["!"], "stop_token_ids": [0]},
        }
    ]


async def test_another_engine_gets_healing_text_back_at_the_end_of_the_prompt() -> None:
    async with fake_engine([head(), *GOOD, event(b"[DONE]")]) as (client, bodies):
        await read(client, prompt="de", heal="f ")
        assert bodies[0]["prompt"] == "def "
        with pytest.raises(BadRequest, match="cannot heal a prompt of token ids"):
            await read(client, prompt=[1, 2], heal="f ")


async def test_warming_up_another_engine_shows_nothing_of_its_answer() -> None:
    async with fake_engine([head(), *GOOD, event(b"[DONE]")]) as (client, bodies):
        assert (await read(client, max_tokens=0))[0] == []
        assert bodies[0]["max_tokens"] == 1


async def test_bytes_may_be_cut_anywhere() -> None:
    whole = b": hello\r\n\r\n" + b"".join(GOOD).replace(b"\n", b"\r\n") + event(b"[DONE]")
    parts = [whole[place : place + 1] for place in range(len(whole))]
    async with fake_engine([head(), *parts]) as (client, _):
        assert (await read(client))[0] == ["één ", "a\u2028b"]


async def test_an_engine_that_never_says_done_is_fine_when_it_says_why_it_finished() -> None:
    async with fake_engine([head(), *GOOD]) as (client, _):
        assert (await read(client))[1].finish == "length"


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ([chunk("half")], "the engine's answer broke off"),
        ([chunk("half"), event(b"[DONE]")], "the engine's answer broke off"),
        ([chunk("half"), b'data: {"choices": [{"te'], "the engine's answer broke off"),
        ([event(b"{nonsense")], "the engine's answer is not JSON"),
        ([event([1])], "the engine's answer is not a JSON object"),
        ([event({"choices": 3})], "the engine's answer has another shape than a completion chunk"),
        ([event({"choices": [7]})], "the engine's answer has another shape than a completion chunk"),
        ([b"data: \xff\n\n"], "the engine's answer is not UTF-8"),
        ([event({"error": {"message": "out of\nmemory"}})], "out of memory"),
        ([event({"error": "no"})], "no"),
        ([event({"error": {}})], "the engine failed without saying why"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_one_line(parts: list[bytes], line: str) -> None:
    async with fake_engine([head(), *parts]) as (client, _):
        with pytest.raises(EngineError) as raised:
            await read(client)
    assert str(raised.value) == line


@pytest.mark.parametrize(
    ("status", "body", "kind", "line"),
    [
        (400, b'{"error": {"message": "too long"}}', BadRequest, "too long"),
        (404, b'{"object": "error", "message": "no such model"}', BadRequest, "no such model"),
        (422, b"<html>", BadRequest, "the engine refuses the request (422)"),
        (401, b"", EngineError, "the engine refuses the token"),
        (500, b"\xff", EngineError, "the engine failed (500)"),
        (503, b'{"error": "busy"}', EngineBusy, "busy"),
        (429, b"", EngineBusy, "the engine is busy (429)"),
        (307, b"", EngineError, "the engine's address leads elsewhere (307), which is not followed"),
    ],
)
async def test_a_refusal_is_one_line(status: int, body: bytes, kind: type[EngineError], line: str) -> None:
    async with fake_engine([head(status), body]) as (client, _):
        with pytest.raises(EngineError) as raised:
            await read(client)
    assert (type(raised.value), str(raised.value)) == (kind, line)


async def test_a_stream_that_says_nothing_more_is_given_up() -> None:
    async with fake_engine([head(), chunk("a")], hang=True) as (client, _):
        with pytest.raises(EngineStalled, match="has stopped answering"):
            await read(client)


async def test_no_engine_at_the_address_is_one_line() -> None:
    for address in ("unix:/nonexistent/engine.sock", "http://127.0.0.1:9"):
        client = EngineClient(Endpoint(address))
        for ask in (client.health(), client.models(), client.metrics(), read(client)):
            with pytest.raises(EngineUnavailable) as raised:
                await ask
            assert str(raised.value) == f"no engine answers at {address}"
        await client.aclose()
    with pytest.raises(EngineError, match=r"^not an engine address: ftp://x$"):
        EngineClient(Endpoint("ftp://x"))


@pytest.mark.parametrize("health", [b"", b"OK", b'{"status": "up"}', b"[]"])
async def test_another_engine_is_ready_when_it_lists_its_models(health: bytes) -> None:
    for dialect in ("openai", "dflash"):
        async with fake_engine(None, dialect, health=health) as (client, _):
            found = await client.health()
            assert (found.state, found.target, found.kind) == ("ready", "some/model", "remote")


async def test_half_a_surrogate_pair_in_the_users_text_does_not_stop_a_completion() -> None:
    async with fake_engine([head(), *GOOD, event(b"[DONE]")]) as (client, bodies):
        await read(client, prompt="a\ud800b", stop=("\udfff",))
    assert (bodies[0]["prompt"], bodies[0]["stop"]) == ("a?b", ["?"])


def test_events_follow_the_standard() -> None:
    text = b"\xef\xbb\xbf: note\ndata: a\ndata:b\nid: 7\nevent: x\n\n\n"
    text += b"data\n\rdata:  c\r\rdata: \xe2\x80\xa8\n\ndata: lost"
    expected = ["a\nb", "", " c", "\u2028"]
    for size in (1, 2, 3, 1000):
        parser = EventParser()
        found = [data for at in range(0, len(text), size) for data in parser.feed(text[at : at + size])]
        assert found == expected


def test_an_event_without_end_is_refused() -> None:
    parser = EventParser()
    with pytest.raises(EngineError, match="more than 16 MiB"):
        for _ in range(20):
            list(parser.feed(b"data: " + b"x" * (1 << 20)))
