"""A shared engine that fails is left alone, said once, stood in for, and gone back to when it answers again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from server import paths
from server.documents.positions import Position
from server.engine import retry
from server.engine.breaker import LONGEST_PAUSE_S, CircuitBreaker
from server.engine.engine_metrics import EngineLoad, MetricsReader
from server.engine.launcher import stop_engine
from server.profiles import load_profile
from server.settings import Settings
from server.window import Window
from tests.engines import own_directories
from tests.scripted_engine import Script, scripted

LOCAL = '{"after": "= ", "text": "1  # local", "chunks": ["1", "  # local"]}'
URI = "file:///work/a.py"
BUSY = Script(status=503, body=b'{"error": {"message": "down for repair"}}')


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", lambda state: 0.001)


@pytest.fixture
def directories() -> Iterator[Path]:
    with own_directories() as root:
        yield root


def write_profiles(address: str, more: str = "", text: str = "heal = false") -> None:
    folder = paths.config_dir() / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "local.jsonl").write_text(LOCAL)
    (folder / "local.toml").write_text('[engine]\nkind = "replay"\nrecording = "local.jsonl"\n')
    (folder / "team.toml").write_text(
        f'[engine]\nkind = "remote"\naddress = "{address}"\nfall_back = "local"\n{more}\n[text]\n{text}\n'
    )


@asynccontextmanager
async def window() -> AsyncIterator[tuple[Window, list[dict[str, Any]], list[str]]]:
    statuses: list[dict[str, Any]] = []
    complaints: list[str] = []
    made = Window(statuses.append, complaints.append)
    made.settings = Settings(profile="team")
    made.documents.open(URI, "".join(f"v{line:03} = \n" for line in range(400)), version=1, language="python")
    await made.start()
    try:
        yield made, statuses, complaints
    finally:
        await made.aclose()
        await stop_engine(load_profile("local"))


LINES = count()  # each request on a line of its own, so that none is answered from what was shown or kept


async def text_at(made: Window) -> str:
    results = await made.complete(URI, Position(next(LINES) % 400, 7))
    return results[0].text if results else ""


async def until_text(made: Window, wanted: str) -> None:
    for _ in range(200):
        if await text_at(made) == wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never offered {wanted!r}")


async def nothing_at(made: Window, times: int) -> None:
    for _ in range(times):
        assert await text_at(made) == ""


async def test_an_engine_that_fails_is_stood_in_for_and_gone_back_to(directories: Path) -> None:
    async with scripted("openai") as engine:
        engine.default = Script(rounds=["2  # re", "mote"], finish="stop")
        write_profiles(engine.address)
        async with window() as (made, statuses, complaints):
            await until_text(made, "2  # remote")
            assert statuses[-1]["profile"] == "team"
            engine.default = BUSY
            await nothing_at(made, 3)
            asked = len(engine.bodies)
            await until_text(made, "1  # local")
            assert complaints == ["down for repair: profile local completes until it answers"]
            assert (statuses[-1]["profile"], statuses[-1]["reason"]) == ("local", "instead of team: down for repair")
            # It is asked seldom, with nothing of the user's text.
            assert all(body["prompt"] == "x =" for body in engine.bodies[asked:])
            engine.default = Script(rounds=["2  # remote"])
            await until_text(made, "2  # remote")
            assert statuses[-1]["profile"] == "team"
    assert len(complaints) == 1


async def test_an_engine_that_is_not_there_is_stood_in_for_at_once(directories: Path) -> None:
    write_profiles("http://127.0.0.1:9")
    async with window() as (made, _, complaints):
        await until_text(made, "1  # local")
    assert complaints == ["no engine answers at http://127.0.0.1:9: profile local completes until it answers"]


async def test_a_fall_back_that_is_remote_as_well_does_not_stand_in(directories: Path) -> None:
    write_profiles("http://127.0.0.1:9")
    folder = paths.config_dir() / "profiles"
    (folder / "team.toml").write_text(
        '[engine]\nkind = "remote"\naddress = "http://127.0.0.1:9"\nfall_back = "openai-compatible"\n'
    )
    async with window() as (made, _, complaints):
        for _ in range(100):
            await text_at(made)
            if len(complaints) > 1:
                break
            await asyncio.sleep(0.02)
    assert complaints[1] == "no completions: profile openai-compatible is remote as well, and cannot stand in"


async def test_nothing_is_generated_past_the_unit_or_ahead_on_a_shared_engine(directories: Path) -> None:
    async with scripted("openai") as engine:
        engine.default = Script(rounds=["2\n", "o = 3\n", *["p = 4\n"] * 50], round_s=0.01)
        write_profiles(engine.address)
        async with window() as (made, _, _):
            await until_text(made, "2")
            for _ in range(100):
                if not engine.running:
                    break
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)  # longer than the pause before a warm-up
            assert (engine.running, len(engine.bodies)) == (0, 1)


async def test_acceptance_is_read_from_the_engines_metrics_and_shown(directories: Path) -> None:
    async with scripted("vllm") as engine:
        engine.default = Script(rounds=["2  # re", "mote"])
        engine.metrics = VLLM
        write_profiles(engine.address, 'dialect = "vllm"')
        async with window() as (made, statuses, _):
            await until_text(made, "2  # remote")
            for _ in range(100):
                if statuses[-1]["acceptance_length"]:
                    break
                await asyncio.sleep(0.02)
            assert statuses[-1]["acceptance_length"] == 4.5
            assert statuses[-1]["tokens_per_s"] > 0


VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 350.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 450.0
"""
SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 7.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2.0
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{model_name="m",tp_rank="0"} 5.25
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m",is_streaming="true"} 90.0
"""


def test_metrics_are_read_by_the_engines_names() -> None:
    assert MetricsReader().read(SGLANG) == EngineLoad(5.25, 7, 2, 90)
    assert MetricsReader().read(VLLM) == EngineLoad(4.5, 5, 1, 450)
    for other in ("", "# TYPE up gauge\nup 1\n", "<html>", "vllm:num_requests_running{ 3"):
        assert MetricsReader().read(other) is None


def test_counters_are_read_for_the_time_since_they_were_read_last() -> None:
    reader = MetricsReader()
    reader.read(VLLM)
    later = VLLM.replace(" 100.0", " 110.0").replace(" 350.0", " 360.0")
    assert (load := reader.read(later)) is not None and load.acceptance_length == 2.0
    # Nothing new, and then an engine that was started anew: what there is counts.
    assert (load := reader.read(later)) is not None and load.acceptance_length == 4.27
    assert (load := reader.read(VLLM)) is not None and load.acceptance_length == 4.5


def test_a_breaker_opens_after_failures_in_a_row_and_for_longer_each_time() -> None:
    now = [0.0]
    breaker = CircuitBreaker(now=lambda: now[0])
    assert not breaker.failed() and not breaker.failed()
    breaker.succeeded()
    assert not breaker.failed() and not breaker.failed() and breaker.failed()
    pauses = []
    for _ in range(9):
        begun = now[0]
        assert breaker.state == "open"
        while breaker.state == "open":
            now[0] += 0.01
        pauses.append(now[0] - begun)
        assert breaker.state == "half open"
        assert breaker.failed()
    assert all(before * 1.6 < after for before, after in pairwise(pauses[:6]))
    assert max(pauses) <= 1.2 * LONGEST_PAUSE_S + 0.1
    breaker.succeeded()
    assert breaker.state == "closed"
    breaker.trip(retry_after_s=30)
    now[0] += 29.9
    assert breaker.state == "open"
