"""What a user's keys do to a completion: attach, abort, typed-through, cache, speculation; on a real replay engine."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from engines import CANCELLED, count, engine_here, nothing_runs, rounds_when_ended
from tree_sitter import Tree

from server.completion.cache import CompletionCache
from server.completion.generated import Generated
from server.completion.generation import Generation
from server.completion.pacing import FAST_S, LONGEST_S, Pacing
from server.completion.request import CompletionOptions, Growth
from server.completion.result import CompletionResult, Finish
from server.completion.service import CompletionService
from server.completion.spot import Spot
from server.completion.submission import THROTTLED_S
from server.completion.surroundings import surroundings
from server.context.file_errors import AT_ONCE_S, PARSE_LIMIT_S, FileErrors
from server.documents.document import Change, Document, Place
from server.documents.places import places_after
from server.documents.positions import Range
from server.engine.client import CompletionStream, EngineClient
from server.engine.protocol import Endpoint
from server.engine.replay import ReplayBackend, ReplayHandle
from server.profiles import Profile

BODY = "    total = 0\n    for each in items:\n        total += each\n    return total"
NEXT = "\n\n\ndef mean(items):\n    return add(items) / len(items)\n"
LONG = [f"    x{number} = {number}\n" for number in range(200)]
SUM = [" + (\n", *(f"    x{number} +\n" for number in range(200))]
KEYS = 50
ENTRIES: list[dict[str, object]] = [
    {"after": "def add(items):\n", "text": BODY + NEXT, "chunks": list(BODY + NEXT), "delay_ms": 5},
    {"after": "def endless():\n", "text": "".join(LONG), "chunks": LONG, "delay_ms": 20},
    {"after": "short = ", "text": "[1, 2]", "delay_ms": 5},
    {"after": "short = [1, 2]", "text": "\nlong = [3]", "delay_ms": 5},
    {"after": "call", "text": "(one, two)", "delay_ms": 5},
    {"after": "late = ", "text": "ab", "delay_ms": 100},
    {"after": "late = ab", "text": "c", "delay_ms": 5},
    {"after": "slow = ", "text": "[1, 2, 3, 4, 5, 6]\n", "delay_ms": 200},
    {"after": "chain = ", "text": "one", "delay_ms": 5},
    {"after": "chain = one", "text": ".two()", "delay_ms": 5},
    {"after": "first = ", "text": "1", "delay_ms": 5},
    {"after": "first = 1", "text": "".join(SUM), "chunks": SUM, "delay_ms": 20},
    *(
        {"after": "first = 1" + "q" * keys, "text": "".join(SUM), "chunks": SUM, "delay_ms": 20}
        for keys in range(1, KEYS + 1)
    ),
]
STARTED = "dflash_requests_total"
ROUNDS = "dflash_rounds_total"
TRIES = 2000  # of 10 ms


class Typist:
    """One document of one service, and a cursor in it that types, accepts and asks."""

    def __init__(self, service: CompletionService, text: str, name: str = "a.py") -> None:
        self.service = service
        self.document = Document(f"file:///{name}", text, language="python")
        self.place = Place(len(self.document.lines) - 1, len(self.document.lines[-1]))

    def type(self, text: str, *, told: bool = True) -> None:
        """Put text at the cursor, as an edit of which the service is told."""
        position = self.document.position(self.place)
        self.document.apply([Change(text, Range(position, position))])
        places = places_after(self.document, position, text)
        self.place = places[0]
        if told:
            self.service.edited(self.document, places, "a.py")

    def backspace(self) -> None:
        end = self.document.position(self.place)
        self.place = Place(self.place.line, self.place.column - 1)
        self.document.apply([Change("", Range(self.document.position(self.place), end))])

    def accept(self, result: CompletionResult) -> None:
        self.type(result.text)

    async def ask(self) -> CompletionResult:
        return await self.service.complete(self.document, self.place, "a.py")


@pytest.fixture
async def service(profile: Profile, engine: EngineClient) -> AsyncIterator[CompletionService]:
    service = CompletionService(profile)
    await service.link.connect()
    yield service
    await service.aclose()


async def started(engine: EngineClient) -> float:
    """Generations that the engine was asked for and that have ended, warm-ups left out."""
    await nothing_runs(engine)
    text = await engine.metrics()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(STARTED + "{"))


async def rounds_begun(engine: EngineClient, before: float) -> None:
    for _ in range(TRIES):
        if await count(engine, ROUNDS) > before:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the generation did not begin")


async def test_a_request_that_agrees_attaches_and_one_generation_serves_them_all(
    service: CompletionService, engine: EngineClient
) -> None:
    before, rounds = await started(engine), await count(engine, ROUNDS)
    typist = Typist(service, "def add(items):\n")
    requests = [asyncio.create_task(typist.ask())]
    await rounds_begun(engine, rounds)
    for character in BODY[:10]:
        await asyncio.sleep(0.02)
        typist.type(character)
        requests.append(asyncio.create_task(typist.ask()))
    results = await asyncio.gather(*requests)
    # An answer that was complete before the next key is as good.
    assert all(each.reason == "superseded" or each.text == BODY[typed:] for typed, each in enumerate(results))
    assert results[-1].text == BODY[10:]
    await service.aclose()
    assert await started(engine) - before <= 2


@dataclass
class RoundsOf:
    """Rounds of one generation, counted in the engine itself: when it was told to end it, and when it had."""

    told: int
    handle: ReplayHandle

    @property
    def after_told(self) -> int:
        return self.handle.statistics.rounds - self.told


@pytest.fixture
async def told_to_end(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[CompletionService, ReplayBackend, list[RoundsOf]]]:
    """A service whose engine runs in the same loop, so that nothing is late on a busy machine but all together."""
    told: list[RoundsOf] = []
    cancel = ReplayHandle.cancel

    def cancelled(handle: ReplayHandle) -> None:
        if not handle.cancelled:
            told.append(RoundsOf(handle.statistics.rounds, handle))
        cancel(handle)

    monkeypatch.setattr(ReplayHandle, "cancel", cancelled)
    async with engine_here(tmp_path, ENTRIES) as (backend, path):
        service = CompletionService(profile)
        service.link.client = EngineClient(Endpoint(f"unix:{path}"))
        yield service, backend, told
        await service.aclose()


async def rounds_here(backend: ReplayBackend, number: int) -> None:
    for _ in range(TRIES):
        if backend.units_done() >= number:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the generation did not begin")


async def nothing_here(backend: ReplayBackend) -> None:
    for _ in range(TRIES):
        if not backend._queue:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("a generation still runs")


async def test_a_key_that_disagrees_ends_the_generation_within_the_running_round_without_any_request(
    told_to_end: tuple[CompletionService, ReplayBackend, list[RoundsOf]],
) -> None:
    service, backend, told = told_to_end
    typist = Typist(service, "def endless():\n")
    request = asyncio.create_task(typist.ask())
    await rounds_here(backend, 3)
    before = backend.units_done()
    typist.type("q")
    assert (await request).reason == "superseded"
    await nothing_here(backend)
    (of_request,) = told
    # One may have ended in the moment in which the engine heard of the key; then none begins.
    assert of_request.told - before <= 1 and of_request.after_told <= 1


async def test_a_request_that_was_cancelled_ends_its_generation_within_the_running_round_after_the_grace(
    told_to_end: tuple[CompletionService, ReplayBackend, list[RoundsOf]],
) -> None:
    service, backend, told = told_to_end
    request = asyncio.create_task(Typist(service, "def endless():\n").ask())
    await rounds_here(backend, 3)
    request.cancel()
    await asyncio.wait({request})
    assert request.cancelled() and not told
    await nothing_here(backend)
    (of_request,) = told
    assert of_request.after_told <= 1


@pytest.fixture
def most_at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many generations the window has at the engine, noted as each is sent."""
    noted: list[int] = []
    there: set[CompletionStream] = set()
    enter, leave, hang_up = CompletionStream.__aenter__, CompletionStream.__aexit__, CompletionStream.hang_up

    async def entered(stream: CompletionStream) -> CompletionStream:
        there.add(stream)
        noted.append(len(there))
        try:
            return await enter(stream)
        except BaseException:
            there.discard(stream)
            raise

    async def left(stream: CompletionStream, *error: Any) -> None:
        await leave(stream, *error)
        there.discard(stream)

    def hung_up(stream: CompletionStream) -> None:
        hang_up(stream)
        there.discard(stream)

    monkeypatch.setattr(CompletionStream, "__aenter__", entered)
    monkeypatch.setattr(CompletionStream, "__aexit__", left)
    monkeypatch.setattr(CompletionStream, "hang_up", hung_up)
    return noted


async def test_of_fifty_keys_that_each_begin_a_text_of_their_own_one_is_at_the_engine_however_late_it_hears_of_them(
    service: CompletionService, engine: EngineClient, most_at_once: list[int]
) -> None:
    rounds, pid = await count(engine, ROUNDS), (await engine.health()).pid
    assert pid is not None
    typist = Typist(service, "first = 1")
    requests = []
    for number in range(KEYS):
        requests.append(asyncio.create_task(typist.ask()))
        if number % 10 == 9:  # the engine is not given the processor for three keys
            os.kill(pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(0.06, os.kill, pid, signal.SIGCONT)
        await asyncio.sleep(0.02)
        typist.type("q")
    typist.type("\nshort = ")
    assert (await typist.ask()).text == "[1, 2]"
    assert not any(result.text for result in await asyncio.gather(*requests))
    await service.aclose()
    await nothing_runs(engine)
    # Keys come faster than the throttle lets generations through: some are overtaken before they are sent.
    assert len(most_at_once) > KEYS // 5 and max(most_at_once) == 1
    # One round of 20 ms fits between two keys, and one more may have been running: never 200 of any.
    assert await count(engine, ROUNDS) - rounds <= 2 * KEYS + 2


async def sent(service: CompletionService, typist: Typist) -> Generation:
    """The generation of a typist's document, once the engine knows of it."""
    for _ in range(TRIES):
        state = service._documents.get(typist.document.uri)
        if state is not None and state.running is not None and state.running.is_sent:
            return state.running
        await asyncio.sleep(0.001)
    raise AssertionError("no generation was sent")


async def test_a_request_that_is_overtaken_as_its_generation_ends_begins_none_of_its_own(
    service: CompletionService, monkeypatch: pytest.MonkeyPatch, most_at_once: list[int]
) -> None:
    """Who waits for a generation that has ended is about to go on when a newer request has just begun another."""
    typist = Typist(service, "late = ")
    close, newer = Generation._close, []

    def overtaken_at_the_end(generation: Generation, finish: Finish) -> None:
        if not newer:
            newer.append(asyncio.create_task(typist.ask()))  # once more at the same place
        close(generation, finish)

    monkeypatch.setattr(Generation, "_close", overtaken_at_the_end)
    first = asyncio.create_task(typist.ask())
    await sent(service, typist)
    typist.type("ab")
    overtaken = asyncio.create_task(typist.ask())  # "ab" is all that will come: it needs a generation of its own
    assert (await overtaken).reason == "superseded"
    assert [(await each).text for each in newer] == ["c"]
    assert (await first).reason == "superseded"
    assert len(most_at_once) == 2  # the first one's and the newest's; nothing was begun for the overtaken


async def test_generations_wait_for_their_turn_at_the_engine_and_those_overtaken_meanwhile_are_never_sent(
    service: CompletionService, monkeypatch: pytest.MonkeyPatch, most_at_once: list[int]
) -> None:
    throttler = service.submission._throttler
    assert (throttler.rate_limit, throttler.period) == (1, THROTTLED_S)
    monkeypatch.setattr(throttler, "period", 1000.0)  # one turn is free, the next will not come by itself
    assert (await Typist(service, "def add(items):\n", "a.py").ask()).text == BODY
    wild = Typist(service, "slow = ", "b.py")
    requests = []
    for _ in range(30):
        requests.append(asyncio.create_task(wild.ask()))
        await asyncio.sleep(0)
        wild.type("q")
    wild.type("\nshort = ")
    last = asyncio.create_task(wild.ask())
    older = await asyncio.gather(*requests)
    assert {(each.text, each.reason) for each in older} == {("", "superseded")}
    await asyncio.sleep(0.05)
    assert len(most_at_once) == 1 and not last.done()
    monkeypatch.setattr(throttler, "period", 0.0)
    assert (await last).text == "[1, 2]"
    assert len(most_at_once) == 2


async def test_the_file_is_parsed_while_the_engine_works_and_a_sound_text_waits_for_no_thread(
    service: CompletionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    parses: list[tuple[bool, float]] = []
    parse = FileErrors._parse

    def noted(file: FileErrors, data: bytes, tree: Tree | None, limit_s: float) -> Tree:
        parses.append((threading.current_thread() is threading.main_thread(), limit_s))
        return parse(file, data, tree, limit_s)

    monkeypatch.setattr(FileErrors, "_parse", noted)
    typist = Typist(service, "# nobody has asked here before\ndef add(items):\n")
    assert (await typist.ask()).text == BODY
    assert parses == [(False, PARSE_LIMIT_S), (True, AT_ONCE_S)]
    typist.type(BODY[:4])
    assert (await typist.ask()).text == BODY[4:]
    assert len(parses) == 2


async def test_keys_ahead_of_a_text_that_goes_another_way_are_never_shown_its_end(service: CompletionService) -> None:
    typist = Typist(service, "slow = ")
    older = asyncio.create_task(typist.ask())
    await sent(service, typist)
    typist.type("q")  # nothing has come yet that it could disagree with
    growths: list[Growth] = []
    ahead = await service.complete(typist.document, typist.place, "a.py", on_growth=growths.append)
    assert not ahead.text and not any(each.text for each in growths)
    assert (await older).reason == "superseded"


async def test_a_cancelled_request_is_over_at_once_and_its_generation_after_a_grace(
    service: CompletionService, engine: EngineClient
) -> None:
    cancelled, rounds = await count(engine, CANCELLED), await count(engine, ROUNDS)
    typist = Typist(service, "def endless():\n")
    request = asyncio.create_task(typist.ask())
    await rounds_begun(engine, rounds)
    request.cancel()
    await asyncio.wait({request}, timeout=0)
    await asyncio.sleep(0)
    assert request.cancelled()
    await rounds_when_ended(engine, cancelled)


async def test_a_request_that_comes_within_the_grace_keeps_the_generation(
    service: CompletionService, engine: EngineClient
) -> None:
    before, rounds = await started(engine), await count(engine, ROUNDS)
    typist = Typist(service, "def add(items):\n")
    request = asyncio.create_task(typist.ask())
    await rounds_begun(engine, rounds)
    request.cancel()
    await asyncio.sleep(0)
    assert (await typist.ask()).text == BODY
    await service.aclose()
    assert await started(engine) - before <= 2


async def test_text_typed_as_shown_and_partial_accepts_need_no_engine(
    service: CompletionService, engine: EngineClient
) -> None:
    typist = Typist(service, "def add(items):\n")
    assert (await typist.ask()).text == BODY
    await service.link.aclose()  # nothing can be asked of the engine any more
    for piece in ("    ", "total", " = 0\n    for"):
        typist.type(piece)
        result = await typist.ask()
        assert BODY.endswith(result.text) and result.finish == "boundary"
    assert result.text == " each in items:\n        total += each\n    return total"
    assert result.stats.tokens == 0
    typist.backspace()
    assert (await typist.ask()).text == "r" + result.text


async def test_what_was_generated_past_the_unit_answers_the_keys_after_its_acceptance(
    service: CompletionService, engine: EngineClient
) -> None:
    typist = Typist(service, "def add(items):\n")
    typist.accept(await typist.ask())
    await nothing_runs(engine)
    await service.link.aclose()
    typist.type("\n\n\ndef mean")
    assert (await typist.ask()).text == "(items):\n    return add(items) / len(items)"


async def test_after_an_end_of_text_the_next_completion_is_generated_as_if_it_had_been_accepted(
    service: CompletionService, engine: EngineClient
) -> None:
    typist = Typist(service, "short = ")
    result = await typist.ask()
    assert result.finish == "eos"
    for _ in range(TRIES):
        if len(service.cache) == 2:
            break
        await asyncio.sleep(0.01)
    await service.link.aclose()
    typist.accept(result)
    typist.type("\n")
    assert (await typist.ask()).text == "long = [3]"


async def test_a_key_that_goes_with_the_shown_text_keeps_speculation_and_one_that_does_not_ends_it(
    service: CompletionService, engine: EngineClient
) -> None:
    rounds, cancelled = await count(engine, ROUNDS), await count(engine, CANCELLED)
    typist = Typist(service, "first = ")
    assert (await typist.ask()).text == "1"
    await rounds_begun(engine, rounds + 1)  # of what follows, as if it had been accepted
    typist.type("1")
    before = await count(engine, ROUNDS)
    await rounds_begun(engine, before + 1)
    assert await count(engine, CANCELLED) == cancelled
    typist.type("00")
    await rounds_when_ended(engine, cancelled)


async def test_a_newer_request_leaves_nothing_of_one_that_waits_for_alternatives(service: CompletionService) -> None:
    typist = Typist(service, "def add(items):\n")
    older = asyncio.create_task(service.complete_several(typist.document, typist.place, "a.py"))
    state = service._documents
    for _ in range(TRIES):
        if any(each.alternative is not None for each in state.values()):
            break
        await asyncio.sleep(0.001)
    typist.type("q")
    assert [(each.text, each.reason) for each in await older] == [("", "superseded")]


async def test_a_closer_that_the_editor_adds_does_not_end_the_generation(service: CompletionService) -> None:
    typist = Typist(service, "call")
    assert (await typist.ask()).text == "(one, two)"
    typist.type("()")
    typist.place = Place(typist.place.line, typist.place.column - 1)
    result = await typist.ask()
    assert (result.text, result.stats.tokens) == ("one, two)", 0)
    assert result.range.end.character == result.range.start.character + 1


def spot(text: str, after: str = "", language: str = "python", uri: str = "file:///a") -> Spot:
    document = Document(uri, text + after, language=language)
    lines = Document(uri, text).lines
    return surroundings(document, Place(len(lines) - 1, len(lines[-1])), "a", 4000).spot


async def generated(at: Spot, text: str) -> Generated:
    from server.completion.boundaries.choice import boundary_for

    decision = boundary_for(at.cursor).finish(text)
    return Generated(at, text, decision, "eos", "eos")


async def test_the_cache_keeps_apart_prefix_suffix_and_language_and_forgets_the_oldest() -> None:
    cache = CompletionCache(size=2)
    here = spot("a = ", "\nb = 2\n")
    cache.put(await generated(here, "12"))
    assert cache.find(here) is not None
    assert cache.find(spot("a = 1", "\nb = 2\n")) is not None
    assert cache.find(spot("a = 3", "\nb = 2\n")) is None
    assert cache.find(spot("b = ", "\nb = 2\n")) is None
    assert cache.find(spot("a = ", "\nb = 3\n")) is None
    assert cache.find(spot("a = ", "\nb = 2\n", language="ruby")) is None
    cache.put(await generated(spot("c = "), "1"))
    cache.put(await generated(spot("d = "), "1"))
    assert len(cache) == 2 and cache.find(here) is None


def test_a_spot_knows_what_was_typed_even_when_its_window_has_moved() -> None:
    line = "x = 1\n"
    text = line * 2000
    assert spot(text).typed_until(spot(text + "y = 2")) == "y = 2"
    assert spot(text).typed_until(spot("z" + text[1:] + "y")) == "y"  # out of sight of the prompt
    assert spot(text).typed_until(spot(text[:-2] + "2\ny")) is None
    assert spot(text + "y").typed_until(spot(text)) is None


def test_a_fast_engine_is_never_waited_for_and_a_slow_one_only_while_keys_come_faster() -> None:
    pacing = Pacing()
    assert pacing.delay("a", 1) == 0.0
    for number in range(40):
        pacing.key(number * 0.1)
    pacing.first_text(FAST_S / 2)
    assert pacing.delay("a", 1) == 0.0
    pacing = Pacing()
    for number in range(40):
        pacing.key(number * 0.1)
    pacing.first_text(0.6)
    assert pacing.delay("a", 1) == 0.0, "the first on a line"
    assert 0.1 < pacing.delay("a", 1) <= LONGEST_S
    assert pacing.delay("a", 2) == 0.0
    for number in range(40):
        pacing.key(10 + number * 0.9)
    assert pacing.delay("a", 2) == 0.0


async def test_a_warm_up_prefills_at_the_lowest_priority_and_generates_nothing(
    service: CompletionService, engine: EngineClient
) -> None:
    before, rounds = await started(engine), await count(engine, ROUNDS)
    typist = Typist(service, "def add(items):\n")
    service.warm_up(typist.document, typist.place, "a.py")
    for _ in range(TRIES):
        if await started(engine) > before:
            break
        await asyncio.sleep(0.01)
    assert await started(engine) == before + 1
    assert await count(engine, ROUNDS) == rounds


async def test_a_request_made_by_hand_asks_for_two_sampled_texts_and_shows_each_text_once(
    service: CompletionService, engine: EngineClient
) -> None:
    before = await started(engine)
    typist = Typist(service, "call")
    grown: list[Growth] = []
    results = await service.complete_several(typist.document, typist.place, "a.py", on_growth=grown.append)
    assert [each.text for each in results] == ["(one, two)"]  # recorded text is the same however it is drawn
    await service.aclose()
    assert 3 <= await started(engine) - before <= 4  # with a speculation, if it was begun


async def test_counts_tell_shown_accepted_typed_through_and_dismissed(service: CompletionService) -> None:
    typist = Typist(service, "short = ")
    result = await typist.ask()
    typist.accept(result)
    service.acceptance.accepted(typist.document.uri)
    await typist.ask()
    other = Typist(service, "call", "b.py")
    await other.ask()
    other.type("(one, ")
    await other.ask()
    service.acceptance.partly_accepted(other.document.uri, 6)
    other.type("two)")
    await other.ask()
    third = Typist(service, "call", "c.py")
    await third.ask()
    third.type("ing")
    await third.ask()
    counts = service.acceptance.to_json()["python"]
    assert counts["accepted"] == 1 and counts["accepted_characters"] == len("[1, 2]") + 6
    assert counts["partly_accepted"] == counts["typed_through"] == counts["dismissed"] == 1
    assert counts["shown"] >= 3


async def test_an_acceptance_counts_what_was_shown_by_then_and_its_rest_when_that_is_accepted(
    service: CompletionService,
) -> None:
    typist = Typist(service, "def add(items):\n")
    growths: list[Growth] = []
    request = asyncio.create_task(service.complete(typist.document, typist.place, "a.py", on_growth=growths.append))
    for _ in range(TRIES):
        if growths and growths[-1].settled >= 12:
            break
        await asyncio.sleep(0.001)
    seen = growths[-1]
    service.grown(seen)
    typist.type(seen.text)
    service.acceptance.accepted(typist.document.uri)
    counts = service.acceptance.to_json()["python"]
    assert (counts["shown"], counts["accepted"], counts["dismissed"]) == (1, 1, 0)
    assert counts["shown_characters"] == counts["accepted_characters"] == len(seen.text) < len(BODY)
    rest = await typist.ask()
    assert seen.text + rest.text == BODY and (await request).reason == "superseded"
    typist.accept(rest)
    service.acceptance.accepted(typist.document.uri)
    counts = service.acceptance.to_json()["python"]
    assert (counts["shown"], counts["accepted"], counts["dismissed"]) == (2, 2, 0)
    assert counts["shown_characters"] == counts["accepted_characters"] == len(BODY)


async def test_an_acceptance_told_after_the_next_completion_was_shown_is_counted_for_the_one_before(
    service: CompletionService,
) -> None:
    typist = Typist(service, "chain = ")
    result = await typist.ask()
    typist.accept(result)
    assert (await typist.ask()).text  # what comes next is shown before the acceptance is told
    before = service.acceptance.to_json()["python"]["accepted_characters"]
    service.acceptance.accepted(typist.document.uri)
    counts = service.acceptance.to_json()["python"]
    assert counts["accepted_characters"] - before == len(result.text) and counts["typed_through"] == 0


async def test_what_was_accepted_and_undone_is_not_offered_again_by_itself(service: CompletionService) -> None:
    typist = Typist(service, "short = ")
    automatic = CompletionOptions(explicit=False)
    ask = functools.partial(service.complete, typist.document, typist.place, "a.py", automatic)
    result = await ask()
    typist.accept(result)
    end = typist.document.position(typist.place)
    start = replace(end, character=8)
    typist.document.apply([Change("", Range(start, end))])
    typist.place = Place(0, 8)
    service.edited(typist.document, [typist.place], "a.py")
    undone = await ask()
    assert (undone.text, undone.reason) == ("", "after an undo")
    assert (await typist.ask()).text == result.text  # by hand it is


async def test_two_windows_take_turns_by_round(profile: Profile, engine: EngineClient) -> None:
    slow, quick = CompletionService(profile), CompletionService(profile)
    try:
        await slow.link.connect()
        await quick.link.connect()
        rounds = await count(engine, ROUNDS)
        request = asyncio.create_task(Typist(slow, "def endless():\n").ask())
        await rounds_begun(engine, rounds)
        before = await count(engine, ROUNDS)
        assert (await Typist(quick, "short = ").ask()).text == "[1, 2]"
        assert await count(engine, ROUNDS) - before <= 20
        request.cancel()
    finally:
        await slow.aclose()
        await quick.aclose()


def test_settings_of_a_workspace_only_narrow() -> None:
    from server.settings import Settings

    mine = Settings(profile="mine", exclude=("a",))
    assert mine.narrowed(None) == mine.narrowed({"profile": "theirs", "enable": True}) == mine
    assert mine.narrowed({"enable": False, "exclude": ["b", "a"]}) == replace(mine, enable=False, exclude=("a", "b"))
    assert replace(mine, enable=False).narrowed({"enable": True}).enable is False
