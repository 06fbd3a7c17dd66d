"""The simulation of a team on one engine: what it must show whatever the numbers are, and its command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import simpy

from server.benchmarks.keystrokes.traces import Event, Trace, traces_of
from server.benchmarks.load.cost import QWEN3_8B_B200, EngineCost, read_cost
from server.benchmarks.load.developer import _goes_on
from server.benchmarks.load.engine import SimulatedEngine, SimulatedRequest
from server.benchmarks.load.simulation import TARGET_MS, replicas_due, simulate
from server.benchmarks.load.sizing import sizing_table
from server.cli import main
from server.errors import DflashError

ROOT = Path(__file__).resolve().parent.parent
TRACES = list(traces_of(ROOT / "server/engine/sse.py"))
SLOW = EngineCost("slow", "made up", {1: 50.0, 8: 120.0}, 2000, 3.0, most_running=8)


def test_a_round_costs_what_lies_between_what_was_measured() -> None:
    cost = replace(SLOW, round_ms={1: 10.0, 4: 40.0, 8: 100.0})
    assert [1000 * cost.round_s(requests) for requests in (1, 2, 4, 6, 8)] == pytest.approx([10, 20, 40, 70, 100])
    assert 1000 * cost.round_s(10) == pytest.approx(130)
    assert replace(SLOW, round_ms={1: 10.0}).round_s(5) == 0.01


def test_one_request_alone_takes_its_prefill_and_its_rounds() -> None:
    env = simpy.Environment()
    engine = SimulatedEngine(env, SLOW)
    request = SimulatedRequest(0.0, prefill=200, wanted=7, ended=env.event())
    engine.submit(request)
    env.run(until=10)
    # 200 tokens at 2,000 a second, then rounds of 50 ms that bring three tokens each.
    assert request.first == pytest.approx(0.15) and engine.rounds == 3
    assert engine.busy_s == pytest.approx(0.1 + 3 * 0.05)


def test_a_cancelled_request_ends_after_the_round_that_runs() -> None:
    env = simpy.Environment()
    engine = SimulatedEngine(env, SLOW)
    request = SimulatedRequest(0.0, prefill=0, wanted=60, ended=env.event())
    engine.submit(request)
    env.run(until=0.12)
    request.cancelled = True
    env.run(until=5)
    assert engine.rounds == 3 and not request.ended.triggered


def test_a_request_waits_when_the_engine_runs_as_many_as_it_may() -> None:
    env = simpy.Environment()
    engine = SimulatedEngine(env, replace(SLOW, most_running=1))
    requests = [SimulatedRequest(0.0, 0, 3, env.event()) for _ in range(3)]
    for each in requests:
        engine.submit(each)
    env.run(until=5)
    assert [each.first for each in requests] == pytest.approx([0.05, 0.10, 0.15])


def test_latency_grows_with_developers_and_replicas_take_it_back() -> None:
    few = simulate(TRACES, SLOW, 2, minutes=3)
    many = simulate(TRACES, SLOW, 60, minutes=3)
    spread = simulate(TRACES, SLOW, 60, minutes=3, replicas=6)
    assert few["whole_ms"]["p95"] < many["whole_ms"]["p95"] and few["busy"] < many["busy"]
    assert spread["whole_ms"]["p95"] < many["whole_ms"]["p95"]
    assert many["requests"] > 10 * few["requests"]


def test_the_fewest_replicas_that_hold_the_target_are_found() -> None:
    how = {"minutes": 2.0, "seed": 3}
    cost = replace(SLOW, round_ms={1: 10.0, 8: 60.0}, prefill_tokens_per_s=50_000)
    due = replicas_due(TRACES, cost, 150, **how)
    assert due is not None and due["replicas"] > 1 and due["whole_ms"]["p95"] <= TARGET_MS
    fewer = simulate(TRACES, cost, 150, replicas=due["replicas"] - 1, **how)
    assert fewer["whole_ms"]["p95"] > TARGET_MS or fewer["overtaken"] > 0.5
    never = replace(SLOW, round_ms={1: 1000.0})
    assert replicas_due(TRACES, never, 1, **how) is None


def test_text_that_is_always_right_is_asked_for_seldom() -> None:
    right = simulate(TRACES, QWEN3_8B_B200, 5, minutes=3, right=1.0)
    wrong = simulate(TRACES, QWEN3_8B_B200, 5, minutes=3, right=0.0)
    assert wrong["requests"] > 0.9 * wrong["keys"] * 0.9 and wrong["accepted"] == 0
    assert right["requests"] < 0.2 * wrong["requests"] and right["accepted"] > 0


def test_the_same_seed_gives_the_same_run() -> None:
    assert simulate(TRACES, SLOW, 7, minutes=1) == simulate(TRACES, SLOW, 7, minutes=1)
    assert simulate(TRACES, SLOW, 7, minutes=1) != simulate(TRACES, SLOW, 7, minutes=1, seed=2)


def test_what_a_user_goes_on_to_type_leaves_out_the_mistakes() -> None:
    events = [Event(0, type="a"), Event(1, type="q"), Event(2, erase=1), Event(3, type="b"), Event(4, type="c")]
    assert _goes_on(events) == ["bc", "bc", "bc", "c", ""]
    for trace in TRACES:
        typed = ""
        for event in trace.events:
            typed = (typed[: len(typed) - event.erase] if event.erase else typed) + event.type
        first = trace.events[0]
        assert (first.type + _goes_on(trace.events)[0]) == typed


def test_the_command_prints_one_object_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "load.svg"
    command = ["bench", "load", "--developers", "2", "8", "--minutes", "1", "--due", "--plot", str(drawn), "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert [run["developers"] for run in report["runs"]] == [2, 8]
    assert report["due"][0] == {"developers": 2, "replicas": 1}
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")
    assert main(command[:-1]) == 0
    assert "2 developers: 1 replicas hold the target" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--developers", "0"], "--developers must be from 1 to 100000"),
        (["--right", "2"], "--right must be from 0 to 1"),
        (["--cost", "nothing"], "nothing is no file and none of"),
        (["--trace", "nothing"], "cannot read the trace nothing"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "load", *arguments]) == 1
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1


@pytest.mark.parametrize("text", ["", "[]", '{"cost": {"name": 1}}', '{"round_ms": {"1": "x"}}'])
def test_a_file_without_a_cost_is_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "cost.json"
    file.write_text(text)
    with pytest.raises(DflashError, match="holds no cost of an engine"):
        read_cost(str(file))


def test_the_sizing_table_of_the_documentation_is_what_the_command_prints() -> None:
    assert sizing_table() in (ROOT / "docs/scale.md").read_text(encoding="utf-8")


def test_committed_results_are_of_the_shape_that_the_command_prints() -> None:
    for file in (ROOT / "benchmarks/results").glob("load-*.json"):
        report = json.loads(file.read_text(encoding="utf-8"))
        assert report["runs"] and report["target_ms"] == TARGET_MS and report["cost"]["source"]


def test_a_trace_that_has_no_keys_asks_for_nothing() -> None:
    run = simulate([Trace("python", "", 0, 0, (Event(1.0, goes_on="x"),))], SLOW, 2, minutes=1)
    assert run["requests"] == 0 and run["whole_ms"] == {}
