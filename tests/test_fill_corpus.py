"""`train holes`: examples are prompts as they are served, with what is due behind them."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.benchmarks.holes import Hole
from server.cli import main
from server.context.prompt import PromptBuilder
from server.context.tokenizer import PromptTokenizer
from server.corpus.editor_holes import KIND_WEIGHTS, choose_holes
from server.corpus.fill import FillRenderer, Neighbours, as_served, holes_of, prompt_at, read_file
from server.paths import asset
from server.profiles import load_profile
from tests.test_corpus import build, make_wheel, wheels  # noqa: F401

PREFIX, SUFFIX, MIDDLE, STOP = 8, 9, 10, 2

PYTHON = '''"""A queue of jobs."""

import heapq


class Queue:
    def __init__(self, limit):
        self.limit = limit
        self.jobs = []

    def put(self, job, priority=0):
        if len(self.jobs) >= self.limit:
            raise OverflowError("the queue is full", self.limit)
        heapq.heappush(self.jobs, (priority, job))
        return len(self.jobs)

    def take(self):
        total = 0
        while self.jobs:
            priority, job = heapq.heappop(self.jobs)
            total += priority
            yield job
'''


@pytest.fixture(scope="session")
def fill_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("profile") / "fill.toml"
    file.write_text(
        '[engine]\nkind = "resident"\n[target]\npath = "cache:embedded/target"\n[prompt]\n'
        'tokenizer = "asset:embedded/tokenizer.json"\nformat = "suffix-prefix-middle"\nbudget = 256\n'
        "suffix_budget = 64\nmax_tokens = 48\nstop_ids = [0, 2]\n"
        f"[prompt.marker_ids]\nbos = 0\nprefix = {PREFIX}\nsuffix = {SUFFIX}\nmiddle = {MIDDLE}\n"
    )
    return file


@pytest.fixture
def tokenizer() -> PromptTokenizer:
    return PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))


def many_holes(text: str, path: str, count: int = 400) -> list[Hole]:
    source = read_file(path, text)
    return choose_holes(text, source.tree, source.language.syntax, count, random.Random(3))


def test_holes_are_of_every_kind_and_end_where_a_unit_ends() -> None:
    holes = many_holes(PYTHON, "jobs/queue.py")
    assert {hole.kind for hole in holes} >= set(KIND_WEIGHTS) - {"element"}
    cut = {(hole.kind, PYTHON[hole.start : hole.end]) for hole in holes}
    assert ("statement", "self.limit = limit") in cut
    assert ("lines", "self.limit = limit\n        self.jobs = []") in cut
    assert any(kind == "nothing" and not text for kind, text in cut)
    for hole in holes:
        text, before = PYTHON[hole.start : hole.end], PYTHON[: hole.start]
        if hole.kind == "word":
            assert before[-1].isalnum() or before[-1] == "_"
            assert text[0].isalnum() or text[0] == "_"
        if hole.kind in ("statement", "lines", "function"):
            assert not before.rpartition("\n")[2].strip() and PYTHON[hole.end : hole.end + 1] == "\n"


def test_what_is_due_ends_where_the_product_ends_it() -> None:
    text = "import os\n\n\ndef f(a):\n    a += 1\n    b = a\n    c = b\n\n    d = c\n    return d\n\n\nx = 1\ny = 2\n"
    source = read_file("m.py", text)

    def served(kind: str, first: str, due: str) -> str | None:
        start = text.index(first)
        hole = as_served(source, Hole(kind, start, start + len(due)))
        assert text.startswith(due, start) and (hole is None or (hole.kind, hole.start) == (kind, start))
        return None if hole is None else text[hole.start : hole.end]

    assert served("lines", "b = a", "b = a\n    c = b\n\n    d = c") == "b = a\n    c = b"  # a blank line ends it
    assert served("lines", "b = a", "b = a\n    c = b") == "b = a\n    c = b"
    assert served("lines", "x = 1", "x = 1\ny = 2") == "x = 1"  # at the top of a module one statement
    assert served("word", "s\n\n\ndef", "s") == "s"
    assert served("random", "c = b", "c = b\n\n    d") is None and served("random", "= b", "= b") == "= b"
    assert served("nothing", "\n    c", "") == ""
    for hole in holes_of(read_file("jobs/queue.py", PYTHON), 400, random.Random(3)):
        assert as_served(read_file("jobs/queue.py", PYTHON), hole) == hole


def test_the_text_below_is_left_out_only_where_the_line_ends(fill_profile: Path, tokenizer: PromptTokenizer) -> None:
    def follows(tokens: list[int]) -> bool:
        """Whether text stands behind the suffix's marker."""
        return tokens[tokens.index(SUFFIX) + 1] not in (PREFIX, MIDDLE)

    renderer, source = FillRenderer(load_profile(str(fill_profile)), tokenizer), read_file("jobs/queue.py", PYTHON)
    cursor = PYTHON.index("the queue is full")
    for end, always in ((PYTHON.index('", self.limit)'), True), (PYTHON.index("\n", cursor), False)):
        chance = random.Random(1)
        found = [renderer.example(source, Hole("word", cursor, end), Neighbours(), chance) for _ in range(60)]
        below = [follows(each.tokens) for each in found if each is not None]
        assert below and all(below) is always


def test_text_without_a_grammar_or_with_faults_is_cut_by_lines() -> None:
    for text, path in (("naïve = 1\nüber = 2\n" * 20, "a.py"), ("def broken(:\n    pass\n" * 20, "b.py")):
        holes = many_holes(text, path, 40)
        assert holes and {hole.kind for hole in holes} <= {"line", "statement", "lines"}
        assert all(text[hole.end : hole.end + 1] in ("\n", "") for hole in holes)


def test_an_example_is_the_served_prompt_and_the_middle_begins_with_what_is_healed(
    fill_profile: Path, tokenizer: PromptTokenizer
) -> None:
    profile = load_profile(str(fill_profile))
    source = read_file("jobs/queue.py", PYTHON)
    cursor = PYTHON.index("total += ") + len("total += pri")
    hole = Hole("word", cursor, PYTHON.index("\n", cursor))
    served = prompt_at(PromptBuilder(profile), source, cursor, PYTHON[hole.end :])
    assert served.heal == " pri"
    renderer, chance, found = FillRenderer(profile, tokenizer), random.Random(0), []
    for _ in range(60):
        example = renderer.example(source, hole, Neighbours(), chance)
        assert example is not None and example.tokens[-1] == STOP
        assert tokenizer.decode(example.tokens[example.middle : -1]) == " priority"
        assert example.tokens[example.middle - 1] == MIDDLE or SUFFIX in example.tokens
        found.append(example.tokens[: example.middle])
    assert served.content in found
    orders = {tuple(id for id in each if id in (PREFIX, SUFFIX, MIDDLE)) for each in found}
    assert orders == {(SUFFIX, PREFIX, MIDDLE), (PREFIX, SUFFIX, MIDDLE)}
    assert any(tokenizer.decode(each).endswith("total +=") for each in found)  # nothing below


def test_other_files_of_the_package_stand_in_front_of_some_examples(
    fill_profile: Path, tokenizer: PromptTokenizer
) -> None:
    neighbours = Neighbours()
    neighbours.add(read_file("jobs/queue.py", PYTHON))
    text = "from jobs.queue import Queue\n\nwaiting = Queue(3)\nwaiting.put('one')\n"
    source = read_file("jobs/main.py", text)
    profile = load_profile(str(fill_profile))
    assert profile.prompt is not None
    roomy = replace(profile, prompt=replace(profile.prompt, budget=512))
    prompt = prompt_at(PromptBuilder(roomy), source, text.index("'one'"), "", neighbours)
    assert isinstance(prompt.content, list)
    shown = tokenizer.decode(prompt.content)
    assert "# jobs/queue.py\ndef put(self, job, priority=0):" in shown
    assert shown.index("def put") < shown.index("# jobs/main.py\nfrom")


def test_shards_say_where_the_middles_are_and_a_build_goes_on(
    tmp_path: Path,
    wheels: Path,  # noqa: F811
    fill_profile: Path,
    tokenizer: PromptTokenizer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_wheel(wheels, "alpha", {f"alpha/m{n}.py": PYTHON.replace("Queue", f"Queue{n}") for n in range(8)})
    make_wheel(wheels, "beta", {"beta/other.py": PYTHON.replace("job", "task")})
    listed = 'python = ["alpha"]\n[held_out]\npython = ["beta"]\n'
    assert build(tmp_path, listed)[0] == 0
    command = ["train", "holes", "--list", str(tmp_path / "list.toml"), "--corpus", str(tmp_path / "corpus")]
    command += ["--out", str(tmp_path / "fill"), "--profile", str(fill_profile), "--json"]
    capsys.readouterr()
    assert main([*command, "--minutes", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["packages"] == {"done": 0, "of": 2}
    assert main(command) == 0
    manifest: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert manifest["packages"] == {"done": 2, "of": 2} and manifest["prompt"]["marker_ids"]["middle"] == MIDDLE
    out = tmp_path / "fill"
    tokens, starts = np.load(out / "train-00000.npy"), np.load(out / "train-00000.starts.npy")
    middles = np.load(out / "train-00000.middles.npy")
    assert len(starts) == len(middles) == manifest["totals"]["train"]["python"]["examples"]
    ends = np.append(starts[1:], len(tokens))
    for start, middle, end in zip(starts, middles, ends, strict=True):
        ids = tokens[start:end].tolist()
        assert ids[0] == 0 and (middle == end) == (MIDDLE not in ids and SUFFIX not in ids)
        if middle < end:
            assert ids[-1] == STOP and STOP not in ids[:-1]
            assert re.search("task", tokenizer.decode(ids)) is None  # the held-out package
    made = (out / "kept" / "python" / "alpha.npy").stat().st_mtime_ns
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == manifest
    assert (out / "kept" / "python" / "alpha.npy").stat().st_mtime_ns == made


def test_a_profile_that_shows_no_suffix_and_a_folder_that_is_no_corpus_are_one_line(
    tmp_path: Path, fill_profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["train", "holes", "--corpus", str(tmp_path), "--out", str(tmp_path / "fill")]
    plain = tmp_path / "plain.toml"
    plain.write_text(fill_profile.read_text().replace("suffix-prefix-middle", "plain"))
    assert main([*common, "--profile", str(plain)]) == 1
    assert "shows no text after the cursor" in capsys.readouterr().err
    assert main([*common, "--profile", str(fill_profile)]) == 1
    assert "run `train corpus` first" in capsys.readouterr().err
