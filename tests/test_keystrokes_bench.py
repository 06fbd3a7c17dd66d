"""The keystrokes bench: traces that lead to the text they were made of, and a player that drives the real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from engines import own_directories, replay_profile, stop

from server.benchmarks.keystrokes.driver import driver
from server.benchmarks.keystrokes.goals import goals_met
from server.benchmarks.keystrokes.player import play
from server.benchmarks.keystrokes.plot import bars_of_scenarios, svg
from server.benchmarks.keystrokes.quantiles import p50_p95
from server.benchmarks.keystrokes.soak import Mirror, soak
from server.benchmarks.keystrokes.tables import goals_table
from server.benchmarks.keystrokes.traces import Event, Trace, read_trace, traces_of, write_trace
from server.errors import DflashError
from server.profiles import Profile

BODY = "    total = 0\n    for each in items:\n        total += each\n    return total"
SOURCE = f'"""Doc."""\n\n\ndef add(items):\n{BODY}\n\n\nlast = 1\n'


@pytest.fixture(scope="module")
def profile() -> Iterator[Profile]:
    with own_directories() as root:
        entries: list[dict[str, object]] = [
            {"after": "def add(items):\n", "text": "    return sum(items)\n\n\n"},
            {"after": "\nnow = ", "text": "1\n"},
        ]
        found = replay_profile(root, entries)
        yield found
        stop(found)


def typed(trace: Trace) -> str:
    """The text that a trace leads to when nothing is accepted."""
    lines = trace.text.split("\n")
    before = "\n".join([*lines[: trace.line], lines[trace.line][: trace.character]])
    text, after = before, trace.text[len(before) :]
    for event in trace.events:
        text = text[: -event.erase] if event.erase else text + event.type
    return text + after


def test_a_trace_leads_to_the_text_it_was_made_of_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text(SOURCE)
    (trace,) = traces_of(source, seed=3)
    assert typed(trace) == SOURCE
    assert [each.at_ms for each in trace.events] == sorted(each.at_ms for each in trace.events)
    write_trace(trace, tmp_path / "a.jsonl")
    assert read_trace(tmp_path / "a.jsonl") == trace


def test_a_file_that_is_no_trace_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"language": 1')
    with pytest.raises(DflashError, match="not a trace"):
        read_trace(tmp_path / "a.jsonl")


async def test_the_player_accepts_what_is_right_and_types_what_is_left(profile: Profile) -> None:
    body = "    return sum(items)"
    keys = tuple(Event(600 + 20 * number, type=key) for number, key in enumerate(body + "  # ok"))
    first = (Event(1, type="x"), Event(2, erase=1), Event(500, goes_on=body))
    trace = Trace("python", "def add(items):\n\n", 1, 0, (*first, *keys))
    async with driver(str(profile.file)) as window:
        played = await play(trace, window)
        assert window.document.text == "def add(items):\n" + body + "  # ok\n"
    assert played.accepted in ([], [body])
    assert played.keys + played.keys_spared == len(keys) + 2


async def test_a_text_that_was_typed_through_taken_back_and_shown_again_is_shown_once(profile: Profile) -> None:
    body = "    return sum(items)"
    keys = (
        Event(600, type=" "),
        Event(900, type="q"),
        Event(1100, erase=1),
        Event(1300, type=" "),
        Event(1600, erase=1),
    )
    trace = Trace(
        "python", "def add(items):\n\n", 1, 0, (Event(1, type=" "), Event(2, erase=1), *keys, Event(1900, type=" "))
    )
    async with driver(str(profile.file)) as window:
        played = await play(trace, window)
    assert "".join(played.shown) in body and any(each.text for each in played.asked)


def test_quantiles_of_nothing_are_zeros() -> None:
    assert p50_p95([]) == {"count": 0, "p50": 0.0, "p95": 0.0}
    assert p50_p95([3.0, 1.0, 2.0]) == {"count": 3, "p50": 2.0, "p95": 3.0}


async def test_the_servers_text_is_the_clients_after_each_of_many_random_edits(profile: Profile) -> None:
    report = await soak(profile, 300)
    assert report["texts_equal"] and report["edits"] == 300
    assert report["requests"] == 30 and report["cancelled"] > 0


async def test_a_text_that_differs_is_found(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mirror, "digest", lambda mirror: "another")
    with pytest.raises(DflashError, match="is not the client's"):
        await soak(profile, 20)


def test_goals_tell_what_was_missed() -> None:
    times = {"count": 1, "p50": 3.0, "p95": 6.0}
    report = {
        "own_share": {**times, "answer_without_work": times, "engine_alone": times},
        "known": {"shown": times, "cache": times},
        "cancel": {**times, "most_rounds": {"alone": 3, "after_an_edit": 1}},
        "matching": {**times, "generations": 1, "empty_after_first": 0},
        "disagreeing": {"most_running": 1, "last_is_right": False, "all_were_aborted": True},
        "windows": {"ratio": 2.0},
    }
    missed = {goal["what"] for goal in goals_met(report) if not goal["met"]}
    assert missed == {
        "typed-through answer, p95",
        "cached answer, p95",
        "$/cancelRequest to its answer, p95",
        "50 disagreeing keys: wrong last answers",
    }
    assert "missed" in goals_table(goals_met(report))
    picture = svg("Keystrokes", bars_of_scenarios(report))
    assert ElementTree.fromstring(picture).tag.endswith("svg") and "3 / 6" in picture


def test_the_command_plays_a_trace_and_writes_json_and_a_picture(profile: Profile, tmp_path: Path) -> None:
    trace = Trace("python", "def add(items):\n\n", 1, 0, (Event(600, type=" "), Event(1500, goes_on="x")))
    write_trace(trace, tmp_path / "a.jsonl")
    command = [sys.executable, "-P", "-m", "server", "bench", "keystrokes", "--trace", str(tmp_path / "a.jsonl")]
    command += ["--profile", str(profile.file), "--draft", "on", "off", "--json", "--plot", str(tmp_path / "a.svg")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["draft"]) == {"on", "off"}
    for of_draft in report["draft"].values():
        assert set(of_draft["stages"]) == {"shown", "cache", "running", "new", "all"}
        assert of_draft["requests"] == 1 and of_draft["tokens"]["generated"] >= 0
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
