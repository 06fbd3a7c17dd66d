"""`dflash-lsp bench engine`: its JSON, its picture, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REAL_ENVIRONMENT

from server.benchmarks.engine import code_prompts, step_plot, step_table
from server.benchmarks.llama_cpp import measure_llama_cpp
from server.errors import DflashError
from server.profiles import load_profile


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "server", "bench", "engine", *arguments]
    return subprocess.run(command, env=REAL_ENVIRONMENT, capture_output=True, text=True, check=False)


def test_the_embedded_pair_is_measured_into_one_json_object_and_a_picture(
    embedded_target: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "rates.svg"
    small = ["--context", "48", "--prompts", "1", "--max-tokens", "6", "--repeats", "1", "--blocks", "8"]
    done = bench(*small, "--dtypes", "float32", "--busy-core", "--plot", str(picture), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["geometry"], report["dtype"], report["context"]) == ("embedded", "float32", 48)
    assert report["texts_equal"] is True and report["read_tbps"] > 0
    (run,) = report["runs"]
    for key in ("block", "draft_ms", "verify_ms", "round_ms", "floor_round_ms", "rounds", "acceptance_length"):
        assert key in run
    alone = report["autoregressive"]
    assert report["speedup"] == pytest.approx(run["tokens_per_s"] / alone["tokens_per_s"])
    assert alone["token_ms"] > alone["floor_token_ms"] > 0
    assert report["prefill"]["tokens"] == 47 and report["beside_busy_core"]["dtype"] == "float32"
    drawn = picture.read_text(encoding="utf-8")
    assert drawn.startswith("<svg") and all(words in drawn for words in ("float32", "1, no draft", "embedded"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--geometry", "qwen3-8b"], "belong together"),
        (["--random-weights"], "belong together"),
        (["--sources", "nowhere.py"], "cannot be read as text"),
        (["--profile", "replay"], "has no pair to measure"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    done = bench(*arguments, "--json")
    assert done.returncode == 1 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_step_costs_measured_on_a_gpu_are_shown_beside_their_floors() -> None:
    (path,) = sorted((Path(__file__).parents[1] / "benchmarks" / "results").glob("engine-h200-*.json"))
    for report in json.loads(path.read_text(encoding="utf-8"))["runs"]:
        rows = step_table(report)
        assert len(rows) == 2 + 3 * len(report["runs"]) and rows[1][0] == "token"
        # Nothing is read faster than memory can be read, and a round is a draft and a verify.
        assert all(float(row[3]) > 1 for row in rows[1:])
        for run in report["runs"]:
            assert run["round_ms"] == pytest.approx(run["draft_ms"] + run["verify_ms"], rel=0.1)
        drawn = step_plot(report)
        assert drawn.startswith("<svg") and report["geometry"] in drawn and "floor" in drawn


def test_prompts_are_beginnings_of_files_and_too_short_files_are_none(tmp_path: Path) -> None:
    profile = load_profile("embedded")
    prompts = code_prompts(profile, [], 300, 3)
    assert [len(prompt) for prompt in prompts] == [300] * 3 and all(prompt[0] == 0 for prompt in prompts)
    short = tmp_path / "short.py"
    short.write_text("x = 1\n")
    with pytest.raises(DflashError, match="no source file has 300 tokens"):
        code_prompts(profile, [short], 300, 3)


def test_a_python_without_llama_cpp_is_named(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"")
    with pytest.raises(DflashError, match=r"llama\.cpp failed"):
        measure_llama_cpp(Path(sys.executable), model, [[1, 2]], max_tokens=1, threads=1, repeats=1)
    with pytest.raises(DflashError, match="does not exist"):
        measure_llama_cpp(tmp_path / "python", model, [[1, 2]], max_tokens=1, threads=1, repeats=1)
