"""The replay engine: which recorded text answers a prompt, and what is said about a wrong recording."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import httpx
import pytest
from engines import engine, own_directories, replay_profile

from server.engine.answer import Answer
from server.engine.backend import QueuedHandle
from server.engine.client import CompletionRequest, CompletionSummary, EngineClient, EngineError
from server.engine.replay import ReplayBackend, find_chunks, read_recording
from server.engine.whereabouts import EngineFiles
from server.monitoring.metrics import Metrics


def recording(folder: Path, *entries: object) -> Path:
    path = folder / "recording.jsonl"
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return path


def test_the_longest_after_that_ends_the_prompt_wins(tmp_path: Path) -> None:
    entries = read_recording(
        recording(
            tmp_path,
            {"after": "f():\n", "text": "short"},
            {"after": "def f():\n", "text": "long", "chunks": ["lo", "ng"], "delay_ms": 250},
            {"after": "g", "text": "other"},
        )
    )
    assert find_chunks(entries, "x\ndef f():\n") == (("lo", "ng"), 0.25)
    assert find_chunks(entries, "async f():\n") == (("short",), 0.0)
    assert find_chunks(entries, "def f():") == ((), 0.0)


def test_a_prompt_that_grew_by_recorded_text_is_continued(tmp_path: Path) -> None:
    entries = read_recording(
        recording(tmp_path, {"after": "f():\n", "text": "return 1\n", "chunks": ["ret", "urn", " 1\n"]})
    )
    assert find_chunks(entries, "f():\nr")[0] == ("et", "urn", " 1\n")
    assert find_chunks(entries, "f():\nret")[0] == ("urn", " 1\n")
    assert find_chunks(entries, "f():\nreturn 1")[0] == ("\n",)
    assert find_chunks(entries, "f():\nreturn 1\n")[0] == ()
    assert find_chunks(entries, "f():\nrex")[0] == ()


def test_an_after_that_ends_the_prompt_goes_before_one_being_continued(tmp_path: Path) -> None:
    entries = read_recording(
        recording(tmp_path, {"after": "def f():\n", "text": "if x:\n    y"}, {"after": "if x:\n", "text": "z"})
    )
    assert find_chunks(entries, "def f():\nif x:\n")[0] == ("z",)


def test_blank_lines_and_missing_chunks_are_fine(tmp_path: Path) -> None:
    entries = read_recording(recording(tmp_path, "", {"after": "", "text": "always"}, "  "))
    assert find_chunks(entries, "anything")[0] == ("always",)
    assert find_chunks(entries, "")[0] == ("always",)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ({"text": "x"}, "after must be a string"),
        ({"after": "x", "text": None}, "text must be a string"),
        ({"after": "x", "text": "ab", "chunks": ["a", "c"]}, "chunks do not join to text"),
        ({"after": "x", "text": "ab", "chunks": "ab"}, "chunks must be a list of strings"),
        ({"after": "x", "text": "ab", "delay_ms": -1}, "delay_ms must be a number of at least 0"),
        ({"after": "x", "text": "ab", "delay_ms": True}, "delay_ms must be a number of at least 0"),
        ({"after": "x", "text": "ab", "delay": 1}, "unknown key 'delay'"),
        ({"after": "x", "text": "\ud83d\ude00", "chunks": ["\ud83d", "\ude00"]}, "half a surrogate pair"),
    ],
)
def test_a_wrong_line_is_named_with_file_and_line(tmp_path: Path, line: object, problem: str) -> None:
    path = recording(tmp_path, {"after": "ok", "text": "ok"}, "", line)
    with pytest.raises(EngineError) as raised:
        read_recording(path)
    assert str(raised.value) == f"{path}:3: {problem}"


async def complete(client: EngineClient, prompt: str, *, heal: str = "") -> tuple[str, CompletionSummary]:
    async with client.stream(CompletionRequest(prompt=prompt, max_tokens=9, heal=heal)) as stream:
        text = "".join([chunk.text async for chunk in stream])
    assert stream.summary is not None
    return text, stream.summary


async def test_a_prompt_that_nothing_follows_is_answered_with_nothing() -> None:
    with own_directories() as root:
        profile = replay_profile(root)
        async with engine(profile) as client:
            text, summary = await complete(client, "unheard of")
            assert (text, summary.finish, summary.rounds) == ("", "eos", 0)
            # Text that was cut off to be healed is part of what the prompt ends with, and not of the answer.
            assert (await complete(client, "sho", heal="rt:\n"))[0] == "one two three"


async def test_a_wrong_recording_fails_the_engine_which_answers_and_recovers() -> None:
    with own_directories() as root:
        profile = replay_profile(root)
        path = root / "recording.jsonl"
        good = path.read_text()
        async with engine(profile) as client:
            path.write_text('{"after": "a", "text": "b"}\nnonsense\n')
            health = await client.health()
            assert (health.state, health.reason) == ("failed", f"{path}:2: not JSON")
            with pytest.raises(EngineError, match=r":2: not JSON$"):
                await complete(client, "short:\n")
            transport = httpx.AsyncHTTPTransport(uds=str(EngineFiles.of(profile).socket), verify=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
                answer = await http.post("/v1/completions", json={"prompt": "short:\n"})
                assert answer.status_code == 503
                assert answer.json()["error"]["message"] == f"{path}:2: not JSON"
            assert 'dflash_engine_state{state="failed"} 1.0' in await client.metrics()
            path.write_text(good)
            os.utime(path, (1, 1))
            assert (await complete(client, "short:\n"))[0] == "one two three"


async def test_who_waits_hears_that_the_engine_works_and_nothing_from_a_stuck_one(tmp_path: Path) -> None:
    text = "." * 20
    path = recording(tmp_path, {"after": "a", "text": text, "chunks": list(text), "delay_ms": 10})
    backend = ReplayBackend(path, "taped", Metrics())
    backend.start()
    backend.submit(CompletionRequest(prompt="a", max_tokens=9, priority=0))
    waiting = backend.submit(CompletionRequest(prompt="a", max_tokens=9, priority=2))
    signs = [chunk is None async for chunk in Answer(waiting, (), backend.units_done).chunks(0.02)]
    assert signs[0] is True
    assert signs.count(False) == 20

    stuck = QueuedHandle()  # its backend does nothing
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            async for _ in Answer(stuck, (), lambda: 7).chunks(0.02):
                raise AssertionError("a stuck engine said that it works")
