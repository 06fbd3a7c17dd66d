"""One generation per document on a real engine process: the newest wins, and nothing runs on unwanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from engines import CANCELLED, count, replay_profile, rounds_when_ended

from server.completion.engine_link import LinkListener
from server.completion.request import CompletionOptions, Growth
from server.completion.result import CompletionResult
from server.completion.service import CompletionService
from server.documents.document import Document, Place
from server.documents.positions import Position, Range
from server.engine import breaker
from server.engine.client import EngineClient
from server.engine.launcher import stop_engine
from server.engine.protocol import EngineHealth
from server.profiles import Profile

LONG = [f"    x{number} = {number}\n" for number in range(200)]
LONG_ROUND_MS = 400  # beside which it is no time in which an engine is told, on a busy machine too
ENTRIES: list[dict[str, object]] = [
    {"after": "def endless():\n", "text": "".join(LONG), "chunks": LONG, "delay_ms": 20},
    {
        "after": "def two(a):\n",
        "text": "    b = a\n    return b\n\n\ndef three():\n    pass\n" + "".join(LONG),
        "chunks": ["    b = a\n", "    return b\n", "\n\ndef three():\n", "    pass\n", *LONG],
        "delay_ms": LONG_ROUND_MS,
    },
    {"after": "short = ", "text": "[1, 2]", "chunks": ["[1,", " 2]"]},
    {"after": "done = 1\n", "text": "\n\n\n"},
]
TRIES = 2000  # of 10 ms: an engine process has started by then, on a busy machine too


@pytest.fixture
async def service(profile: Profile) -> AsyncIterator[CompletionService]:
    service = CompletionService(profile)
    await service.link.connect()
    yield service
    await service.aclose()


def own_profile(directories: Path, name: str) -> Profile:
    """A profile with an engine of its own, for a test that ends it."""
    folder = directories / name
    folder.mkdir()
    return replay_profile(folder, ENTRIES)


def document(text: str, name: str = "a.py") -> Document:
    return Document(f"file:///{name}", text, language="python")


async def complete(service: CompletionService, document: Document, **options: object) -> CompletionResult:
    """The completion at the end of a document."""
    last = len(document.lines) - 1
    return await service.complete(
        document, Place(last, len(document.lines[last])), "a.py", CompletionOptions(**options)
    )


async def begun(engine: EngineClient, rounds: float) -> None:
    """Wait until the engine has run a round more than `rounds`."""
    for _ in range(TRIES):
        if await count(engine, "dflash_rounds_total") > rounds:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the generation did not begin")


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(TRIES):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


async def test_the_completion_ends_at_the_boundary_and_the_engine_is_told(
    service: CompletionService, engine: EngineClient
) -> None:
    await complete(service, document("short = "), exact_stats=True)  # loads the grammar, which takes rounds
    cancelled, rounds = await count(engine, CANCELLED), await count(engine, "dflash_rounds_total")
    result = await complete(service, document("def two(a):\n"), exact_stats=True)
    assert (result.text, result.finish, result.reason) == ("    b = a\n    return b", "boundary", "boundary")
    assert result.range == Range(Position(1, 0), Position(1, 0))
    # Three rounds were needed to see the next definition; one more may have been running.
    ended = await rounds_when_ended(engine, cancelled)
    assert ended - rounds <= 4
    assert result.stats.engine == result.stats.device == "replay"
    assert result.stats.rounds == ended - rounds
    assert 0 < result.stats.first_ms <= result.stats.total_ms


async def test_without_exact_stats_the_answer_does_not_wait_for_the_engine(
    service: CompletionService, engine: EngineClient
) -> None:
    cancelled = await count(engine, CANCELLED)
    result = await complete(service, document("def two(a):\n"))
    assert result.text == "    b = a\n    return b"
    await rounds_when_ended(engine, cancelled)
    await until(lambda: service.pace.tokens_per_s > 0)
    assert service.pace.acceptance_length == 1.0


async def test_a_stream_that_ends_first_is_a_whole_completion(service: CompletionService) -> None:
    result = await complete(service, document("short = "))
    assert (result.text, result.finish, result.reason) == ("[1, 2]", "eos", "eos")


async def test_nothing_to_show_has_a_reason(service: CompletionService) -> None:
    assert (await complete(service, document("unrecorded"))).reason == "no text"
    result = await complete(service, document("done = 1\n"))
    assert (result.text, result.finish, result.reason) == ("", "empty", "no text")


async def test_text_comes_in_the_documents_own_line_ends(service: CompletionService) -> None:
    result = await complete(service, document("def two(a):\r\n"))
    assert result.text == "    b = a\r\n    return b"


async def test_the_newer_request_for_a_document_supersedes_the_older(
    service: CompletionService, engine: EngineClient
) -> None:
    cancelled, rounds = await count(engine, CANCELLED), await count(engine, "dflash_rounds_total")
    older = asyncio.create_task(complete(service, document("def endless():\n")))
    await begun(engine, rounds)
    newer = await complete(service, document("short = "))
    assert newer.text == "[1, 2]"
    result = await older
    assert (result.text, result.finish, result.reason) == ("", "cancelled", "superseded")
    assert await rounds_when_ended(engine, cancelled) - rounds < len(LONG) / 2


async def test_requests_for_other_documents_run_side_by_side(service: CompletionService) -> None:
    two, short = await asyncio.gather(
        complete(service, document("def two(a):\n", "a.py")), complete(service, document("short = ", "b.py"))
    )
    assert two.text and short.text


async def test_an_edit_under_way_does_not_change_the_answer(service: CompletionService) -> None:
    edited = document("def two(a):\n")
    request = asyncio.create_task(complete(service, edited))
    await asyncio.sleep(0)
    edited.lines[:] = [""]
    result = await request
    assert result.text == "    b = a\n    return b" and result.range.start == Position(1, 0)


async def test_the_completion_grows_by_rounds(service: CompletionService) -> None:
    grown: list[Growth] = []
    site = document("def two(a):\n")
    result = await service.complete(site, Place(1, 0), "a.py", on_growth=grown.append)
    assert [len(growth.rounds) for growth in grown] == [1, 2, 3]
    settled = [growth.text for growth in grown]
    assert settled[0] == "    b = a" and settled[-1] == result.text
    assert all(later.startswith(earlier) for earlier, later in pairwise(settled))


async def test_while_the_engine_loads_the_answer_is_empty_and_says_so(profile: Profile) -> None:
    states: list[EngineHealth] = []
    service = CompletionService(profile, LinkListener(changed=states.append))
    result = await complete(service, document("short = "))
    assert (result.text, result.finish, result.reason) == ("", "empty", "engine loading")
    await until(lambda: service.link.client is not None)
    assert states[-1].state == "ready"
    assert (await complete(service, document("short = "))).text == "[1, 2]"
    await service.aclose()


async def test_an_engine_that_ended_is_started_again_without_a_message(directories: Path) -> None:
    profile = own_profile(directories, "ended")
    failures: list[str] = []
    service = CompletionService(profile, LinkListener(failed=failures.append))
    try:
        await service.link.connect()
        await stop_engine(profile)
        result = await complete(service, document("short = "))
        assert (result.text, result.reason) == ("", "engine loading")
        await until(lambda: service.link.client is not None)
        assert (await complete(service, document("short = "))).text == "[1, 2]"
        assert failures == []
    finally:
        await service.aclose()
        await stop_engine(profile)


async def test_an_engine_that_cannot_start_is_told_once_and_tried_again_after_a_pause(
    directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FIRST_PAUSE_S", 0.2)
    profile = own_profile(directories, "missing")
    profile = replace(profile, engine=replace(profile.engine, kind="remote", address="http://127.0.0.1:9"))
    failures: list[str] = []
    service = CompletionService(profile, LinkListener(failed=failures.append))
    text = document("short = ")
    assert (await complete(service, text)).reason == "engine loading"
    await until(lambda: bool(failures))
    assert "no engine answers" in failures[0]
    launches = []
    launch = service.link._launch
    monkeypatch.setattr(service.link, "_launch", lambda: launches.append(1) or launch())
    result = await complete(service, text)
    assert result.reason.startswith("engine unavailable: no engine answers") and not launches
    await asyncio.sleep(0.3)
    await complete(service, text)
    await asyncio.sleep(0.25)
    assert launches == [1] and len(failures) == 1
    await service.aclose()


async def test_a_restarted_engine_serves_again(directories: Path) -> None:
    profile = own_profile(directories, "restarted")
    service = CompletionService(profile)
    try:
        client = await service.link.connect()
        before = (await client.health()).pid
        await service.link.restart()
        await until(lambda: service.link.client is not None)
        assert service.link.client is not None
        assert (await service.link.client.health()).pid != before
    finally:
        await service.aclose()
        await stop_engine(profile)
