"""Real engine processes for tests: each test module gets directories and engines of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import uvicorn

from server.engine.app import EngineApp
from server.engine.client import CompletionRequest, EngineClient
from server.engine.launcher import ensure_engine, stop_engine
from server.engine.replay import ReplayBackend
from server.engine.resident.process import Server
from server.monitoring.metrics import Metrics
from server.profiles import Profile, load_profile

# 200 rounds of 20 ms: long enough that only a cancellation ends it early.
LONG = [f"line {number}\n" for number in range(200)]
CANCELLED = 'dflash_requests_total{finish="cancelled"}'
ENTRIES = [
    {"after": "long:\n", "text": "".join(LONG), "chunks": LONG, "delay_ms": 20},
    {"after": "short:\n", "text": "one two three", "chunks": ["one ", "two ", "three"]},
    {"after": "stop:\n", "text": "abc<end>def", "chunks": ["ab", "c<", "en", "d>d", "ef"]},
    {"after": "odd:\n", "text": "a\u2028b\x0bc\x0cd\x85e\n😀ü", "chunks": ["a\u2028b\x0b", "c\x0cd\x85e\n", "😀ü"]},
    {"after": "slow:\n", "text": "0123456789", "chunks": list("0123456789"), "delay_ms": 50},
]


@contextmanager
def own_directories() -> Iterator[Path]:
    """Config, cache, runtime and log directories that nobody else uses; short, for a socket path must be."""
    root = Path(tempfile.mkdtemp(prefix="dflash-"))
    with pytest.MonkeyPatch.context() as environment:
        for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            folder = root / name.removeprefix("XDG_").lower()
            folder.mkdir(mode=0o700)
            environment.setenv(name, str(folder))
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)


def replay_profile(folder: Path, entries: list[dict[str, object]] | None = None, more: str = "") -> Profile:
    """A replay profile in `folder` with its recording; `more` is added to its [engine] table."""
    recording = folder / "recording.jsonl"
    recording.write_text("\n".join(json.dumps(entry) for entry in entries or ENTRIES), encoding="utf-8")
    file = folder / "taped.toml"
    file.write_text(f'[engine]\nkind = "replay"\nrecording = "recording.jsonl"\n{more}\n')
    return load_profile(str(file))


@asynccontextmanager
async def engine(profile: Profile) -> AsyncIterator[EngineClient]:
    """The profile's engine for one test; it is ended afterwards."""
    client = await ensure_engine(profile)
    try:
        yield client
    finally:
        await client.aclose()
        await stop_engine(profile)


def stop(profile: Profile) -> bool:
    return asyncio.run(stop_engine(profile))


@asynccontextmanager
async def engine_here(folder: Path, entries: list[dict[str, object]]) -> AsyncIterator[tuple[ReplayBackend, Path]]:
    """The real engine's HTTP app on a socket, in this process and its loop, so that what it does can be counted."""
    recording = replay_profile(folder, entries).engine.recording
    assert recording is not None
    metrics = Metrics()
    backend = ReplayBackend(recording, "taped", metrics)
    app = EngineApp(backend, metrics, version="1", pid=os.getpid())
    path = folder / "s"
    server = Server(uvicorn.Config(app.asgi, uds=str(path), log_config=None, lifespan="off"), backend)
    backend.start()
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    try:
        yield backend, path
    finally:
        server.stop()
        await serving


async def count(client: EngineClient, name: str) -> float:
    """The value of one series in /metrics; 0.0 when it is not there yet."""
    return value(await client.metrics(), name)


def value(metrics: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def rounds_when_ended(client: EngineClient, ended_before: float) -> float:
    """Rounds counted in the first /metrics that shows one more cancelled request than before."""
    for _ in range(400):
        text = await client.metrics()
        if value(text, CANCELLED) > ended_before:
            return value(text, "dflash_rounds_total")
        await asyncio.sleep(0.01)
    raise AssertionError("the request was not cancelled")


async def nothing_runs(client: EngineClient) -> None:
    """Wait until the engine has no request left."""
    for _ in range(400):
        if await count(client, "dflash_running_requests") == 0:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a request still runs")


async def cancel_many(client: EngineClient, request: CompletionRequest, number: int, *, read_every: int = 3) -> None:
    """Ask and give up so often, 20 at a time: while it waits, before it was sent, some in the middle of the stream."""
    gate = asyncio.Semaphore(20)

    async def one(turn: int) -> None:
        async def reading() -> None:
            async with client.stream(request) as stream:
                async for _ in stream:
                    if turn % read_every == 0:
                        break

        async with gate:
            task = asyncio.ensure_future(reading())
            await asyncio.wait({task}, timeout=None if turn % read_every == 0 else (0.03, 0)[turn % 2])
            task.cancel()
            await asyncio.wait({task})

    await asyncio.gather(*map(one, range(number)))


def wait_for_end(pid: int) -> None:
    """Wait until a process has gone, also one that nobody has waited for yet."""
    for _ in range(500):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")
