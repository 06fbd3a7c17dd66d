"""`bench quality`: the product's own cut and prompt on held-out holes, and generated code that can do no harm."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.benchmarks.holes import Hole
from server.benchmarks.quality import sandbox
from server.benchmarks.quality.infilling import one_line, read_tasks
from server.benchmarks.quality.measure import Outcome, summary
from server.benchmarks.quality.page import page
from server.benchmarks.quality.writer import Writer, Written
from server.cli import main
from server.context.prompt import Prompt
from server.context.tokenizer import PromptTokenizer
from server.corpus.fill import Source, read_file
from server.corpus.selection import Document
from server.corpus.tokens import render
from server.errors import DflashError
from server.paths import asset

DATA = Path(__file__).parent / "data" / "HumanEval-SingleLineInfilling.jsonl.gz"
shut_in = pytest.mark.skipif(sandbox.refusal() is not None, reason=f"{sandbox.refusal()}")


@shut_in
def test_generated_code_runs_as_another_user_without_network_and_within_limits(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.write_text("kept")
    ours.chmod(0o600)
    assert sandbox.run_program("import os; assert os.getuid() == os.getgid() == 65534 and not os.getgroups()")
    assert sandbox.run_program("open('own.txt', 'w').write('x')")  # a directory of its own
    assert not sandbox.run_program(f"open({str(ours)!r}).read()")
    assert not sandbox.run_program("import socket; socket.create_connection(('127.0.0.1', 9), 1)")
    alone = "import socket\nfor index, name in socket.if_nameindex(): assert name == 'lo', name"
    assert sandbox.run_program(alone)
    assert not sandbox.run_program("x = 'a' * (1 << 31)")
    assert not sandbox.run_program("open('big', 'wb').write(b'0' * (1 << 24))")
    assert not sandbox.run_program("import os; os.setuid(0)")
    assert not sandbox.run_program("raise SystemExit(1)")


@shut_in
def test_code_that_does_not_end_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "WALL_S", 2)
    child = (
        "import os, sys\nos.fork()\nos.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(987)'])"
    )
    assert not sandbox.run_program(child)
    running = [each / "cmdline" for each in Path("/proc").iterdir() if each.name.isdigit()]
    assert not any(b"sleep(987)" in each.read_bytes() for each in running if each.exists())


@shut_in
def test_the_tasks_own_solutions_pass_and_an_empty_line_does_not() -> None:
    tasks = read_tasks(DATA)
    assert len(tasks) == 1033
    some = random.Random(2).sample(tasks, 6)
    assert all(sandbox.run_program(task.program(one_line(task.solution))) for task in some)
    assert not all(sandbox.run_program(task.program("\n")) for task in some)


def test_code_is_not_run_without_being_asked_to_nor_where_it_cannot_be_shut_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "quality", "--infilling", str(DATA)]
    assert main(command) == 1
    assert "--run-code" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([*command, "--run-code"]) == 1
    assert "by root only" in capsys.readouterr().err


def test_what_cannot_be_measured_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "quality"]) == 1
    assert "nothing to measure" in capsys.readouterr().err
    broken = tmp_path / "tasks.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"task_id": 1}\n'))
    with pytest.raises(DflashError, match="not a file of infilling tasks"):
        read_tasks(broken)


def test_one_line_is_the_first_that_holds_something() -> None:
    assert one_line("    return 1\n    x") == "    return 1\n"
    assert one_line("\n  a") == "\n  a\n"
    assert one_line("a") == "a\n"


def outcome(**changes: Any) -> Outcome:
    known: dict[str, Any] = {
        "kind": "line",
        "exact": True,
        "similarity": 1.0,
        "parses": True,
        "stopped": True,
        "bits": 8.0,
        "bit_tokens": 4,
        "rounds": [(0, 3), (4, 0), (20, 7)],
    }
    return Outcome(**{**known, **changes})


def test_a_summary_counts_the_bonus_token_and_weighs_bits_by_tokens() -> None:
    found = summary([outcome(), outcome(kind="expression", exact=False, stopped=False, bits=1.0, bit_tokens=1)], 8)
    assert found["middle_bits_per_token"] == 1.8 and found["exact_match"] == 0.5
    assert found["stopped_at_boundary"] == 1.0  # an argument does not end its line: it is left out
    assert found["acceptance_length"] == round(1 + 10 / 3, 3)
    assert found["acceptance_by_position"] == [round(2 / 3, 3)] * 3 + [round(1 / 3, 3)] * 4
    assert found["acceptance_by_length"] == {"0-7": 2.5, "8-15": None, "16-31": 8.0, "32-63": None, "64-": None}
    assert summary([], 8)["exact_match"] is None


class FakeWriter(Writer):
    """Writes a text that is given, where a pair would write its own."""

    def __init__(self, text: str, *, ended: bool) -> None:
        self.text, self.ended = text, ended

    def prompt(self, source: Source, cursor: int, after: str) -> Prompt:
        return Prompt([])

    def _pieces(self, prompt: Prompt, written: Written, draft: bool) -> Iterator[tuple[str, bool]]:
        yield self.text, self.ended


def test_what_is_judged_is_what_is_served() -> None:
    source = read_file("a.py", "def f(a):\n    return g(a)\n")
    hole = Hole("line", source.text.index("g"), source.text.index("\n", 20))
    broke_off = FakeWriter("g(a, h(1", ended=False).write(source, hole)
    assert (broke_off.kept, broke_off.served) == ("g(a, h(1", "g(a, h(1))")
    assert broke_off.after == "def f(a):\n    return g(a, h(1))\n"
    nothing = FakeWriter("= ) =", ended=True).write(source, hole)
    assert nothing.served == "" and nothing.after == "def f(a):\n    return \n"


def test_holes_of_one_line_are_counted_apart() -> None:
    found = summary([outcome(one_line=True), outcome(one_line=True, exact=False), outcome(exact=False)], 8)
    assert found["exact_match"] == 0.333 and found["exact_match_of_one_line"] == 0.5


def test_units_that_the_tokens_do_not_reach_are_told_apart() -> None:
    ends = [outcome(), outcome(stopped=False), outcome(stopped=False, ran_out=True, fits=False), outcome(fits=False)]
    found = summary(ends, 8)
    assert found["stopped_at_boundary"] == found["units_that_fit"] == found["stopped_where_the_unit_fits"] == 0.5
    assert found["endings"] == {"by itself": 2, "at the boundary": 1, "out of tokens": 1}


def test_the_embedded_pair_is_measured_on_held_out_documents_of_a_corpus(
    tmp_path: Path, embedded_target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))
    text = Path(sandbox.__file__).with_name("infilling.py").read_text(encoding="utf-8")
    ids = render(Document("benchmarks/infilling.py", "python", text, b""), tokenizer)
    np.save(tmp_path / "held-python-00000.npy", np.array(ids, dtype=np.uint16))
    np.save(tmp_path / "held-python-00000.starts.npy", np.zeros(1, dtype=np.uint32))
    profile = tmp_path / "float.toml"
    shipped = Path(sandbox.__file__).parents[2] / "profiles" / "embedded.toml"
    profile.write_text(shipped.read_text().replace('kind = "resident"', 'kind = "resident"\ndtype = "float32"'))
    html = tmp_path / "report.html"
    command = ["bench", "quality", "--corpus", str(tmp_path), "--count", "2", "--check", "1", "--page", str(html)]
    assert main([*command, "--profile", str(profile), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    python = report["by_language"]["python"]
    assert python["holes"] == 2 and 0 < python["middle_bits_per_token"] < 20 and 1 <= python["acceptance_length"] <= 8
    assert python["exact_match_of_one_line"] in (None, 0.0, 0.5, 1.0)
    assert sum(python["endings"].values()) == sum(report["all"]["endings"].values()) <= 2
    assert report["draft_equals_target"] is True and report["compared"] == 1 and report["files"] == 1
    assert html.read_text().count("<svg") >= 6
    two = {**report, "label": "again"}
    assert "again" in page([report, two])
