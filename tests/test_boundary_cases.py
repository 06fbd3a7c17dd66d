"""Every boundary case gives its expected text, through the bench that runs them as an editor would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.benchmarks.cases import CaseError, read_cases
from server.cli import main

CASES = sorted((Path(__file__).parent / "cases").glob("*.jsonl"))
MAIN = ("python", "typescript", "typescriptreact", "go", "rust", "java", "c", "cpp")


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["bench", "boundaries", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("private_dirs")
def test_every_case_passes_in_pieces_of_any_size(capsys: pytest.CaptureFixture[str]) -> None:
    report = bench(capsys, "--cases", *map(str, CASES))
    assert report["failed"] == []
    assert report["cases"] == report["passed"] == sum(len(read_cases(path)) for path in CASES)


@pytest.mark.usefixtures("private_dirs")
def test_a_case_that_fails_is_named_with_what_it_gave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = {"language": "python", "path": "a.py", "prefix": "x = ", "suffix": "\n", "continuation": "1\ny = 2\n"}
    file = tmp_path / "cases.jsonl"
    lines = [
        {"id": "right", **case, "expected": "1"},
        {"id": "wrong", **case, "expected": "2"},
        {"id": "wrong-file", **case, "expected": "1", "result": "x = 2\n"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    report = bench(capsys, "--cases", str(file))
    assert (report["cases"], report["passed"]) == (3, 1)
    got = {each["id"]: each["got"] for each in report["failed"]}
    assert got == {"wrong": "1", "wrong-file": "x = 1\n"}


def test_there_are_enough_cases_of_each_language() -> None:
    counts = {path.stem: len(read_cases(path)) for path in CASES}
    assert all(counts[name] >= 25 for name in MAIN)
    assert all(count >= 8 for count in counts.values()) and len(counts) == 23


def test_ids_are_unique_over_all_files() -> None:
    ids = [case.id for path in CASES for case in read_cases(path)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ('{"id": "a"}', "language must be a string"),
        ('{"id": "a", "more": 1}', "unknown key 'more'"),
    ],
)
def test_a_line_that_is_no_case_is_told_by_its_number(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text("\n" + line + "\n")
    with pytest.raises(CaseError) as failure:
        read_cases(file)
    assert str(failure.value) == f"{file}:2: {reason}"


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "boundaries", "--cases", str(tmp_path / "none.jsonl")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
