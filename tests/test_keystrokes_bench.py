"""The keystrokes bench: traces that lead to the text they were made of, and a player that drives the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import own_directories, replay_profile, stop

from server.benchmarks.keystrokes.driver import driver
from server.benchmarks.keystrokes.player import play
from server.benchmarks.keystrokes.quantiles import p50_p95
from server.benchmarks.keystrokes.traces import Event, Trace, read_trace, traces_of, write_trace
from server.errors import DflashError
from server.profiles import Profile

BODY = "    total = 0\n    for each in items:\n        total += each\n    return total"
SOURCE = f'"""Doc."""\n\n\ndef add(items):\n{BODY}\n\n\nlast = 1\n'


@pytest.fixture(scope="module")
def profile() -> Iterator[Profile]:
    with own_directories() as root:
        entries: list[dict[str, object]] = [{"after": "def add(items):\n", "text": "    return sum(items)\n\n\n"}]
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
    assert (played.accepted, played.accepted_characters) in ((0, 0), (1, len(body)))
    assert played.keys + played.keys_spared == len(keys) + 2


def test_quantiles_of_nothing_are_zeros() -> None:
    assert p50_p95([]) == {"count": 0, "p50": 0.0, "p95": 0.0}
    assert p50_p95([3.0, 1.0, 2.0]) == {"count": 3, "p50": 2.0, "p95": 3.0}
