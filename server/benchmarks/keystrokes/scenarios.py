"""The server's own speed, on a replay engine whose time is known: one scenario for each promise of ours."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import server
from server.benchmarks.keystrokes.driver import CANCELLED, Asked, Driver, driver
from server.benchmarks.keystrokes.quantiles import p50_p95
from server.documents.document import Place
from server.engine.client import EngineClient
from server.engine.launcher import ensure_engine, stop_engine
from server.engine.protocol import CompletionRequest
from server.errors import DflashError
from server.profiles import Profile, load_profile

BLOCK_MS = 5
BLOCK = 12  # characters: three tokens, as many as the embedded pair has accepted in a round
KEY_S = 0.02
KEYS = 50
PAUSE_S = 0.05  # between two requests that are measured one by one
LINES = 2000
WINDOWS = 4
WINDOW_KEY_S = 0.2
WINDOW_KEYS = 40
TYPED = "value = compute(first_operand, second_operand, third_operand)"
STALE = "first + second * third - fourth / fifth + sixth * seventh"  # behind each key another text is generated
ENDLESS = 1000  # rounds
ENDED, ROUNDS, RUNNING = "dflash_requests_total{", "dflash_rounds_total ", "dflash_running_requests "

Report = dict[str, Any]


async def run_scenarios(requests: int) -> Report:
    """All of them; `requests`: how many are measured where one gives one number."""
    async with replaying() as (profile, client):
        return {
            "own_share": await own_share(profile, client, requests),
            "known": await known(profile, requests),
            "cancel": await cancel(profile, client, requests),
            "matching": await matching(profile, client),
            "disagreeing": await disagreeing(profile, client),
            "windows": await windows(profile),
        }


@asynccontextmanager
async def replaying() -> AsyncIterator[tuple[Profile, EngineClient]]:
    """A replay engine of our own, with what the scenarios type in its recording."""
    with tempfile.TemporaryDirectory(prefix="dflash-lsp-") as folder:
        profile = _profile(Path(folder))
        client = await ensure_engine(profile)
        try:
            yield profile, client
        finally:
            await client.aclose()
            await stop_engine(profile)


async def own_share(profile: Profile, client: EngineClient, requests: int) -> Report:
    """A key and a request in the middle of a long file, less what a bare client of the engine waits for the same text.

    Each has a new text, which is one block. Beside it `whole`, all that the editor waits; `engine_alone`, what was
    taken off (its block and its transport); and `answer_without_work`, a request that the server answers with a
    constant, which is the transport to the editor and is part of the share.
    """
    times, constant, alone = [], [], []
    async with _window(profile) as (window, place):
        for number in range(requests):
            place = window.type(Place(place.line, 0), f"k{number} = 0\nnow =")
            await asyncio.sleep(PAUSE_S)
            constant.append(await window.asked_without_work())
            alone.append(await _engine_alone(client))
            await asyncio.sleep(PAUSE_S)
            place = window.type(place, " ")
            times.append((await window.asked(place)).total_ms)
            place = window.type(place, "1\n")
    engine_ms = p50_p95(alone)["p50"]
    return {
        **p50_p95([each - engine_ms for each in times]),
        "whole": p50_p95(times),
        "engine_alone": p50_p95(alone),
        "answer_without_work": p50_p95(constant),
    }


async def _engine_alone(client: EngineClient) -> float:
    """Milliseconds until a bare client of the engine has its one block."""
    begun = time.perf_counter()
    async with client.stream(CompletionRequest(prompt="now = ", max_tokens=16)) as stream:
        async for _ in stream:
            return (time.perf_counter() - begun) * 1000
    raise DflashError("the replay engine answered with nothing")


async def known(profile: Profile, requests: int) -> Report:
    """Requests for text that was shown already: typed through, and deleted and typed again."""
    times: dict[str, list[float]] = {"shown": [], "cache": []}
    async with _window(profile) as (window, place):
        while sum(map(len, times.values())) < requests:
            begun = window.type(Place(place.line, 0), "block = ")
            await window.asked(begun)
            here = begun
            for character in TYPED[:-1]:
                here = window.type(here, character)
                _note(times, await window.asked(here))
            for _ in range(len(TYPED) // 4):
                end = window.document.position(here)
                here = Place(here.line, here.column - 3)
                window.edit(window.document.position(here), end, "")
                # Nothing is offered after a deletion alone.
                here = window.type(here, TYPED[here.column - begun.column])
                _note(times, await window.asked(here))
            place = window.type(here, "\n")
    return {source or "nothing": p50_p95(found) for source, found in times.items()}


async def cancel(profile: Profile, client: EngineClient, requests: int) -> Report:
    """From `$/cancelRequest` to the answer, and how many rounds the engine runs after that.

    Every second time an edit that disagrees with the text comes first, as with most keys. One round may end
    between the counting and the cancelling.
    """
    times: list[float] = []
    rounds: dict[str, list[float]] = {"alone": [], "after_an_edit": []}
    async with _window(profile) as (window, place):
        for number in range(max(2, requests // 4)):
            place = window.type(Place(place.line, 0), f"c{number} = 0\nendless = ")
            before = await _metric(client, ROUNDS)
            id, request = window.ask(place)
            await _until(client, ROUNDS, before.__lt__)
            ran = await _metric(client, ROUNDS)
            begun = time.perf_counter()
            if number % 2:
                place = window.type(place, "zz + ")
            window.cancel(id)
            asked = await request
            times.append((time.perf_counter() - begun) * 1000)
            # The edit has ended it before the cancelling comes; then it was answered with nothing.
            if asked.text or (asked.code != CANCELLED and number % 2 == 0):
                raise DflashError(f"a cancelled request was answered with {asked.code}, not {CANCELLED}")
            await _until(client, RUNNING, lambda running: not running)
            rounds["after_an_edit" if number % 2 else "alone"].append(await _metric(client, ROUNDS) - ran)
            place = window.type(place, "1\n")
    return {**p50_p95(times), "most_rounds": {kind: max(found) for kind, found in rounds.items()}}


async def matching(profile: Profile, client: EngineClient) -> Report:
    """50 keys that go with the text: how many generations, and whether the text was ever gone."""
    async with _window(profile) as (window, place):
        await _nothing_runs(client)
        before = await _metric(client, ENDED)
        place = window.type(Place(place.line, 0), "block = ")
        waiting = [window.ask(place)[1]]
        for character in TYPED[:KEYS]:
            await asyncio.sleep(KEY_S)
            place = window.type(place, character)
            waiting.append(window.ask(place)[1])
        answers = await asyncio.gather(*waiting)
    await _nothing_runs(client)
    # An answer for a newer request's sake shows nothing, and takes nothing away.
    shown = [bool(each.text) for each in answers if each.source]
    return {
        "generations": await _metric(client, ENDED) - before,
        "last_is_right": answers[-1].text == TYPED[KEYS:],
        "answers_with_text": sum(shown),
        "empty_after_first": shown.count(False),
        **p50_p95([each.total_ms for each in answers if each.text]),
    }


async def disagreeing(profile: Profile, client: EngineClient) -> Report:
    """50 keys, each with an endless generation that the next disagrees with: whether all were aborted, and the last
    answer is right.
    """
    most = 0.0
    async with _window(profile) as (window, place):
        await _nothing_runs(client)
        rounds = await _metric(client, ROUNDS)
        place = window.type(Place(place.line, 0), "endless = ")
        waiting = [window.ask(place)[1]]
        for character in STALE[:KEYS]:
            await asyncio.sleep(KEY_S)
            most = max(most, await _running(client))
            place = window.type(place, character)
            waiting.append(window.ask(place)[1])
        place = window.type(place, "\nnow = ")
        last = await window.asked(place)
        await asyncio.gather(*waiting)
    await _nothing_runs(client)
    rounds = await _metric(client, ROUNDS) - rounds
    return {
        "last_is_right": last.text == "1",
        "most_running": most,
        "rounds": rounds,
        "all_were_aborted": rounds < ENDLESS,
    }


async def windows(profile: Profile) -> Report:
    """Several windows at five keys a second on one engine, against one alone: the whole text, 95th percentile.

    Each key is a new line with a generation of its own, and the engine runs one round at a time for all.
    """
    alone = await _typing(profile, 1)
    together = await _typing(profile, WINDOWS)
    worst = max(p50_p95(times)["p95"] for times in together)
    single = p50_p95(alone[0])["p95"]
    return {"single_p95": single, "worst_p95": worst, "ratio": round(worst / single, 2)}


async def _typing(profile: Profile, count: int) -> list[list[float]]:
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(_window(profile, f"file:///bench/w{number}.py")) for number in range(count)
        ]
        return await asyncio.gather(*[_type_in(window, place, number) for number, (window, place) in enumerate(opened)])


async def _type_in(window: Driver, place: Place, number: int) -> list[float]:
    await asyncio.sleep(number * WINDOW_KEY_S / WINDOWS)
    times = []
    for key in range(WINDOW_KEYS):
        place = window.type(Place(place.line, 0), f"w{key} = 0\nblock = ")
        asked = await window.asked(place)
        times.append(asked.total_ms)
        await asyncio.sleep(max(0.0, WINDOW_KEY_S - asked.total_ms / 1000))
        place = window.type(place, "1\n")
    return times


def _note(times: dict[str, list[float]], asked: Asked) -> None:
    times.setdefault(asked.source, []).append(asked.total_ms)


@asynccontextmanager
async def _window(profile: Profile, uri: str = "file:///bench/a.py") -> AsyncIterator[tuple[Driver, Place]]:
    """A window with a long file, and a place on an empty line in the middle of it."""
    lines = _code()[:LINES]
    middle = next(row for row in range(LINES // 2, LINES) if lines[row].startswith(("def ", "class ")))
    lines.insert(middle, "\n")
    async with driver(str(profile.file), uri) as window:
        window.open("".join(lines), "python")
        yield window, Place(middle, 0)


def _code() -> list[str]:
    """Lines of real code: the modules of this package, one after the other."""
    files = sorted(Path(server.__file__).parent.rglob("*.py"))
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines(keepends=True)]


def _profile(folder: Path) -> Profile:
    blocks = [TYPED[start : start + BLOCK] for start in range(0, len(TYPED), BLOCK)]
    endless = ["[\n", *(f"    {number},\n" for number in range(ENDLESS))]
    another = ["(\n", *(f"    {number},\n" for number in range(ENDLESS))]
    entries = [
        {"after": "now = ", "text": "1\n", "delay_ms": BLOCK_MS},
        {"after": "block = ", "text": TYPED + "\n\n\n", "chunks": [*blocks, "\n\n\n"], "delay_ms": BLOCK_MS},
        {"after": "endless = ", "text": "".join(endless), "chunks": endless, "delay_ms": BLOCK_MS},
        *(
            {"after": f"endless = {STALE[:keys]}", "text": "".join(another), "chunks": another, "delay_ms": BLOCK_MS}
            for keys in range(1, KEYS + 1)
        ),
    ]
    (folder / "recording.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    file = folder / "bench.toml"
    file.write_text('[engine]\nkind = "replay"\nrecording = "recording.jsonl"\n', encoding="utf-8")
    return load_profile(str(file))


async def _metric(client: EngineClient, name: str) -> float:
    """The sum of all series that begin with `name`."""
    lines = (await client.metrics()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def _running(client: EngineClient) -> float:
    """Generations at the engine, less those in their last round, which it has been told to end."""
    running = await _metric(client, RUNNING)
    if running > 1:
        await asyncio.sleep(2 * BLOCK_MS / 1000)
        running = min(running, await _metric(client, RUNNING))
    return running


async def _nothing_runs(client: EngineClient) -> None:
    await asyncio.sleep(0.4)  # a warm-up comes so long after the last key
    await _until(client, RUNNING, lambda running: not running)


async def _until(client: EngineClient, name: str, condition: Callable[[float], bool]) -> None:
    # There is no event to wait for: the engine is another process.
    while not condition(await _metric(client, name)):  # noqa: ASYNC110
        await asyncio.sleep(0.002)
