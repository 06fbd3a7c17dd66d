"""The engine's HTTP API as clients meet it: a real process on a real socket, replaying a recording."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from engines import (
    CANCELLED,
    ENTRIES,
    LONG,
    count,
    engine_here,
    nothing_runs,
    own_directories,
    replay_profile,
    rounds_when_ended,
    stop,
)
from httpcore._async.connection_pool import PoolByteStream
from hypothesis import given
from hypothesis import strategies as st

from server.engine.client import BadRequest, CompletionRequest, CompletionStream, EngineClient
from server.engine.launcher import ensure_engine
from server.engine.replay import ReplayHandle
from server.engine.text_assembly import TextAssembly
from server.engine.transport import LIMITS
from server.engine.whereabouts import EngineFiles
from server.profiles import Profile


@pytest.fixture(scope="module")
def profile() -> Iterator[Profile]:
    with own_directories() as root:
        made = replay_profile(root)
        yield made
        stop(made)


@pytest.fixture
async def client(profile: Profile) -> AsyncIterator[EngineClient]:
    made = await ensure_engine(profile)
    await nothing_runs(made)
    yield made
    await made.aclose()


@pytest.fixture
async def http(client: EngineClient, profile: Profile) -> AsyncIterator[httpx.AsyncClient]:
    """Plain HTTP, as any other client speaks it."""
    transport = httpx.AsyncHTTPTransport(uds=str(EngineFiles.of(profile).socket), verify=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as made:
        yield made


async def all_of(stream: CompletionStream) -> str:
    return "".join([chunk.text async for chunk in stream])


async def test_a_stream_brings_one_chunk_a_round_and_then_the_summary(client: EngineClient) -> None:
    async with client.stream(CompletionRequest(prompt="x\nshort:\n", max_tokens=50)) as stream:
        assert stream.request_id is not None
        assert stream.summary is None
        chunks = [chunk.text async for chunk in stream]
    assert chunks == ["one ", "two ", "three"]
    assert stream.summary is not None
    assert (stream.summary.finish, stream.summary.rounds) == ("eos", 3)


async def test_characters_that_some_call_line_ends_arrive_whole(client: EngineClient) -> None:
    async with client.stream(CompletionRequest(prompt="odd:\n", max_tokens=50)) as stream:
        assert await all_of(stream) == "a\u2028b\x0bc\x0cd\x85e\n😀ü"


async def test_a_plain_openai_stream_works_unchanged(http: httpx.AsyncClient) -> None:
    body = {"model": "any", "prompt": "short:\n", "max_tokens": 50, "stream": True, "n": 1, "user": "somebody"}
    answer = await http.post("/v1/completions", json=body, headers={"Authorization": "Bearer sk-anything"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    parts = [json.loads(event) for event in events[:-1]]
    assert {part["id"] for part in parts} == {answer.headers["x-request-id"]}
    assert {part["object"] for part in parts} == {"text_completion"}
    assert "".join(part["choices"][0]["text"] for part in parts) == "one two three"
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None, None, None, "stop"]
    assert parts[-1]["usage"]["total_tokens"] == parts[-1]["usage"]["prompt_tokens"] + 3
    assert set(parts[0]["dflash"]) == {"accepted", "drafted", "token_ids"}
    assert set(parts[-1]["dflash"]) == {
        *("finish", "rounds", "acceptance_length", "prefill_tokens", "reused_tokens", "prefill_ms", "decode_ms")
    }


async def test_a_plain_openai_request_without_stream_is_answered_whole(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/completions", json={"model": "any", "prompt": ["short:\n"], "stop": None})
    assert answer.status_code == 200
    found = answer.json()
    assert found["choices"] == [{"index": 0, "text": "one two three", "logprobs": None, "finish_reason": "stop"}]
    assert found["dflash"]["finish"] == "eos"
    assert answer.headers["x-request-id"] == found["id"]


async def test_a_request_that_comes_together_with_the_leaving_of_another_finds_it_ended(tmp_path: Path) -> None:
    """As when the engine had to wait for the processor: it finds both at once."""
    async with engine_here(tmp_path, ENTRIES) as (backend, path):
        cancelled: list[list[bool]] = []
        submit = backend.submit

        def noted(request: CompletionRequest) -> ReplayHandle:
            cancelled.append([each.cancelled for each in backend._queue])
            return submit(request)

        backend.submit = noted  # type: ignore[method-assign]
        first_in, first_out = await asyncio.open_unix_connection(path)
        second_in, second_out = await asyncio.open_unix_connection(path)
        body = json.dumps({"prompt": "long:\n", "stream": True})
        post = f"POST /v1/completions HTTP/1.1\r\nHost: e\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        first_out.write(post)
        await first_in.readuntil(b"data: ")
        second_out.write(b"GET /health HTTP/1.1\r\nHost: e\r\n\r\n")
        await second_in.readuntil(b"ready")
        # Neither waits for the loop: it finds both when it looks next.
        first_out.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        second_out.write(post)
        await second_in.readuntil(b"data: ")
        assert cancelled == [[], [True]]
        second_out.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_its_request_within_one_round(
    client: EngineClient, http: httpx.AsyncClient, stream: bool
) -> None:
    before, ended = await count(client, "dflash_rounds_total"), await count(client, CANCELLED)
    if stream:
        async with client.stream(CompletionRequest(prompt="long:\n", max_tokens=500)) as running:
            async for _ in running:
                break
    else:
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/completions", json={"prompt": "long:\n"}, timeout=httpx.Timeout(5, read=0.1))
    seen = await rounds_when_ended(client, ended)
    await nothing_runs(client)
    after = await count(client, "dflash_rounds_total")
    assert after - seen <= 1
    assert after - before < len(LONG) / 2
    await asyncio.sleep(0.1)
    assert await count(client, "dflash_rounds_total") == after


async def test_cancelling_by_post_ends_it_within_one_round_and_says_so(client: EngineClient) -> None:
    before = await count(client, "dflash_rounds_total")
    ended = await count(client, CANCELLED)
    async with client.stream(CompletionRequest(prompt="long:\n", max_tokens=500)) as stream:
        async for _ in stream:
            await stream.cancel()
            seen = await count(client, "dflash_rounds_total")
            break
        rest = [chunk async for chunk in stream]
    assert stream.summary is not None
    assert (stream.summary.finish, stream.summary.rounds) == ("cancelled", len(rest) + 1)
    assert await count(client, "dflash_rounds_total") - seen <= 1
    assert await count(client, "dflash_rounds_total") - before == stream.summary.rounds
    assert await count(client, CANCELLED) == ended + 1
    await stream.cancel()  # once more does no harm


async def test_a_task_that_is_cancelled_ends_its_request(client: EngineClient) -> None:
    first_chunk = asyncio.Event()

    async def read() -> None:
        async with client.stream(CompletionRequest(prompt="long:\n", max_tokens=500)) as stream:
            async for _ in stream:
                first_chunk.set()

    before = await count(client, "dflash_rounds_total")
    task = asyncio.create_task(read())
    await first_chunk.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_runs(client)
    assert await count(client, "dflash_rounds_total") - before < len(LONG) / 2


async def test_whoever_is_cancelled_while_an_answer_closes_leaves_the_connection_to_others(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has few connections, and each that was left behind would be one less for ever."""
    request = CompletionRequest(prompt="short:\n", max_tokens=50)
    close = PoolByteStream.aclose
    readers: list[asyncio.Task[str]] = []

    async def closing(stream: PoolByteStream) -> None:
        asyncio.get_running_loop().call_soon(readers[-1].cancel)  # as soon as it waits for anything
        await close(stream)

    async def read() -> str:
        async with client.stream(request) as stream:
            return await all_of(stream)

    monkeypatch.setattr(PoolByteStream, "aclose", closing)
    for _ in range(LIMITS.max_connections or 0):
        readers.append(asyncio.create_task(read()))
        await asyncio.wait(readers[-1:])
    assert any(reader.cancelled() for reader in readers)
    monkeypatch.undo()
    assert await read() == "one two three"


async def test_the_more_urgent_request_goes_first_and_priority_can_change(client: EngineClient) -> None:
    ended: list[str] = []

    async def read(name: str, stream: CompletionStream) -> None:
        await all_of(stream)
        ended.append(name)

    async with (
        client.stream(CompletionRequest(prompt="slow:\n", max_tokens=50, priority=1)) as first,
        client.stream(CompletionRequest(prompt="slow:\n", max_tokens=50, priority=2)) as second,
        client.stream(CompletionRequest(prompt="slow:\n", max_tokens=50, priority=2)) as third,
    ):
        await third.set_priority(0)
        await asyncio.gather(read("first", first), read("second", second), read("third", third))
    assert ended == ["third", "first", "second"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_string_across_chunks_ends_the_text_before_it(
    client: EngineClient, http: httpx.AsyncClient, stream: bool
) -> None:
    body = {"prompt": "stop:\n", "stop": ["<end>"], "stream": stream, "max_tokens": 50}
    answer = await http.post("/v1/completions", json=body)
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]
        # "<" may begin the stop string and waits; nothing of it is ever shown.
        assert [event["choices"][0]["text"] for event in events] == ["ab", "c", "", "", ""]
    else:
        events = [answer.json()]
        assert events[0]["choices"][0]["text"] == "abc"
    assert events[-1]["dflash"]["finish"] == "stop"
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


async def test_text_held_back_for_a_stop_string_that_never_came_is_not_lost(client: EngineClient) -> None:
    request = CompletionRequest(prompt="short:\n", max_tokens=50, stop=("three!", "x"))
    async with client.stream(request) as stream:
        assert await all_of(stream) == "one two three"
    assert stream.summary is not None
    assert (stream.summary.finish, stream.summary.rounds) == ("eos", 3)


async def test_no_tokens_wanted_only_prefills(client: EngineClient) -> None:
    async with client.stream(CompletionRequest(prompt="short:\n", max_tokens=0)) as stream:
        assert await all_of(stream) == ""
    assert stream.summary is not None
    assert stream.summary.rounds == 0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ([], "the body must be a JSON object"),
        ({}, "prompt must be a string or a list of token ids"),
        ({"prompt": 3}, "prompt must be a string or a list of token ids"),
        ({"prompt": [1, -1]}, "prompt must be a string or a list of token ids"),
        ({"prompt": [1, True]}, "prompt must be a string or a list of token ids"),
        ({"prompt": ["a", "b"]}, "prompt must be a string or a list of token ids"),
        ({"prompt": "a\ud800"}, "prompt holds half a surrogate pair at character 1"),
        ({"prompt": "", "max_tokens": -1}, "max_tokens must be an integer of at least 0"),
        ({"prompt": "", "max_tokens": 1.5}, "max_tokens must be an integer of at least 0"),
        ({"prompt": "", "temperature": "hot"}, "temperature must be a number from 0 to 10"),
        ({"prompt": "", "temperature": float("nan")}, "temperature must be a number from 0 to 10"),
        ({"prompt": "", "temperature": 10**400}, "temperature must be a number from 0 to 10"),
        ({"prompt": "", "top_p": 0}, "top_p must be a number above 0 to 1"),
        ({"prompt": "", "seed": "x"}, "seed must be an integer"),
        ({"prompt": "", "stop": ""}, "stop must be a non-empty string or a list of them"),
        ({"prompt": "", "stop": [1]}, "stop must be a non-empty string or a list of them"),
        ({"prompt": "", "stop": ["x"] * 65}, "stop may hold at most 64 strings"),
        ({"prompt": "", "stop_token_ids": [-1]}, "stop_token_ids must be a list of token ids"),
        ({"prompt": "", "stream": "yes"}, "stream must be true or false"),
        ({"prompt": "", "stream_options": True}, "stream_options must be an object"),
        ({"prompt": "", "dflash": "on"}, "dflash must be an object"),
        ({"prompt": "", "dflash": {"draft": "maybe"}}, 'dflash.draft must be "auto", "on" or "off"'),
        ({"prompt": "", "dflash": {"block_size": 0}}, "dflash.block_size must be an integer of at least 1"),
        ({"prompt": "", "dflash": {"priority": 3}}, "dflash.priority must be an integer from 0 to 2"),
        ({"prompt": "", "dflash": {"session": 1}}, "dflash.session must be a string"),
        ({"prompt": "", "dflash": {"heal": []}}, "dflash.heal must be a string"),
        ({"prompt": [1, 2]}, "the replay engine takes a string as prompt, not token ids"),
    ],
)
async def test_a_wrong_request_gets_one_line_that_names_the_field(
    http: httpx.AsyncClient, body: object, line: str
) -> None:
    answer = await http.post("/v1/completions", content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"] == line
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "bad_request"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
async def test_a_body_that_is_not_json_gets_one_line(http: httpx.AsyncClient, content: bytes) -> None:
    answer = await http.post("/v1/completions", content=content)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the body is not JSON")


async def test_a_body_without_end_is_refused(http: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(32):
            yield b" " * (1 << 20)

    answer = await http.post("/v1/completions", content=endless())
    assert (answer.status_code, answer.json()["error"]["message"]) == (413, "the body is larger than 16 MiB")


async def test_our_client_says_what_the_engine_said(client: EngineClient) -> None:
    with pytest.raises(BadRequest, match=r"^the replay engine takes a string as prompt, not token ids$"):
        async with client.stream(CompletionRequest(prompt=[1], max_tokens=1)):
            pass


@pytest.mark.parametrize(
    ("path", "body", "status", "line"),
    [
        ("/v1/requests/none", {"cancel": True}, 404, "no such request is running"),
        ("/v1/requests/none", {}, 400, "the body must be an object with priority or cancel"),
        ("/v1/requests/none", {"priority": 7}, 400, "priority must be an integer from 0 to 2"),
        ("/v1/requests/none", {"cancel": 1}, 400, "cancel must be true or false"),
        ("/v1/chat/completions", {}, 404, "no such path"),
        ("/health", {}, 405, "this path does not take that method"),
    ],
)
async def test_every_refusal_is_one_line_in_openais_shape(
    http: httpx.AsyncClient, path: str, body: object, status: int, line: str
) -> None:
    answer = await http.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (status, line)


async def test_health_models_and_metrics_name_the_replay_engine(client: EngineClient, http: httpx.AsyncClient) -> None:
    health = await client.health()
    assert (health.state, health.target, health.device, health.kind) == ("ready", "replay", "replay", "replay")
    assert await client.models() == ["replay:taped"]
    metrics = await http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name in (
        *("dflash_rounds_total", "dflash_tokens_total", "dflash_drafted_tokens_total"),
        *("dflash_accepted_tokens_total", "dflash_prefill_tokens_total", "dflash_reused_tokens_total"),
        *("dflash_running_requests", "dflash_round_seconds_count", 'dflash_engine_state{state="ready"}'),
    ):
        assert f"\n{name} " in metrics.text


@given(text=st.text(), cuts=st.lists(st.integers(0, 60)))
def test_text_does_not_depend_on_where_rounds_cut_its_bytes(text: str, cuts: list[int]) -> None:
    assembly = TextAssembly()
    pieces = [assembly.add(part) for part in _cut(text.encode(), cuts)]
    assert "".join(pieces) + assembly.finish() == text
    assert not any("\ufffd" in piece for piece in pieces) or "\ufffd" in text


@given(
    text=st.text(alphabet="ab<é", max_size=30),
    stop=st.lists(st.text(alphabet="ab<é", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 40)),
)
def test_the_place_of_a_stop_does_not_depend_on_rounds(text: str, stop: list[str], cuts: list[int]) -> None:
    assembly = TextAssembly(tuple(stop))
    shown = ""
    for part in _cut(text.encode(), cuts):
        shown += assembly.add(part)
        assert text.startswith(shown)
    shown += assembly.finish()
    # Character by character: the first stop string that is complete cuts what came before it.
    expected = next(
        (
            min((text[: end - len(each)] for each in stop if text[:end].endswith(each)), key=len)
            for end in range(len(text) + 1)
            if any(text[:end].endswith(each) for each in stop)
        ),
        text,
    )
    assert shown == expected
    assert assembly.stopped == (expected != text or any(text.endswith(each) for each in stop))


def test_an_unfinished_character_at_the_end_becomes_a_replacement() -> None:
    assembly = TextAssembly(("stop",))
    assert assembly.add(b"st" + "😀".encode()[:3]) == ""
    assert assembly.finish() == "st\ufffd"


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]
