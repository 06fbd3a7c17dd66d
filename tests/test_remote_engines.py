"""Our client against a scripted server that answers in the formats of SGLang and vLLM, and against its faults."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from server.engine import left_behind, retry
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
from server.engine.left_behind import MOST, LeftBehind
from server.engine.protocol import Chat
from tests.engines import cancel_many
from tests.scripted_engine import Phase, Script, ScriptedEngine, scripted

IDS = [1, 2, 3]
CHAT = Chat("Continue.", "```python\n", "\n```")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a test's length; which pauses are made is asserted, not how long they are."""
    monkeypatch.setattr(retry, "_backoff", lambda state: 0.001)


def client_of(engine: ScriptedEngine, **more: Any) -> EngineClient:
    stall_s = more.pop("stall_s", 5.0)
    return EngineClient(Endpoint(engine.address, **{"dialect": engine.flavour, **more}), stall_s=stall_s)


async def read(client: EngineClient, *, spelled: dict[int, str] | None = None, **more: Any) -> tuple[str, Any]:
    """Text and summary; `spelled`: what token ids spell, where a tokenizer is there."""
    request = CompletionRequest(**{"prompt": IDS, "max_tokens": 64, **more})
    text_of = (lambda ids: "".join(spelled[id] for id in ids)) if spelled else (lambda ids: "")
    async with client.stream(request, text_of=text_of) as stream:
        return "".join([chunk.text async for chunk in stream]), stream.summary


async def nothing_runs(engine: ScriptedEngine) -> None:
    for _ in range(500):
        if engine.running == 0:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{engine.running} requests still run")


@pytest.mark.parametrize("flavour", ["sglang", "vllm"])
async def test_token_ids_are_sent_and_several_tokens_of_a_chunk_are_counted(flavour: Any) -> None:
    async with scripted(flavour) as engine:
        engine.default = Script(rounds=["def f", "(a):\n    return"], ids=[[5, 6], [7, 8, 9, 10]])
        client = client_of(engine)
        text, summary = await read(client, stop_token_ids=(0,), heal="")
        await client.aclose()
    assert text == "def f(a):\n    return"
    assert (summary.completion_tokens, summary.finish, summary.prompt_tokens) == (6, "stop", 9)
    (body,) = engine.bodies
    assert body["prompt"] == IDS and body["stop_token_ids"] == [0] and body["return_token_ids"] is True
    assert body["stream_options"] == {"include_usage": True} and "dflash" not in body
    assert ("rid" in body, "request_id" in body) == ((flavour == "sglang"), (flavour == "vllm"))


async def test_sglang_tells_the_acceptance_length_of_a_completion() -> None:
    async with scripted("sglang") as engine:
        engine.default = Script(told={"spec_accept_length": 4.5, "spec_verify_ct": 2})
        client = client_of(engine)
        _, summary = await read(client)
        await client.aclose()
    assert (summary.acceptance_length, summary.rounds) == (4.5, 2)


async def test_without_such_numbers_no_acceptance_length_is_made_up() -> None:
    async with scripted("vllm") as engine:
        client = client_of(engine)
        assert (await read(client))[1].acceptance_length == 0.0
        await client.aclose()


async def test_a_request_never_asks_for_more_than_64_tokens() -> None:
    async with scripted("openai") as engine:
        client = client_of(engine)
        await read(client, max_tokens=4096)
        await client.aclose()
    assert engine.bodies[0]["max_tokens"] == 64


async def test_a_stop_string_inside_a_chunk_ends_the_text_and_drops_the_tail() -> None:
    async with scripted("vllm") as engine:
        # The engine runs past the stop, as when several tokens are accepted at once; it comes apart as well.
        engine.default = Script(rounds=["a = 1", "\n``", "` and what comes after", "never read"], round_s=0.01)
        client = client_of(engine)
        text, summary = await read(client, stop=("\n```",))
        assert (text, summary.finish) == ("a = 1", "stop")
        await nothing_runs(engine)
        await client.aclose()


@pytest.mark.parametrize("flavour", ["sglang", "vllm"])
@pytest.mark.parametrize("rounds", [["a = ", "1\nb", " = 2"], ["a = ", "1\nb = 2"]], ids=["apart", "together"])
async def test_a_stop_token_inside_an_accepted_run_ends_the_text(flavour: Any, rounds: list[str]) -> None:
    spelled = {1: "a", 2: " =", 3: " ", 4: "1\n", 0: "", 5: "b", 6: " = 2"}
    ids = [[1, 2, 3], [4, 0, 5], [6]] if len(rounds) == 3 else [[1, 2, 3], [4, 0, 5, 6]]
    async with scripted(flavour) as engine:
        engine.default = Script(rounds=[*rounds, "never read"], ids=[*ids, [7]], round_s=0.01)
        client = client_of(engine)
        text, summary = await read(client, stop_token_ids=(0,), spelled=spelled)
        assert (text, summary.finish) == ("a = 1\n", "stop")
        # Without a tokenizer nobody can tell which of the chunk's text is behind the stop: none of it is shown.
        text, summary = await read(client, stop_token_ids=(0,))
        assert (text, summary.finish) == ("a = ", "stop")
        await nothing_runs(engine)
        await client.aclose()


async def test_text_up_to_a_stop_token_at_the_end_of_a_run_is_kept() -> None:
    async with scripted("vllm") as engine:
        engine.default = Script(rounds=["a = ", "1\n", "b"], ids=[[1, 2, 3], [4, 0], [5]], round_s=0.01)
        client = client_of(engine)
        text, summary = await read(client, stop_token_ids=(0,))
        assert (text, summary.finish) == ("a = 1\n", "stop")
        await nothing_runs(engine)
        await client.aclose()


async def test_a_surrogate_pair_that_comes_in_two_chunks_is_one_character() -> None:
    def event(escaped: str, finish: str = "null") -> bytes:
        return b'data: {"choices": [{"text": "%s", "finish_reason": %s}]}\n\n' % (escaped.encode(), finish.encode())

    async with scripted("openai") as engine:
        engine.default = Script(events=[event("a\\ud83d"), event("\\ude00b"), event("\\ud83d", '"stop"')])
        client = client_of(engine)
        assert (await read(client))[0] == "a\U0001f600b\ufffd"
        await client.aclose()


async def test_characters_may_be_cut_between_packets() -> None:
    whole = json.dumps({"choices": [{"text": "één 漢😀", "finish_reason": "stop"}]}, ensure_ascii=False).encode()
    event = b"data: " + whole + b"\n\n"
    async with scripted("openai") as engine:
        engine.default = Script(events=[event[at : at + 1] for at in range(len(event))])
        client = client_of(engine)
        assert (await read(client))[0] == "één 漢😀"
        await client.aclose()


async def test_one_connection_serves_one_completion_after_the_other() -> None:
    async with scripted("sglang") as engine:
        client = client_of(engine)
        for _ in range(5):
            assert (await read(client))[0] == "one two three"
        await client.aclose()
    assert engine.connections == 1


@pytest.mark.parametrize("phase", [phase for phase in get_args(Phase) if phase])
async def test_a_connection_reset_in_any_phase_is_one_line_or_is_asked_again(phase: Any) -> None:
    async with scripted("sglang") as engine:
        engine.scripts = [Script(reset=phase)]
        client = client_of(engine, model="mimo")
        if phase in ("connect", "body"):
            assert (await read(client))[0] == "one two three"
            assert client.retried == 1
        else:
            with pytest.raises(EngineUnavailable, match="broke off its answer"):
                await read(client)
            assert client.retried == 0
        assert (await read(client))[0] == "one two three"
        await nothing_runs(engine)
        await client.aclose()


async def test_a_connection_that_is_always_reset_is_given_up_after_three_tries() -> None:
    async with scripted("vllm") as engine:
        engine.default = Script(reset="body")
        client = client_of(engine, model="mimo")
        with pytest.raises(EngineUnavailable):
            await read(client)
        await client.aclose()
    assert engine.paths == ["/v1/completions"] * 3


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_engine_is_asked_again_when_it_says_so(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    pause = retry._pause
    monkeypatch.setattr(retry, "_pause", lambda state: pauses.append(pause(state)) or 0.0)
    async with scripted("vllm") as engine:
        busy = Script(status=status, headers={"Retry-After": "1"}, body=b'{"error": {"message": "queue full"}}')
        engine.scripts = [busy, busy]
        client = client_of(engine)
        assert (await read(client))[0] == "one two three"
        await client.aclose()
    assert client.retried == 2
    assert all(1.0 <= each <= 1.25 for each in pauses) and len(pauses) == 2


async def test_a_longer_wait_than_a_typist_has_is_not_waited_for() -> None:
    async with scripted("sglang") as engine:
        for said, seconds in (
            ({"Retry-After": "30"}, 30.0),
            (
                {"Retry-After": "Mon, 30 Nov 2026 12:01:00 GMT", "Date": "Mon, 30 Nov 2026 12:00:00 GMT"},
                60.0,
            ),
        ):
            engine.scripts = [Script(status=503, headers=said)]
            client = client_of(engine)
            with pytest.raises(EngineBusy) as raised:
                await read(client)
            assert raised.value.retry_after_s == seconds and client.retried == 0
            await client.aclose()


async def test_a_queue_that_is_full_can_also_be_said_inside_the_stream() -> None:
    error = {"object": "error", "message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "code": 503}
    async with scripted("sglang") as engine:
        engine.default = Script(events=[b"data: " + json.dumps({"error": error}).encode() + b"\n\n"])
        client = client_of(engine)
        with pytest.raises(EngineBusy, match=r"^The request queue is full\.$"):
            await read(client)
        await client.aclose()


async def test_a_truncated_stream_is_one_line() -> None:
    async with scripted("vllm") as engine:
        engine.scripts = [Script(truncated=True)]
        client = client_of(engine)
        with pytest.raises(EngineError, match="broke off"):
            await read(client)
        assert (await read(client))[0] == "one two three"
        await client.aclose()


@pytest.mark.parametrize(
    "garbage",
    [
        b"data: {nonsense\n\n",
        b'data: {"choices": [{"text": 7}]}\n\n',
        b'data: {"choices": [], "usage": 3}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"choices": [{"text": "a", "token_ids": ["x"]}]}\n\n',
    ],
)
async def test_malformed_json_is_one_line_and_ends_nothing_else(garbage: bytes) -> None:
    async with scripted("sglang") as engine:
        engine.scripts = [Script(events=[garbage])]
        client = client_of(engine)
        with pytest.raises(EngineError, match="the engine's answer") as raised:
            await read(client)
        assert "\n" not in str(raised.value)
        assert (await read(client))[0] == "one two three"
        await client.aclose()


async def test_a_first_byte_that_does_not_come_is_given_up() -> None:
    async with scripted("sglang") as engine:
        engine.scripts = [Script(first_byte_s=30.0)]
        client = client_of(engine, stall_s=0.2)
        with pytest.raises(EngineStalled, match="has stopped answering"):
            await read(client)
        await nothing_runs(engine)
        await client.aclose()


async def test_a_cancelled_request_is_aborted_by_its_id_and_counted() -> None:
    async with scripted("sglang") as engine:
        engine.default = Script(rounds=["x"] * 60, round_s=0.05)
        client = client_of(engine)
        async with client.stream(CompletionRequest(prompt=IDS, max_tokens=64)) as stream:
            async for _ in stream:
                break
        await nothing_runs(engine)
        await client.aclose()
    assert engine.aborted == [engine.bodies[0]["rid"]]
    ledger = client.left_behind
    assert (ledger.cancelled, ledger.unheard) == (1, 0)
    assert 0 < ledger.tokens < 64


async def test_cancelling_a_stream_leaves_a_summary_of_what_came() -> None:
    async with scripted("vllm") as engine:
        engine.default = Script(rounds=["x"] * 60, ids=[[1, 2]] * 60, round_s=0.05)
        client = client_of(engine)
        async with client.stream(CompletionRequest(prompt=IDS, max_tokens=64)) as stream:
            async for _ in stream:
                await stream.cancel()
            assert stream.summary is not None
            assert (stream.summary.finish, stream.summary.completion_tokens) == ("cancelled", 2)
        await nothing_runs(engine)
        await client.aclose()


@pytest.mark.parametrize("flavour", ["sglang", "vllm"])
async def test_of_a_thousand_cancelled_requests_none_runs_on(flavour: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the scripted server in a process of its own; tests/test_engine_resident.py has our own engine."""
    # The ledger would, rightly, let only a few through at a time.
    monkeypatch.setattr(left_behind, "MOST", 10**6)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.scripted_engine", flavour),
        cwd=Path(__file__).parents[1],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdin is not None
    address = (await process.stdout.readline()).decode().strip()
    client = EngineClient(Endpoint(address, dialect=flavour, model="mimo"))
    try:
        await cancel_many(client, CompletionRequest(prompt=IDS, max_tokens=64), 1000)
        await client.aclose()
        async with httpx.AsyncClient(base_url=address, trust_env=False) as http:
            for _ in range(500):
                seen = (await http.get("/scripted")).json()
                if seen["running"] == 0:
                    break
                await asyncio.sleep(0.01)
        assert seen["running"] == 0 and seen["most_running"] > 1
        assert client.left_behind.cancelled >= len(seen["asked"]) > 300
        if flavour == "sglang":
            assert set(seen["asked"]) <= set(seen["aborted"])
    finally:
        process.stdin.close()
        await process.wait()


async def test_an_engine_that_misses_every_abort_has_few_left_behind() -> None:
    """As SGLang was reported to: neither the disconnect nor the abort has an effect."""
    async with scripted("sglang", deaf=True) as engine:
        engine.default = Script(rounds=["x"] * 60, round_s=0.5)  # zombies that outlive the test
        client = client_of(engine)
        for _ in range(20):
            client.left_behind.measured(0.25)

        async def giving_up() -> None:
            for _ in range(3 * MOST):
                async with client.stream(CompletionRequest(prompt=IDS, max_tokens=64)) as stream:
                    async for _ in stream:
                        break

        task = asyncio.ensure_future(giving_up())
        while len(engine.aborted) < MOST:
            await asyncio.wait({task}, timeout=0.05)
        await asyncio.wait({task}, timeout=0.3)
        assert (engine.running, client.left_behind.cancelled, task.done()) == (MOST, MOST, False)
        task.cancel()
        await asyncio.wait({task})
        await client.aclose()


def test_what_was_left_behind_is_forgotten_when_it_must_have_ended() -> None:
    now = [0.0]
    ledger = LeftBehind(now=lambda: now[0])
    for _ in range(MOST):
        ledger.left(64)
    assert ledger.possibly_running == MOST
    now[0] = 2.0
    assert ledger.possibly_running == 0
    assert (ledger.cancelled, ledger.tokens) == (MOST, 64 * MOST)


async def test_an_engine_that_refuses_raw_completions_is_asked_in_a_chat() -> None:
    async with scripted("vllm") as engine:
        engine.refuses = {"/v1/completions": 404}
        engine.default = Script(rounds=[" a + b", "\n```\nThat adds them."])
        client = client_of(engine)
        asked = {"prompt": "def f(a, b):\n    return", "chat": CHAT}
        for _ in range(2):
            assert (await read(client, **asked))[0] == " a + b"
        with pytest.raises(BadRequest, match="takes no completions"):
            await read(client)
        await client.aclose()
    # It is refused once, and remembered.
    assert engine.paths.count("/v1/completions") == 1
    body = engine.bodies[0]
    begun = {"role": "assistant", "content": "```python\ndef f(a, b):\n    return"}
    assert body["messages"] == [{"role": "user", "content": "Continue."}, begun]
    assert body["continue_final_message"] is True and body["add_generation_prompt"] is False
    assert body["chat_template_kwargs"] == {"enable_thinking": False} and "prompt" not in body


async def test_a_profile_may_forbid_or_demand_the_chat() -> None:
    async with scripted("openai") as engine:
        engine.refuses = {"/v1/completions": 405}
        client = client_of(engine, api="completions")
        with pytest.raises(BadRequest, match=r"^no /v1/completions here$"):
            await read(client, prompt="x", chat=CHAT)
        await client.aclose()
        client = client_of(engine, api="chat")
        assert (await read(client, prompt="x", chat=CHAT))[0] == "one two three"
        await client.aclose()
    assert engine.paths[-1] == "/v1/chat/completions"
    assert not {"continue_final_message", "rid", "request_id"} & engine.bodies[-1].keys()


async def test_joints_of_broken_special_strings_are_taken_out_of_the_answer() -> None:
    async with scripted("openai") as engine:
        engine.default = Script(rounds=['END = "<\u2060', '|im_end|>"'])
        client = client_of(engine)
        assert (await read(client, prompt="x", joint="\u2060"))[0] == 'END = "<|im_end|>"'
        assert (await read(client, prompt="x"))[0] == 'END = "<\u2060|im_end|>"'
        await client.aclose()


async def test_a_redirect_is_not_followed() -> None:
    async with scripted("openai") as other, scripted("openai") as engine:
        engine.default = Script(status=307, headers={"Location": f"{other.address}/v1/completions"})
        client = client_of(engine)
        with pytest.raises(EngineError, match="leads elsewhere"):
            await read(client)
        await client.aclose()
    assert other.connections == 0


async def test_an_engine_that_lists_no_model_needs_one_named() -> None:
    async with scripted("openai") as engine:
        engine.refuses = {"/v1/models": 404}
        client = client_of(engine)
        with pytest.raises(EngineError, match="lists no model: name one in the profile"):
            await read(client)
        await client.aclose()
        client = client_of(engine, model="named")
        await read(client)
        await client.aclose()
    assert engine.bodies[0]["model"] == "named"


async def test_closing_the_client_ends_what_runs() -> None:
    async with scripted("sglang") as engine:
        engine.default = Script(rounds=["x"] * 60, round_s=0.05)
        client = client_of(engine)
        stream = client.stream(CompletionRequest(prompt=IDS, max_tokens=64))
        await stream.__aenter__()
        await client.aclose()
        await nothing_runs(engine)
        with pytest.raises(EngineError):
            async for _ in stream:
                pass
        await stream.__aexit__(None, None, None)
