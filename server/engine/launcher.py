"""Finds the engine of a profile, and starts it when none runs: one per user and profile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from server import __version__
from server.engine.client import EngineClient
from server.engine.protocol import EngineError, EngineHealth, EngineStalled, EngineUnavailable
from server.engine.remote import remote_endpoint
from server.engine.threads import engine_environment
from server.engine.whereabouts import ALREADY_RUNS, EngineFiles, EngineRecord, endpoint_of
from server.profiles import Profile

POLL_S = 0.05
HEALTH_POLL_S = 0.2
# A loser of the race waits this long for the winner to listen before it tries again itself.
RETRY_S = 3.0
STOP_S = 10.0
FAILED_STAYS_S = 3.0
LOG_LIMIT = 1 << 20  # bytes; a longer log is put aside when an engine starts


async def ensure_engine(
    profile: Profile,
    *,
    on_health: Callable[[EngineHealth], None] | None = None,
    wait_ready: bool = True,
    timeout_s: float = 120,
) -> EngineClient:
    """A client of the profile's engine, which is started, detached, when none runs.

    `on_health` hears each change of state and progress while it loads. With `wait_ready` false the client
    comes as soon as the engine answers, though it may still be loading. `timeout_s` is the longest time
    without any progress, since a large model loads for minutes. EngineError says in one line why not.
    """
    if profile.engine.kind == "remote":
        return EngineClient(remote_endpoint(profile))
    files = EngineFiles.of(profile)
    client, health = await _reach(files)
    if client is not None and health is not None and _must_be_replaced(health, files):
        await client.aclose()
        await stop_engine(profile)
        client = None
    child = None
    if client is None or health is None:
        client, health, child = await _start(profile, files, time.monotonic() + timeout_s)
    try:
        await _loaded(client, health, on_health or (lambda health: None), wait_ready, timeout_s)
    except EngineUnavailable as error:
        await client.aclose()
        raise EngineError(await _why_it_left(child, files)) from error
    except BaseException:
        await client.aclose()
        raise
    return client


async def _loaded(
    client: EngineClient,
    health: EngineHealth,
    on_health: Callable[[EngineHealth], None],
    wait_ready: bool,
    timeout_s: float,
) -> None:
    """Wait until the engine is ready. EngineError when it fails, or makes no progress for `timeout_s`."""
    told, changed = None, time.monotonic()
    while True:
        if health != told:
            told, changed = health, time.monotonic()
            on_health(health)
        if health.state == "failed":
            raise EngineError(health.reason or "the engine failed without saying why")
        if not wait_ready or health.state != "loading":
            return
        if time.monotonic() > changed + timeout_s:
            raise EngineError(f"the engine has made no progress for {timeout_s:.0f} s: {health.reason}")
        await asyncio.sleep(HEALTH_POLL_S)
        # Loading can keep the whole process busy for a while; only the time limit ends the wait.
        with contextlib.suppress(EngineStalled):
            health = await client.health()


async def running_engine(profile: Profile) -> EngineClient | None:
    """A client of the profile's engine if one answers; never starts one."""
    if profile.engine.kind == "remote":
        client = EngineClient(remote_endpoint(profile))
        try:
            await client.health()
        except EngineError:
            await client.aclose()
            return None
        return client
    return (await _reach(EngineFiles.of(profile)))[0]


async def stop_engine(profile: Profile, *, patience_s: float = STOP_S) -> bool:
    """End the profile's engine, also one that no longer answers; False when none runs.

    patience_s: how long it may take to end by itself before it is killed.
    """
    if profile.engine.kind == "remote":
        raise EngineError(f"profile {profile.name} names a remote engine, which is not ours to stop")
    files = EngineFiles.of(profile)
    record = files.read_record()
    # Only the holder of the lock writes the record, so while it is held the process is the one named.
    if record is None or not files.is_held():
        return False
    for kind, wait_s in ((signal.SIGTERM, patience_s), (getattr(signal, "SIGKILL", signal.SIGTERM), STOP_S)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, kind)
        if await _has_ended(files, record, wait_s):
            return True
    raise EngineError(f"the engine (process {record.pid}) does not end")


async def _has_ended(files: EngineFiles, record: EngineRecord, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        if not files.is_held():
            return True
        now = files.read_record()
        if now is not None and now.pid != record.pid:
            return True  # another one has taken its place already
        await asyncio.sleep(POLL_S)
    return False


async def _reach(files: EngineFiles) -> tuple[EngineClient, EngineHealth] | tuple[None, None]:
    """The engine that the record names, if it answers; the record of a dead one may point anywhere."""
    record = files.read_record()
    endpoint = None if record is None else endpoint_of(record)
    if record is None or endpoint is None:
        return None, None
    client = EngineClient(endpoint)
    try:
        health = await client.health()
    except EngineError:
        health = None
    except BaseException:
        await client.aclose()
        raise
    # After a crash another program may listen on the port: the user's text must not go there.
    if health is None or health.pid != record.pid:
        await client.aclose()
        return None, None
    return client, health


def _must_be_replaced(health: EngineHealth, files: EngineFiles) -> bool:
    """Whether an engine that was found running cannot serve us.

    A failed one stays only to say why; what it lacked may be there now, but asked at every key it must not
    be started at every key. A newer version serves older clients: were it replaced too, two windows of two
    versions would take turns ending each other's engine.
    """
    record = files.read_record()
    age_s = time.monotonic() - record.started if record else 0.0
    if health.state == "failed":
        return age_s > FAILED_STAYS_S
    return _version(health.version) < _version(__version__)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in text.split("."))


@dataclass
class _Child:
    """An engine process that we started; its output goes to the log from `log_start` on."""

    process: subprocess.Popen[bytes]
    log: Path
    log_start: int


async def _start(
    profile: Profile, files: EngineFiles, deadline: float
) -> tuple[EngineClient, EngineHealth, _Child | None]:
    """Start an engine process and wait until it, or one that was faster, answers; None for one not ours."""
    child = _spawn(profile, files)
    retry_at = time.monotonic() + RETRY_S
    while True:
        client, health = await _reach(files)
        if client is not None and health is not None:
            return client, health, child if health.pid == child.process.pid else None
        code = child.process.poll()
        now = time.monotonic()
        if code is not None and code != ALREADY_RUNS:
            raise EngineError(_why_it_ended(child, code))
        if code == ALREADY_RUNS and now > retry_at:
            # Whoever held the lock has not come up; it may have been an engine on its way out.
            child, retry_at = _spawn(profile, files), now + RETRY_S
        if now > deadline:
            raise EngineUnavailable(f"the engine did not answer in time; its log is {files.log}")
        await asyncio.sleep(POLL_S)


def _spawn(profile: Profile, files: EngineFiles) -> _Child:
    """Start the engine detached, in a session of its own, so that it outlives this window."""
    command = [sys.executable, "-P", "-m", "server.engine.resident"]
    command += ["--profile", str(profile.file), "--key", profile.key]
    files.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if files.log.exists() and files.log.stat().st_size > LOG_LIMIT:
        files.log.replace(files.log.with_suffix(".log.1"))
    _reap()
    descriptor = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        start = os.fstat(descriptor).st_size
        process = subprocess.Popen(
            command,
            # A directory of ours: nothing in the user's workspace is imported or found by name.
            cwd=files.directory,
            env=os.environ | engine_environment(profile.engine.threads, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            creationflags=getattr(subprocess, "DETACHED_PROCESS", 0),  # Windows' way to say the same
        )
    except OSError as error:
        raise EngineError(f"cannot start an engine: {error.strerror}") from error
    finally:
        os.close(descriptor)
    _started.append(process)
    return _Child(process, files.log, start)


# Engines started here outlive us, or end before us and then must be waited for.
_started: list[subprocess.Popen[bytes]] = []


def _reap() -> None:
    _started[:] = [process for process in _started if process.poll() is None]


def _why_it_ended(child: _Child, code: int) -> str:
    """Its reason in one line: the last line that the process wrote, unless it was ended from outside."""
    if code < 0:
        return f"the engine was ended by signal {-code} while it started; its log is {child.log}"
    with child.log.open("rb") as file:
        file.seek(child.log_start)
        lines = file.read().decode("utf-8", "replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    if said:
        return said[-1].removeprefix("dflash-lsp: ")
    return f"the engine ended with code {code} and said nothing; its log is {child.log}"


async def _why_it_left(child: _Child | None, files: EngineFiles) -> str:
    """Why an engine that was loading no longer answers."""
    if child is not None:
        for _ in range(int(1 / POLL_S)):
            code = child.process.poll()
            if code is not None:
                return _why_it_ended(child, code)
            await asyncio.sleep(POLL_S)
    return f"the engine ended while it was loading; its log is {files.log}"
