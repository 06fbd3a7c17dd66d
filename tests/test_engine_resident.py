"""The resident engine with the real embedded target, as a process, over its socket.

Its draft here has random weights: it is wrong nearly always, which must not change a character of the text.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from core.tiny import draft_config, write_draft
from engines import CANCELLED, cancel_many, count, engine, nothing_runs, own_directories, rounds_when_ended, stop

from dflash_core import Engine, Generation, GenerationRequest, Step
from server.context.tokenizer import PromptTokenizer
from server.engine.backend import Ending
from server.engine.client import (
    BadRequest,
    CompletionChunk,
    CompletionRequest,
    CompletionSummary,
    EngineClient,
    EngineError,
    EngineHealth,
    EngineLoading,
)
from server.engine.launcher import ensure_engine
from server.engine.resident.backend import Loaded, ResidentBackend
from server.engine.whereabouts import EngineFiles
from server.monitoring.metrics import Metrics
from server.paths import asset
from server.profiles import Profile, load_profile

TOKENIZER = asset("embedded", "tokenizer.json")
CODE = "# numbers.py\ndef add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n"


@dataclass
class Start:
    """What was seen while the engine came up."""

    profile: Profile
    refusal: EngineLoading | None = None
    status: int = 0
    retry_after: str | None = None
    states: list[EngineHealth] = field(default_factory=list)


def write_profile(root: Path, target: Path) -> Profile:
    draft = write_draft(
        root / "draft",
        draft_config(
            **{"hidden_size": 576, "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": 49152},
            **{"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "num_target_layers": 30},
            dflash={"target_layer_ids": [0, 14, 29], "mask_token_id": 5},
        ),
    )
    file = root / "real.toml"
    file.write_text(
        f'[engine]\nkind = "resident"\ndtype = "float32"\ncontext = 512\n[target]\npath = "{target}"\n'
        f'[draft]\npath = "{draft}"\n[prompt]\ntokenizer = "{TOKENIZER}"\nstop_ids = [0, 2]\nbudget = 256\n'
    )
    return load_profile(str(file))


@pytest.fixture(scope="module")
def start(embedded_target: Path) -> Iterator[Start]:
    async def bring_up(start: Start) -> None:
        client = await ensure_engine(start.profile, wait_ready=False)
        try:
            async with client.stream(CompletionRequest(prompt="x", max_tokens=1)):
                pass
        except EngineLoading as refusal:
            start.refusal = refusal
        async with plain(start.profile) as http:
            answer = await http.post("/v1/completions", json={"prompt": "x"})
            start.status, start.retry_after = answer.status_code, answer.headers.get("retry-after")
        await client.aclose()
        await (await ensure_engine(start.profile, on_health=start.states.append)).aclose()

    with own_directories() as root:
        made = Start(write_profile(root, embedded_target))
        try:
            asyncio.run(bring_up(made))
            yield made
        finally:
            stop(made.profile)


@pytest.fixture
async def client(start: Start) -> AsyncIterator[EngineClient]:
    made = await ensure_engine(start.profile)
    await nothing_runs(made)
    yield made
    await made.aclose()


@pytest.fixture(scope="module")
def tokenizer() -> PromptTokenizer:
    return PromptTokenizer.from_file(TOKENIZER)


def plain(profile: Profile) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(EngineFiles.of(profile).socket), verify=False)
    return httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60)


async def complete(
    client: EngineClient, prompt: str | list[int], max_tokens: int = 12, **more: Any
) -> tuple[list[CompletionChunk], CompletionSummary]:
    async with client.stream(CompletionRequest(prompt=prompt, max_tokens=max_tokens, **more)) as stream:
        chunks = [chunk async for chunk in stream]
    assert stream.summary is not None
    return chunks, stream.summary


def text_of(chunks: list[CompletionChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_while_it_loads_it_says_how_far_it_is_and_refuses_completions(start: Start) -> None:
    assert start.refusal is not None
    assert start.refusal.health.state == "loading"
    assert (start.status, start.retry_after) == (503, "1")
    assert {health.state for health in start.states} == {"loading", "ready"}
    shares = [health.progress for health in start.states if health.progress is not None]
    assert shares == sorted(shares)
    assert len(set(shares)) > 2
    ready = start.states[-1]
    assert (ready.state, ready.device, ready.dtype, ready.context) == ("ready", "cpu", "float32", 512)
    assert "llama" in ready.target
    assert "block 8" in ready.draft
    assert ready.memory is not None
    assert ready.memory > 500_000_000


async def test_a_wrong_draft_changes_nothing_but_the_speed(client: EngineClient) -> None:
    with_draft, on = await complete(client, CODE, draft="on")
    without, off = await complete(client, CODE, draft="off")
    assert text_of(with_draft) == text_of(without) != ""
    assert [id for chunk in with_draft for id in chunk.token_ids] == [id for chunk in without for id in chunk.token_ids]
    assert sum(chunk.drafted for chunk in with_draft) > 0
    assert sum(chunk.drafted for chunk in without) == 0
    assert (off.rounds, off.completion_tokens, off.acceptance_length) == (12, 12, 1.0)
    assert on.completion_tokens == 12
    assert all(len(chunk.token_ids) == chunk.accepted + 1 for chunk in with_draft)


async def test_metrics_count_what_the_chunks_said(client: EngineClient) -> None:
    names = ("rounds", "tokens", "drafted_tokens", "accepted_tokens", "prefill_tokens", "reused_tokens")
    before = [await count(client, f"dflash_{name}_total") for name in names]
    chunks, summary = await complete(client, "# a new prompt\n" + CODE, draft="on")
    after = [await count(client, f"dflash_{name}_total") for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [
        *(summary.rounds, summary.completion_tokens, sum(chunk.drafted for chunk in chunks)),
        *(sum(chunk.accepted for chunk in chunks), summary.prefill_tokens, summary.reused_tokens),
    ]
    assert len(chunks) == summary.rounds
    assert summary.prefill_tokens > 0


async def test_special_strings_in_a_text_prompt_stay_text(client: EngineClient, tokenizer: PromptTokenizer) -> None:
    prompt = "# <|im_start|>user<|endoftext|>\n" + CODE
    ids = tokenizer.encode(prompt)
    assert not {0, 1, 2} & set(ids)
    as_text, summary = await complete(client, prompt)
    as_ids, _ = await complete(client, ids)
    assert summary.prompt_tokens == len(ids)
    assert text_of(as_text) == text_of(as_ids)


async def test_a_character_of_several_tokens_is_shown_whole(client: EngineClient, tokenizer: PromptTokenizer) -> None:
    assert len(tokenizer.encode("🦜🦜")) > 2
    birds = [0, *tokenizer.encode("birds = '🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜🦜")]
    chunks, _ = await complete(client, birds, 12, draft="off")
    assert "🦜" in text_of(chunks)
    assert "" in [chunk.text for chunk in chunks]
    assert not any("\ufffd" in chunk.text for chunk in chunks[:-1])


async def test_stop_strings_and_stop_ids_end_the_text(client: EngineClient, tokenizer: PromptTokenizer) -> None:
    code = [0, *tokenizer.encode(CODE + "    return")]
    whole = text_of((await complete(client, code))[0])
    assert "\n" in whole.strip()
    chunks, summary = await complete(client, code, stop=("\n",), draft="on")
    assert (text_of(chunks), summary.finish) == (whole.split("\n")[0], "stop")
    newline = next(id for id in tokenizer.encode(whole) if "\n" in tokenizer.decode([id]))
    chunks, summary = await complete(client, code, stop_token_ids=(newline,), draft="on")
    assert (text_of(chunks), summary.finish) == (whole[: len(text_of(chunks))], "eos")
    assert "\n" not in text_of(chunks)


async def test_healed_text_is_spelled_and_left_out(client: EngineClient) -> None:
    chunks, _ = await complete(client, "def add(a, b):\n   ", 6, heal=" ret")
    assert text_of(chunks).startswith("urn a + b")


async def test_a_warmed_up_prompt_is_not_computed_again(client: EngineClient) -> None:
    prompt = "# warm.py\n" + CODE
    chunks, warm = await complete(client, prompt, 0, session="warm", priority=2)
    assert (chunks, warm.rounds) == ([], 0)
    assert warm.prefill_tokens > 0
    _, after = await complete(client, prompt, 2, session="warm")
    assert (after.prefill_tokens, after.reused_tokens) == (0, warm.prefill_tokens + warm.reused_tokens)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_stops_the_model_within_one_round(
    client: EngineClient, start: Start, stream: bool
) -> None:
    before, ended = await count(client, "dflash_rounds_total"), await count(client, CANCELLED)
    if stream:
        async with client.stream(CompletionRequest(prompt=CODE, max_tokens=400)) as running:
            async for _ in running:
                break
    else:
        async with plain(start.profile) as http:
            with pytest.raises(httpx.ReadTimeout):
                body = {"prompt": CODE, "max_tokens": 400}
                await http.post("/v1/completions", json=body, timeout=httpx.Timeout(5, read=0.5))
    seen = await rounds_when_ended(client, ended)
    await nothing_runs(client)
    after = await count(client, "dflash_rounds_total")
    assert after - seen <= 1
    assert after - before < 200


async def test_of_a_thousand_cancelled_requests_none_runs_on(client: EngineClient) -> None:
    before = text_of((await complete(client, CODE))[0])
    cancelled = await count(client, CANCELLED)
    await cancel_many(client, CompletionRequest(prompt=CODE, max_tokens=64), 1000, read_every=20)
    await nothing_runs(client)
    # Those that had text; of the others many, on a busy machine most, had left before they began.
    assert await count(client, CANCELLED) - cancelled >= 1000 // 20
    assert text_of((await complete(client, CODE))[0]) == before


async def test_an_urgent_request_overtakes_a_speculative_one(client: EngineClient) -> None:
    ended: list[int] = []

    async def ask(prompt: str, priority: int) -> None:
        await complete(client, prompt, 10, priority=priority)
        ended.append(priority)

    speculative = asyncio.create_task(ask(CODE, 2))
    before = await count(client, "dflash_rounds_total")
    while await count(client, "dflash_rounds_total") == before:  # noqa: ASYNC110 (it runs in another process)
        await asyncio.sleep(0.01)
    # In turns, the one that began first would end first.
    await asyncio.gather(speculative, ask("import ", 0))
    assert ended == [0, 2]


async def test_healing_that_cannot_be_spelled_is_refused_in_one_line_and_the_engine_goes_on(
    client: EngineClient, start: Start, tokenizer: PromptTokenizer
) -> None:
    unspellable = bytes([min(tokenizer.missing_bytes)]).decode()
    line = "the text to heal cannot be spelled with this tokenizer"
    with pytest.raises(BadRequest) as raised:
        await complete(client, CODE, heal=unspellable)
    assert str(raised.value) == line
    async with plain(start.profile) as http:
        answer = await http.post("/v1/completions", json={"prompt": CODE, "dflash": {"heal": unspellable}})
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, line)
    assert text_of((await complete(client, CODE, 4))[0]) != ""


@pytest.mark.parametrize(
    ("prompt", "line"),
    [
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([7] * 600, "the prompt has 600 tokens, the context holds 512"),
        # Refused before it is tokenised, which would hold up every other request for a minute.
        ("word " * 2_000_000, "the prompt is longer than the 512 tokens the context holds"),
        ([49152], "the prompt holds a token outside the vocabulary of 49152"),
    ],
)
async def test_a_prompt_that_cannot_be_served_is_one_line(
    client: EngineClient, prompt: str | list[int], line: str
) -> None:
    with pytest.raises(BadRequest) as raised:
        await complete(client, prompt)
    assert str(raised.value) == line


def test_told_to_end_while_it_loads_it_ends_cleanly(embedded_target: Path) -> None:
    with own_directories() as root:
        profile = write_profile(root, embedded_target)
        command = [sys.executable, "-P", "-m", "server.engine.resident", "--profile", str(profile.file)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        # Its first line comes when it listens; importing torch alone takes longer than the rest of the test.
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[1]
        assert process.returncode == 0, rest
        assert "at unix:" in first
        assert rest.endswith("ended\n")
        assert [path.suffix for path in EngineFiles.of(profile).directory.iterdir()] == [".lock"]


async def test_an_engine_that_is_killed_while_it_loads_is_one_line(embedded_target: Path) -> None:
    def kill(health: EngineHealth) -> None:
        assert health.state == "loading"
        assert health.pid is not None
        os.kill(health.pid, signal.SIGKILL)  # as a system out of memory does

    with own_directories() as root:
        profile = write_profile(root, embedded_target)
        with pytest.raises(EngineError) as raised:
            await ensure_engine(profile, on_health=kill)
        log = EngineFiles.of(profile).log
        assert str(raised.value) == f"the engine was ended by signal 9 while it started; its log is {log}"


class FakeEngine:
    """A core whose own bookkeeping fails, which the real one is not known to do; it keeps what was cancelled."""

    shortfall = ""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.waiting: list[Generation] = []

    def submit(self, request: GenerationRequest) -> Generation:
        self.waiting.append(Generation(request, number=len(self.waiting) + 1))
        return self.waiting[-1]

    def step(self) -> Step | None:
        if not self.waiting:
            return None
        if self.failures:
            self.failures -= 1
            raise RuntimeError("device lost\nmore about it")
        generation = self.waiting.pop(0)
        generation.finish = "cancelled" if generation.cancelled else "eos"
        return Step(generation, None)

    def describe(self) -> dict[str, Any]:
        return dict.fromkeys(("target", "draft", "device", "dtype")) | {"memory_bytes": 0, "context": 9}


@pytest.mark.parametrize(("failures", "state"), [(1, "ready"), (2, "failed")])
async def test_a_failure_of_the_engine_itself_ends_all_and_a_lasting_one_is_its_state(
    start: Start, monkeypatch: pytest.MonkeyPatch, tokenizer: PromptTokenizer, failures: int, state: str
) -> None:
    backend = ResidentBackend(start.profile, Metrics())
    fake = cast(Engine, FakeEngine(failures))
    monkeypatch.setattr(backend, "_load", lambda: Loaded(fake, tokenizer))
    backend.start()
    while backend.health().state == "loading":  # noqa: ASYNC110 (the engine thread has no event to wait for)
        await asyncio.sleep(0.01)
    first = backend.submit(CompletionRequest(prompt=[1], max_tokens=1))
    ending = await first.next_event()
    assert isinstance(ending, Ending)
    assert (ending.finish, ending.reason) == ("error", "RuntimeError: device lost")
    if state == "ready":
        assert await backend.submit(CompletionRequest(prompt=[1], max_tokens=1)).next_event() == Ending("eos")
    else:
        while backend.health().state == "ready":  # noqa: ASYNC110 (the engine thread has no event to wait for)
            await asyncio.sleep(0.01)
        assert backend.health().reason == "RuntimeError: device lost"
    assert backend.health().state == state
    backend.stop()


async def test_an_engine_whose_draft_has_no_room_serves_without_it_and_its_health_says_so(start: Start) -> None:
    # Room for the target's weights and one session of it, and for nothing of the draft's.
    weights = (start.profile.target.path / "model.safetensors").stat().st_size * 2 if start.profile.target else 0
    text = start.profile.file.read_text(encoding="utf-8")
    file = start.profile.file.with_name("short.toml")
    file.write_text(text.replace("context = 512", f"context = 512\nmemory_limit = {weights + 29_000_000}"))
    profile = load_profile(str(file))
    async with engine(profile) as short:
        health = await short.health()
        assert (health.state, health.reason) == ("degraded", "out of memory: draft dropped")
        assert health.draft == ""
        assert health.memory is not None and health.memory <= weights + 29_000_000
        chunks, _ = await complete(short, CODE)
        assert text_of(chunks) != ""
