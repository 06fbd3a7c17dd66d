"""`dflash-lsp complete` as a person runs it: text, growth, JSON, comparison, and one clear line for errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from server import paths
from server.cli.stream_view import ACCEPTED, BONUS, RESET, StreamView
from server.completion.comparison import _exact_profile, _first_difference
from server.completion.generation import RoundText
from server.completion.request import Growth
from server.completion.surroundings import surroundings
from server.documents.document import Document, Place
from server.engine.whereabouts import EngineFiles
from server.profiles import Profile, load_profile

ROOT = Path(__file__).resolve().parent.parent
ENTRIES: list[dict[str, object]] = [
    {
        "after": "def two(a):\n",
        "text": "    b = a\n    return b\n\n\ndef three():\n    pass\n",
        "chunks": ["    b = a\n", "    return b\n", "\n\ndef three():\n", "    pass\n"],
        "delay_ms": 5,
    },
    {"after": "x = '漢😀", "text": "!'\ny = 1\n"},
]
SHOWN = ("--stream", "--compare", "--color", "always")
COLORS = re.compile(r"\x1b\[[0-9;]*m")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "server", "complete", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=200, check=False, env=os.environ | {"PYTHONUTF8": "1"}
    )


def at(file: Path, line: int, character: int, profile: Profile, *more: object) -> subprocess.CompletedProcess[str]:
    return run(file, "--line", line, "--character", character, "--profile", profile.file, *more)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "source.py"
    file.write_text("def two(a):\n\n\nx = '漢😀\n", encoding="utf-8")
    return file


def test_the_text_is_printed(source: Path, profile: Profile) -> None:
    done = at(source, 1, 0, profile)
    assert (done.returncode, done.stdout) == (0, "    b = a\n    return b\n")


def test_the_growing_text_is_the_same_text_and_its_surroundings_go_to_stderr(source: Path, profile: Profile) -> None:
    done = at(source, 1, 0, profile, "--stream")
    assert (done.returncode, done.stdout) == (0, "    b = a\n    return b\n")
    assert "source.py:1:0 · taped: recorded text, no model" in done.stderr
    assert "def two(a):" in done.stderr and "ended by boundary" in done.stderr


def test_json_is_one_object_and_nothing_else(source: Path, profile: Profile) -> None:
    done = at(source, 1, 0, profile, "--json")
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert found["text"] == "    b = a\n    return b"
    assert found["range"] == {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 0}}
    assert (found["finish"], found["reason"]) == ("boundary", "boundary")
    assert set(found["stats"]) == {
        "engine", "device", "prompt_tokens", "reused_tokens", "tokens", "rounds",
        "acceptance_length", "first_ms", "total_ms", "tokens_per_s", "source",
    }  # fmt: skip
    assert (found["stats"]["engine"], found["stats"]["device"]) == ("replay", "replay")


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 12), ("utf-16", 8), ("utf-32", 7), (None, 8)])
def test_the_position_counts_as_lsp_does(source: Path, profile: Profile, encoding: str | None, character: int) -> None:
    done = at(source, 3, character, profile, "--json", *(["--encoding", encoding] if encoding else []))
    found = json.loads(done.stdout)
    assert (found["text"], found["range"]["end"]["character"]) == ("!'", character)


def test_nothing_to_insert_has_a_reason(source: Path, profile: Profile) -> None:
    done = at(source, 2, 0, profile)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "nothing to insert: no text\n")


@pytest.mark.parametrize(
    ("content", "line", "character", "message"),
    [
        (b"x = 1\n", 2, 0, "line 2 is outside the file, whose last line is 1, counted from 0"),
        (b"x = 1\n", 0, 6, "character 6 is outside line 0, which has 5"),
        (b"x = 1\n", -1, 0, "line -1 is outside the file"),
        ("😀\n".encode(), 0, 1, "character 1 of line 0 is inside a character"),
        (b"x = \xff\n", 0, 0, "is not UTF-8 text"),
        (b"\x7fELF\0\0", 0, 0, "is a binary file"),
        (None, 0, 0, "No such file or directory"),
    ],
)
def test_what_cannot_be_completed_is_one_clear_line(
    tmp_path: Path, profile: Profile, content: bytes | None, line: int, character: int, message: str
) -> None:
    file = tmp_path / "a.py"
    if content is not None:
        file.write_bytes(content)
    done = at(file, line, character, profile)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert message in done.stderr


def test_a_directory_and_an_unknown_profile_are_one_clear_line(tmp_path: Path, profile: Profile) -> None:
    for done in (at(tmp_path, 0, 0, profile), run(__file__, "--line", 0, "--character", 0, "--profile", "nowhere")):
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_wrong_usage_is_exit_code_two(source: Path) -> None:
    assert run(source, "--line", 0).returncode == 2
    assert run(source, "--line", 0, "--character", "x").returncode == 2


def test_the_replay_engine_has_nothing_to_compare(source: Path, profile: Profile) -> None:
    done = at(source, 1, 0, profile, "--compare")
    assert (done.returncode, done.stderr) == (1, "dflash-lsp: profile taped has no draft of ours to compare with\n")


def test_accepted_tokens_and_the_targets_own_have_their_colors(capsys: pytest.CaptureFixture[str]) -> None:
    view = StreamView("always")
    site = surroundings(Document("file:///a.py", ""), Place(0, 0), "a.py", 100)
    rounds = (RoundText("return a +", " +"), RoundText(" b\nprint", "print"))
    view.grow(Growth(site, rounds[:1], 0, 8))
    view.grow(Growth(site, rounds, 0, 12))
    view.grow(Growth(site, rounds, 0, 12))
    shown = capsys.readouterr().out
    assert shown == f"{ACCEPTED}return a{RESET}{BONUS} +{RESET}{ACCEPTED} b{RESET}"
    plain = StreamView("never")
    plain.grow(Growth(site, rounds, 0, 12))
    assert capsys.readouterr().out == "return a + b"
    plain.end("4 tokens", "return a + b")
    assert "offered" not in capsys.readouterr().err
    plain.end("4 tokens", "return a")
    assert "offered, so that the file parses:\nreturn a\n" in capsys.readouterr().err


def test_two_runs_differ_where_their_first_token_does() -> None:
    assert _first_difference([1, 2], [1, 2]) is None
    assert _first_difference([1, 2, 3], [1, 4, 3]) == 1
    assert _first_difference([1, 2], [1, 2, 3]) == 2


def test_the_exact_profile_differs_only_in_its_precision(tmp_path: Path) -> None:
    profile = load_profile("embedded")
    exact = _exact_profile(profile, tmp_path)
    assert exact.engine == replace(profile.engine, dtype="float32")
    assert (exact.target, exact.draft) == (profile.target, profile.draft)
    assert exact.prompt is not None and profile.prompt is not None
    assert exact.prompt.tokenizer == profile.prompt.tokenizer
    assert exact.key != profile.key


@pytest.mark.skipif(not paths.asset("embedded", "draft").is_dir(), reason="no draft is shipped yet")
def test_a_real_pair_is_shown_in_colors_and_compared_in_two_precisions(
    private_target: Path, private_dirs: Path, tmp_path: Path
) -> None:
    file = private_dirs / "small.toml"
    text = load_profile("embedded").file.read_text(encoding="utf-8")
    file.write_text(
        text.replace("[engine]", '[engine]\ndtype = "bfloat16"').replace("max_tokens = 96", "max_tokens = 24"),
        encoding="utf-8",
    )
    source = tmp_path / "prime.py"
    source.write_text("def is_prime(n: int) -> bool:\n    \n", encoding="utf-8")
    done = run(source, "--line", 1, "--character", 4, "--profile", file, "--draft", "on", *SHOWN)
    assert done.returncode == 0, done.stderr
    *shown, closing = done.stdout.split("\n")[:-1]
    assert ACCEPTED in done.stdout and BONUS in done.stdout
    assert COLORS.sub("", "\n".join(shown)).strip()
    assert re.fullmatch(
        r"the same prompt once more, uncut, every round drafted: 24 tokens in \d+ rounds,"
        r" acceptance length \d\.\d+; [\d.]+ tokens/s with the draft, [\d.]+ without"
        r" \([\d.]+ times\), in bfloat16 on cpu; texts in float32: equal",
        closing,
    )
    # Only the serving engine is left.
    folder = EngineFiles.of(load_profile(str(file))).directory
    assert len(list(folder.glob("engine-*.json"))) == 1
