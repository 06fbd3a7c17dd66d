"""What must hold whatever happens around the server: real servers, real engines, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from editor import SERVER, Editor, editor, options
from engines import CANCELLED, count, replay_profile, rounds_when_ended

from server.engine.client import EngineClient
from server.engine.launcher import ensure_engine, running_engine, stop_engine
from server.engine.whereabouts import EngineFiles
from server.profiles import Profile

LONG = [f"    x{number} = {number}\n" for number in range(200)]
ENTRIES: list[dict[str, object]] = [
    {"after": "def endless():\n", "text": "".join(LONG), "chunks": LONG, "delay_ms": 20},
    {"after": "short = ", "text": "[1, 2]"},
]
ROUNDS = "dflash_rounds_total"
TRIES = 3000  # of 10 ms


async def begun(engine: EngineClient, rounds: float) -> None:
    for _ in range(TRIES):
        if await count(engine, ROUNDS) > rounds:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the generation did not begin")


async def streaming(ours: Editor, engine: EngineClient) -> asyncio.Task[object]:
    """A request of the editor whose text is being generated."""
    await ours.until_state("ready")
    ours.open("def endless():\n")
    rounds = await count(engine, ROUNDS)
    request = asyncio.create_task(ours.complete(1, 0))
    await begun(engine, rounds)
    return request


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
async def test_an_engine_that_dies_or_hangs_is_told_once_and_started_again(
    profile: Profile, engine: EngineClient, ending: signal.Signals
) -> None:
    async with editor(options(profile)) as ours:
        request = await streaming(ours, engine)
        before = (await engine.health()).pid
        assert before is not None
        os.kill(before, ending)
        await asyncio.wait_for(request, 30)
        await ours.until(lambda: bool(ours.messages))
        assert len(ours.messages) == 1 and "started again" in ours.messages[0]
        for _ in range(TRIES):
            again = await running_engine(profile)
            if again is not None:
                break
            await asyncio.sleep(0.01)
        assert again is not None and (await again.health()).pid != before
        await again.aclose()
        await ours.until_state("ready")
        ours.change("short = ", 1, 0, 0)
        assert (await ours.complete(1, 8)).insert_text == "[1, 2]"
        assert len(ours.messages) == 1 and ours.statuses[-1].reason == ""


async def test_a_killed_server_leaves_no_generation_behind(profile: Profile, engine: EngineClient) -> None:
    cancelled = await count(engine, CANCELLED)
    async with editor(options(profile)) as ours:
        request = await streaming(ours, engine)
        before = await count(engine, ROUNDS)
        ours.process.kill()
        await ours.process.wait()
        assert await rounds_when_ended(engine, cancelled) - before <= 10
        request.cancel()


async def test_a_workspace_with_folders_named_like_ours_is_never_imported(tmp_path: Path, profile: Profile) -> None:
    for name in ("server", "dflash_core", "lsprotocol"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported from the workspace')")
    ours = str(Path(__file__).parent.parent)
    command = ["env", "-C", str(tmp_path), f"PYTHONPATH={ours}", *SERVER]
    async with editor(options(profile), command=command) as running:
        await running.until_state("ready")
        running.open("short = ", (tmp_path / "a.py").as_uri())
        assert (await running.complete(0, 8, (tmp_path / "a.py").as_uri())).insert_text == "[1, 2]"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_cannot_use_the_engine(profile: Profile) -> None:
    files = EngineFiles.of(profile)
    path = asyncio.run(address(profile)).removeprefix("unix:")
    attempt = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for use in (lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[1]), lambda: os.listdir(sys.argv[2])):\n"
        "    try:\n        use()\n"
        "    except PermissionError:\n        continue\n"
        "    sys.exit('it could')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", attempt, path, str(files.directory)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


async def address(profile: Profile) -> str:
    client = await ensure_engine(profile)
    await client.aclose()
    return client.endpoint.address


def exchange(data: bytes) -> tuple[list[dict[str, object]], str, int]:
    """What a server answers to these bytes, what it writes to stderr, and its exit code."""
    done = subprocess.run(SERVER, input=data, capture_output=True, timeout=30, check=False)
    parts = done.stdout.split(b"Content-Length: ")[1:]
    answers = [json.loads(part.split(b"\r\n\r\n", 1)[1]) for part in parts]
    return answers, done.stderr.decode(), done.returncode


def framed(*messages: dict[str, object]) -> bytes:
    bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)


def session(profile: Profile) -> dict[str, object]:
    given = {"capabilities": {}, "initializationOptions": options(profile)}
    return {"id": 1, "method": "initialize", "params": given}


END: list[dict[str, object]] = [{"id": 9, "method": "shutdown"}, {"method": "exit"}]


def error_codes(answers: list[dict[str, object]]) -> dict[object, object]:
    return {each["id"]: each["error"]["code"] for each in answers if "error" in each}  # type: ignore[index]


def test_requests_outside_a_session_have_their_errors(profile: Profile) -> None:
    params = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": 0, "character": 0}}
    asked: dict[str, object] = {
        "method": "textDocument/inlineCompletion",
        "params": {**params, "context": {"triggerKind": 2}},
    }
    early: dict[str, object] = {"id": 7, **asked}
    late: dict[str, object] = {"id": 8, **asked}
    answers, _, code = exchange(framed(early, session(profile), END[0], late, END[1]))
    assert error_codes(answers) == {7: -32002, 8: -32600}
    assert code == 0


def test_malformed_messages_do_not_end_a_session_and_unknown_methods_are_refused(profile: Profile) -> None:
    broken = [
        b"Content-Length: 5\r\n\r\n{nope",
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 4\r\n\r\nnull",
        b"Content-Length: wrong\r\n\r\n",
        b"no header at all\r\n\r\n",
        framed({"id": 3, "method": "no/such"}, {"method": "no/such/notification"}, {"id": 4}),
        b'Content-Length: 21\r\n\r\n{"method": "hunter2"}',
    ]
    answers, said, code = exchange(framed(session(profile)) + b"".join(broken) + framed(*END))
    assert error_codes(answers).get(3) == -32601
    assert code == 0 and 9 in [each.get("id") for each in answers]
    assert "hunter2" not in said
    # What could not be read at all has no id to answer to.
    assert error_codes(answers).get(None) in (-32700, -32600)


def test_an_endless_message_neither_ends_the_server_nor_takes_memory(profile: Profile) -> None:
    """Its length is refused as it comes, whatever is sent of it; requests behind it are answered."""
    endless = b"Content-Length: 100000000000000\r\n\r\n" + b"x" * 3_000_000
    answers, _, code = exchange(framed(session(profile)) + endless + framed({"id": 5, "method": "checkStatus"}, *END))
    assert {"id": 5, "jsonrpc": "2.0", "result": {"status": "OK"}} in answers
    assert error_codes(answers) == {None: -32700} and code == 0


def test_requests_without_params_are_answered_by_the_protocol(profile: Profile) -> None:
    """Unknown ones with -32601, also where pygls would want params; those that lack them with -32602."""
    asked: list[dict[str, object]] = [
        {"id": 3, "method": "no/such"},
        {"id": "four", "method": "no/such", "params": [1, 2]},
        {"id": 5, "method": "textDocument/inlineCompletion"},
        {"id": 6, "method": "dflash/inlineCompletion"},
        {"id": 7, "method": "checkStatus"},
    ]
    answers, _, code = exchange(framed(session(profile), *asked, *END))
    assert error_codes(answers) == {3: -32601, "four": -32601, 5: -32602, 6: -32602}
    assert code == 0


HOLD_UP = {
    "python": "/*\n" * 8000 + "y",
    "java": "a<" * 8000 + "y",
    "rust": "%w(" * 5000,
    "csharp": "<a " * 5000,
    "swift": "#" * 16_000 + "y",
}


async def test_text_that_would_keep_a_parser_for_minutes_keeps_nobody_waiting(profile: Profile) -> None:
    """A step of a parser cannot be interrupted and holds up the whole process; such text is read by rules alone."""
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        for language, text in HOLD_UP.items():
            uri = f"file:///work/hold_up.{language}"
            ours.open(text, uri, language)
            row, column = text.count("\n"), len(text.rpartition("\n")[2])
            for typed in ("y", "(", "\n"):
                ours.change(typed, row, column, column, uri)
                column += 1
                # Whatever the server does with what was typed, the next request is for another document.
                item = await asyncio.wait_for(ours.complete(0, 8), 30)
                assert item.insert_text == "[1, 2]"
            ours.change("short = ", row + 1, 0, 0, uri)
            item = await asyncio.wait_for(ours.complete(row + 1, 8, uri), 30)
            assert item.insert_text == "[1, 2]"


JUMPS = """
import random, time
real = time.time
time.time = lambda: real() + random.choice((-1, 1)) * 1e6
time.time_ns = lambda: int(time.time() * 1e9)
"""


async def test_nothing_hangs_or_expires_when_the_wall_clock_jumps(directories: Path, tmp_path: Path) -> None:
    """Server and engine see a clock that is days off, ahead or behind, whenever they look at it."""
    (tmp_path / "sitecustomize.py").write_text(JUMPS)
    (tmp_path / "profile").mkdir()
    profile = replay_profile(tmp_path / "profile", ENTRIES, more="idle_minutes = 0.1")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        async with editor(options(profile), command=["env", f"PYTHONPATH={path}", *SERVER]) as ours:
            await ours.until_state("ready")
            ours.open("short = ")
            for _ in range(3):
                assert (await ours.complete(0, 8)).insert_text == "[1, 2]"
                await asyncio.sleep(0.3)
            await ours.command("dflash.snooze", 10)
            assert await ours.complete(0, 8) is None
            await ours.command("dflash.snooze", 0)
            assert (await ours.complete(0, 8)).insert_text == "[1, 2]"
            engine = await running_engine(profile)
            assert engine is not None
            pid = (await engine.health()).pid
            await engine.aclose()
            assert pid is not None
            for _ in range(TRIES):  # idle for six seconds, it ends
                if not EngineFiles.of(profile).is_held():
                    break
                await asyncio.sleep(0.01)
            assert not EngineFiles.of(profile).is_held()
    finally:
        await stop_engine(profile)


FULL_DISK = """
set -e
mount -t tmpfs -o size=16k tmpfs "$1"
head -c 1000000 /dev/zero > "$1/fill" 2>/dev/null || true
shift
exec "$@"
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode != 0,
    reason="needs a mount of its own",
)
async def test_with_full_disks_at_the_cache_and_at_the_counts_completions_go_on(
    tmp_path: Path, profile: Profile, engine: EngineClient
) -> None:
    mounted = ["unshare", "-rm", "sh", "-c", FULL_DISK, "sh", str(tmp_path)]
    homes = ["env", f"XDG_CACHE_HOME={tmp_path}", f"XDG_STATE_HOME={tmp_path}"]
    async with editor(options(profile), command=[*mounted, *homes, *SERVER]) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        assert (await ours.complete(0, 8)).insert_text == "[1, 2]"
        assert await ours.command("dflash.counts", "all") == {}  # nothing can be kept
        assert (await ours.command("dflash.counts"))["python"]["shown"] == 1
        assert ours.messages == [] and await ours.leave() == 0


async def test_a_socket_or_a_directory_where_ours_belongs_is_replaced_or_named(tmp_path: Path) -> None:
    """Somebody listens where the engine of a profile will, or something lies there that is no socket."""
    profile = replay_profile(tmp_path, ENTRIES)
    path = EngineFiles.of(profile).socket
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        stranger.listen()
        try:
            async with editor(options(profile)) as ours:
                await ours.until_state("ready")
                ours.open("short = ")
                assert (await ours.complete(0, 8)).insert_text == "[1, 2]"
        finally:
            await stop_engine(profile)
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()  # nobody has spoken to it
    path.mkdir()
    try:
        async with editor(options(profile)) as ours:
            await ours.until_state("failed")
            await ours.until(lambda: bool(ours.messages))
            assert len(ours.messages) == 1 and "is in the way and cannot be removed" in ours.messages[0]
            ours.open("short = ")
            assert await ours.complete(0, 8) is None
    finally:
        path.rmdir()
