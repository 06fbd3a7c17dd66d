"""One engine per user and profile: started on demand, found again, replaced when it died or is too old."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from engines import engine, own_directories, replay_profile, wait_for_end

from server import __version__
from server.engine.client import CompletionRequest, Endpoint, EngineClient, EngineError, EngineHealth
from server.engine.launcher import ensure_engine, running_engine, stop_engine
from server.engine.threads import engine_environment
from server.engine.whereabouts import EngineFiles, EngineRecord
from server.profiles import Profile, load_profile

ENSURE = """
import asyncio, sys
from server.engine.launcher import ensure_engine
from server.profiles import load_profile
async def main():
    client = await ensure_engine(load_profile(sys.argv[1]))
    print((await client.health()).pid)
asyncio.run(main())
"""


@pytest.fixture
def root() -> Iterator[Path]:
    with own_directories() as made:
        yield made


@pytest.fixture
def profile(root: Path) -> Iterator[Profile]:
    made = replay_profile(root)
    yield made
    asyncio.run(stop_engine(made))


async def pid_of(client: EngineClient) -> int:
    pid = (await client.health()).pid
    assert pid is not None
    return pid


def started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)


async def first_answer(profile: Profile) -> EngineClient:
    """A client of an engine that was started by other means than the launcher."""
    for _ in range(400):
        client = await running_engine(profile)
        if client is not None:
            return client
        await asyncio.sleep(0.05)
    raise AssertionError("the engine did not come up")


async def answers(client: EngineClient) -> str:
    async with client.stream(CompletionRequest(prompt="short:\n", max_tokens=9)) as stream:
        return "".join([chunk.text async for chunk in stream])


async def test_an_engine_is_started_found_again_and_stopped(profile: Profile) -> None:
    assert await running_engine(profile) is None
    assert await stop_engine(profile) is False
    async with engine(profile) as first, contextlib.aclosing(await ensure_engine(profile)) as second:
        assert await pid_of(first) == await pid_of(second)
        third = await running_engine(profile)
        assert third is not None
        assert await answers(third) == "one two three"
        await third.aclose()
        assert await stop_engine(profile) is True
    assert await running_engine(profile) is None
    files = EngineFiles.of(profile)
    assert [path.name for path in files.directory.iterdir()] == [files.lock.name]


def test_launchers_that_race_start_one_engine(profile: Profile) -> None:
    command = [sys.executable, "-P", "-c", ENSURE, str(profile.file)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    pids = {racer.communicate(timeout=60)[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0, 0]
    assert len(pids) == 1
    # The engine outlives them: it has a session of its own.
    pid = int(pids.pop())
    assert os.getsid(pid) == pid


async def test_a_killed_engine_is_started_anew(profile: Profile) -> None:
    client = await ensure_engine(profile)
    old = await pid_of(client)
    os.kill(old, signal.SIGKILL)
    wait_for_end(old)
    assert EngineFiles.of(profile).record.exists()
    assert await running_engine(profile) is None
    async with engine(profile) as fresh:
        assert await pid_of(fresh) != old
        assert await answers(fresh) == "one two three"
    await client.aclose()


BROKEN_RECORDS = [
    "",
    "{",
    "[]",
    '{"pid": "x"}',
    '{"pid": 1}',
    '{"pid": 1e999, "address": "unix:/x", "version": "0", "started": 0}',
    '{"pid": 1, "address": "foo", "version": "0", "started": 0}',
    '{"pid": 1, "address": "http://[bad", "version": "0", "started": 0}',
    '{"pid": 1, "address": "unix:/x", "version": "0", "started": 0, "token_file": 5}',
]


@pytest.mark.parametrize("record", BROKEN_RECORDS)
async def test_a_broken_record_of_a_dead_engine_does_no_harm(profile: Profile, record: str) -> None:
    files = EngineFiles.of(profile)
    files.record.write_text(record)
    files.socket.write_text("no socket")
    files.lock.touch()
    async with engine(profile) as client:
        assert await answers(client) == "one two three"


async def test_a_stranger_at_the_address_of_a_dead_engine_is_not_talked_to(root: Path, profile: Profile) -> None:
    """After a crash another program can have the port; it even answers health as an engine would."""
    (root / "other").mkdir()
    stranger = replay_profile(root / "other", [{"after": "", "text": "stranger"}])
    async with engine(stranger) as other:
        files = EngineFiles.of(profile)
        files.write_record(EngineRecord(os.getpid(), other.endpoint.address, __version__, time.monotonic()))
        async with engine(profile) as client:
            assert await answers(client) == "one two three"


async def test_only_the_user_can_reach_the_socket(profile: Profile) -> None:
    async with engine(profile):
        files = EngineFiles.of(profile)
        assert files.directory.stat().st_mode & 0o777 == 0o700
        assert files.socket.stat().st_mode & 0o777 == 0o600
        assert files.record.stat().st_mode & 0o777 == 0o600
        assert files.log.stat().st_mode & 0o777 == 0o600


async def test_an_older_version_is_replaced_and_a_newer_one_is_not(profile: Profile) -> None:
    run = (
        "import runpy, sys, server.profiles, server; server.__version__ = sys.argv.pop(1);"
        "runpy.run_module('server.engine.resident', run_name='__main__')"
    )
    for version, replaced in (("0.0.9", True), ("99.0", False)):
        command = [sys.executable, "-P", "-c", run, version, "--profile", str(profile.file), "--key", profile.key]
        other = started(command)
        found = await first_answer(profile)
        assert (await found.health()).version == version
        await found.aclose()
        async with engine(profile) as client:
            health = await client.health()
            assert (health.pid != other.pid) is replaced
            assert health.version == (__version__ if replaced else version)
        assert other.wait(timeout=10) == 0


async def test_a_process_that_dies_at_start_says_why_in_one_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = root / ("d" * 100)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(EngineError) as raised:
        await ensure_engine(replay_profile(root))
    assert str(raised.value).startswith(f"the socket path {deep}")
    assert str(raised.value).endswith("at most 103 fit: set XDG_RUNTIME_DIR to a shorter directory")
    assert "\n" not in str(raised.value)


async def test_a_profile_that_was_edited_since_it_was_read_is_not_served_as_the_old_one(root: Path) -> None:
    before = replay_profile(root)
    replay_profile(root, more="context = 512")
    with pytest.raises(EngineError, match=r"^profile taped has changed since it was read: read it again$"):
        await ensure_engine(before)


async def test_an_engine_that_cannot_load_stays_to_say_why(root: Path) -> None:
    file = root / "broken.toml"
    (root / "tokenizer.json").write_text("{}")
    file.write_text('[engine]\nkind = "resident"\n[target]\npath = "nowhere"\n[prompt]\ntokenizer = "tokenizer.json"\n')
    profile = load_profile(str(file))
    reason = f"the target of profile broken is not at {root / 'nowhere'}"
    told: list[EngineHealth] = []
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            await ensure_engine(profile, on_health=told.append)
        assert str(raised.value) == reason
    client = await running_engine(profile)
    assert client is not None
    assert (told[-1].state, told[-1].reason) == ("failed", reason)
    with pytest.raises(EngineError) as raised:
        await answers(client)
    assert str(raised.value) == reason
    pid = await pid_of(client)
    await client.aclose()
    # Later it is tried again: what was missing may have come.
    record = EngineFiles.of(profile).read_record()
    assert record is not None
    EngineFiles.of(profile).write_record(EngineRecord(pid, record.address, record.version, record.started - 60))
    with pytest.raises(EngineError):
        await ensure_engine(profile)
    client = await running_engine(profile)
    assert client is not None
    assert await pid_of(client) != pid
    await client.aclose()
    assert await stop_engine(profile)


async def test_an_idle_engine_ends_and_a_used_one_does_not(root: Path) -> None:
    # The stream lasts 2 s, the engine may be idle for 1.2 s.
    entry: dict[str, object] = {"after": "", "text": "." * 40, "chunks": ["."] * 40, "delay_ms": 50}
    profile = replay_profile(root, [entry], more="idle_minutes = 0.02")
    async with engine(profile) as client:
        pid = await pid_of(client)
        assert await answers(client) == "." * 40
        await asyncio.to_thread(wait_for_end, pid)
        assert not EngineFiles.of(profile).record.exists()
        assert not EngineFiles.of(profile).socket.exists()


async def test_a_running_stream_hears_how_it_ended_when_the_engine_is_told_to_end(profile: Profile) -> None:
    async with engine(profile) as client:
        pid = await pid_of(client)
        async with client.stream(CompletionRequest(prompt="long:\n", max_tokens=500)) as stream:
            async for _ in stream:
                os.kill(pid, signal.SIGTERM)
                break
            async for _ in stream:
                pass
        assert stream.summary is not None
        assert stream.summary.finish == "cancelled"
        await asyncio.to_thread(wait_for_end, pid)
        assert not EngineFiles.of(profile).record.exists()


async def test_a_workspace_folder_named_server_is_never_imported(
    root: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = root / "workspace" / "server"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported from the workspace')")
    monkeypatch.chdir(package.parent)
    async with engine(profile) as client:
        assert await answers(client) == "one two three"


async def test_the_log_holds_nothing_the_user_wrote(profile: Profile) -> None:
    async with engine(profile) as client:
        await answers(client)
        async with client.stream(CompletionRequest(prompt="my secret\nlong:\n", max_tokens=9)) as stream:
            async for _ in stream:
                break
    log = EngineFiles.of(profile).log.read_text()
    assert "engine" in log
    assert not any(word in log for word in ("secret", "short:", "line 0", "three"))


async def test_loopback_serves_only_the_holder_of_the_token_and_no_web_page(profile: Profile) -> None:
    command = [sys.executable, "-P", "-m", "server.engine.resident", "--profile", str(profile.file), "--loopback"]
    process = started(command)
    try:
        await (await first_answer(profile)).aclose()
        async with engine(profile) as client:
            address, token = client.endpoint.address, client.endpoint.token
            assert address.startswith("http://127.0.0.1:")
            assert await pid_of(client) == process.pid
            assert await answers(client) == "one two three"
            assert EngineFiles.of(profile).token.stat().st_mode & 0o777 == 0o600
            good = {"Authorization": f"Bearer {token}"}
            wrong: list[tuple[dict[str, str], int]] = [
                ({}, 401),
                ({"Authorization": "Bearer no"}, 401),
                ({"Authorization": f"Basic {token}"}, 401),
                (good | {"Origin": "http://127.0.0.1"}, 403),
                (good | {"Host": "evil.example"}, 403),
                (good, 200),
            ]
            async with httpx.AsyncClient(base_url=address, verify=False) as http:
                for headers, status in wrong:
                    assert (await http.get("/health", headers=headers)).status_code == status
            stranger = EngineClient(Endpoint(address, "wrong"))
            with pytest.raises(EngineError, match=r"^the token is missing or wrong$"):
                await stranger.health()
            await stranger.aclose()
            assert token not in repr(client.endpoint)
    finally:
        process.terminate()
        process.wait(timeout=10)


async def test_a_remote_profile_is_a_client_and_nothing_is_started(root: Path) -> None:
    (root / "tokenizer.json").write_text("{}")
    (root / "token").write_text("abc\n")
    (root / "token").chmod(0o600)
    file = root / "far.toml"
    file.write_text(
        '[engine]\nkind = "remote"\naddress = "http://127.0.0.1:9"\ntoken_file = "token"\n'
        '[prompt]\ntokenizer = "tokenizer.json"\n'
    )
    profile = load_profile(str(file))
    client = await ensure_engine(profile)
    assert client.endpoint == Endpoint("http://127.0.0.1:9", "abc", "openai")
    await client.aclose()
    assert await running_engine(profile) is None
    with pytest.raises(EngineError, match="not ours to stop"):
        await stop_engine(profile)


def test_the_engine_starts_with_passive_threads_and_no_network() -> None:
    found = engine_environment(None, {"OMP_NUM_THREADS": "3"})
    assert found == {
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": "3",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    assert engine_environment(5, {"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "5"
    assert 1 <= int(engine_environment(None, {})["OMP_NUM_THREADS"]) <= 8
