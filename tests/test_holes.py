"""Holes are the units that their kinds say, and completions of our own files stop at their ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.benchmarks.hole_stops import Text, measure
from server.benchmarks.holes import cut_holes, read_source
from server.cli import main
from server.context.languages import Language, language_for

ROOT = Path(__file__).parent.parent
TYPESCRIPT = """\
import { a } from './a';

function add(one: number, two: number) {
  const rows = [
    one,
    two, // last
  ];
  if (one) {
    run(one, two);
  } else {
    stop();
  }
  return rows;
}
"""


def units(tmp_path: Path, text: str, name: str) -> dict[str, set[str]]:
    """Every hole of a text by its kind."""
    language, file = language_for("", name), tmp_path / name
    file.write_text(text)
    assert language.syntax is not None
    source = read_source(file, language.syntax)
    assert source is not None
    found: dict[str, set[str]] = {}
    for hole in cut_holes(*source, language.syntax, 1000, 0):
        found.setdefault(hole.kind, set()).add(text[hole.start : hole.end])
    return found


def test_units_are_what_their_kinds_say(tmp_path: Path) -> None:
    found = units(tmp_path, TYPESCRIPT, "a.ts")
    assert found["function"] == {TYPESCRIPT[TYPESCRIPT.index("function") :].rstrip()}
    assert found["element"] == {"one,", "two, // last"}
    assert found["expression"] >= {"one: number", "two: number", "one", "two"}
    assert "run(one, two);" in found["statement"] and "return rows;" in found["statement"]
    assert "\n    run(one, two);" in found["block"] and "stop();" in found["body"]
    assert all(TYPESCRIPT.count(unit) for unit in found["line"])
    assert all(unit.endswith((";", "}")) for unit in found["head"])


def test_blocks_told_by_indentation_are_units_too(tmp_path: Path) -> None:
    found = units(tmp_path, "def f(a):\n    b = a\n    return b\n\n\nx = 1\n", "a.py")
    assert found["block"] == {"\n    b = a\n    return b"} and found["body"] == {"b = a\n    return b"}


@pytest.mark.parametrize(
    "text", ["x = (\n", "é = 1\n", "x = '" + "a" * 400 + "'\n"], ids=["wrong", "not ASCII", "a long line"]
)
def test_files_that_nobody_would_learn_from_are_passed_over(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(text)
    syntax = language_for("python").syntax
    assert syntax is not None and read_source(file, syntax) is None


def language(name: str) -> Language:
    return language_for(name)


@pytest.mark.parametrize(
    ("name", "folder"), [("python", "server"), ("typescript", "vscode-extension/src")], ids=["python", "typescript"]
)
def test_completions_of_our_own_files_stop_at_the_ends_of_their_units(name: str, folder: str) -> None:
    tally = measure(language(name), [ROOT / folder], 160, 1).to_json()
    assert tally["holes"] >= 100
    assert tally["exact"] >= 98 and tally["equal_or_no_worse"] >= 99


@pytest.mark.parametrize("text", ["foreign", "broken"])
@pytest.mark.parametrize(
    ("name", "folder"), [("python", "server"), ("typescript", "vscode-extension/src")], ids=["python", "typescript"]
)
def test_our_own_files_parse_no_worse_with_what_is_offered_of_any_text(name: str, folder: str, text: Text) -> None:
    tally = measure(language(name), [ROOT / folder], 60, 1, text=text).to_json(text)
    assert tally["holes"] >= 60 and tally["no_worse"] == 100, tally["failed"]
    assert tally["withdrawn"] == 0


def test_the_bench_tells_rates_by_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ts").write_text(TYPESCRIPT)
    assert main(["bench", "boundaries", "--holes", str(tmp_path), "--count", "10", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["languages"]
    assert set(report) == {"typescript"} and report["typescript"]["exact"] == 100
    assert main(["bench", "boundaries", "--holes", str(tmp_path / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err
