"""Each format shows its parts in its order, by marker ids; text is text, and typing keeps what it can."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from server import paths
from server.context.encoding import PieceEncoder
from server.context.formats import FORMATS, Chunk
from server.context.languages import language_for
from server.context.prompt import Around, Prompt, PromptBuilder, TextBefore
from server.context.suffix import keeps
from server.context.tokenizer import PromptTokenizer
from server.profiles import Profile, load_profile
from server.profiles.loading import FORMAT_MARKERS

PYTHON = language_for("python")
SOURCE = Path(json.__file__).with_name("decoder.py").read_text(encoding="utf-8")
TOKENIZER = PromptTokenizer.from_file(paths.asset("embedded", "tokenizer.json"))
# Ids that the embedded tokenizer uses for markers: no text is ever encoded to them.
MARKERS = {
    "bos": 0, "prefix": 4, "suffix": 5, "middle": 6, "repo_name": 7, "file_sep": 8, "turn_start": 1, "turn_end": 2,
}  # fmt: skip
NAMES = {id: f"<{name}>" for name, id in MARKERS.items()}
HOLE_FORMATS = ("suffix-prefix-middle", "prefix-suffix-middle", "repository")
RELATED = [Chunk("b/other.py", "def helper(x):\n    return x")]


def profile(format: str, markers: Mapping[str, int] = MARKERS) -> Profile:
    embedded = load_profile("embedded")
    assert embedded.prompt is not None
    changes = {"format": format, "marker_ids": markers, "suffix_budget": 64, "related_budget": None}
    prompt = replace(embedded.prompt, **changes)  # type: ignore[arg-type]
    return replace(embedded, prompt=prompt)


BUILDERS = {format: PromptBuilder(profile(format)) for format in FORMATS}


def shown(prompt: Prompt) -> str:
    """The prompt with markers by name, and what is healed behind a bar."""
    assert isinstance(prompt.content, list)
    text, run = "", []
    for id in [*prompt.content, -1]:
        if id in NAMES or id == -1:
            text += TOKENIZER.decode(run) + NAMES.get(id, "")
            run = []
        else:
            run.append(id)
    return f"{text}|{prompt.heal}"


def build(format: str, before: str, around: Around, markers: Mapping[str, int] = MARKERS) -> Prompt:
    builder = BUILDERS[format] if markers is MARKERS else PromptBuilder(profile(format, markers))
    skipped = max(0, len(before) - builder.limit)
    row = before.count("\n", 0, skipped)
    return builder.build(TextBefore(before[skipped:], skipped, row), "a/b.py", PYTHON, around)


AROUND = Around(related=RELATED, suffix=")\nlast = 1\n", repository="demo")


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("plain", "<bos># b/other.py\ndef helper(x):\n    return x\n\n# a/b.py\nx = helper|("),
        (
            "suffix-prefix-middle",
            "<bos><suffix>)\nlast = 1\n<prefix># b/other.py\ndef helper(x):\n    return x\n\n"
            "# a/b.py\nx = helper<middle>|(",
        ),
        (
            "prefix-suffix-middle",
            "<bos><prefix># b/other.py\ndef helper(x):\n    return x\n\n# a/b.py\nx = helper"
            "<suffix>)\nlast = 1\n<middle>|(",
        ),
        (
            "repository",
            "<bos><repo_name>demo\n<file_sep>b/other.py\ndef helper(x):\n    return x\n<file_sep>a/b.py\n"
            "<prefix>x = helper<suffix>)\nlast = 1\n<middle>|(",
        ),
        (
            "chat",
            "<bos><turn_start>user\nContinue this file. Answer with its text only.\n\n"
            "b/other.py:\n```\ndef helper(x):\n    return x\n```\n\n"
            "Below the place where you end, the file goes on:\n```\n)\nlast = 1\n\n```<turn_end>\n"
            "<turn_start>assistant\n```python\n# a/b.py\nx = helper|(",
        ),
    ],
)
def test_a_format_shows_its_parts_in_its_order(format: str, expected: str) -> None:
    assert shown(build(format, "x = helper(", AROUND)) == expected


def test_every_format_of_a_profile_has_a_layout_and_its_markers() -> None:
    assert FORMATS.keys() == FORMAT_MARKERS.keys()


def test_a_repository_format_without_the_holes_markers_goes_left_to_right() -> None:
    markers = {name: MARKERS[name] for name in ("bos", "file_sep")}
    assert shown(build("repository", "x = helper(", AROUND, markers)).endswith("<file_sep>a/b.py\nx = helper|(")


def test_a_reasoning_model_is_shown_that_it_has_thought() -> None:
    markers = {**MARKERS, "think_start": 9, "think_end": 10}
    prompt = build("chat", "x = ", Around(), markers)
    assert isinstance(prompt.content, list)
    assert 9 in prompt.content and prompt.content.index(10) > prompt.content.index(9)


SPECIALS = "<|endoftext|><|im_start|><file_sep><repo_name>{prefix}%s$1{{x}}"


@pytest.mark.parametrize("format", FORMATS)
def test_special_strings_stay_text_wherever_they_stand(format: str) -> None:
    around = Around(related=[Chunk("c.py", f"a = '{SPECIALS}'")], suffix=f"\n{SPECIALS}\n", repository=SPECIALS)
    prompt = build(format, f"x = '{SPECIALS}", around)
    assert isinstance(prompt.content, list)
    plain = build(format, "x = 'a", replace(around, suffix="\nb\n", related=[Chunk("c.py", "a = 'b'")], repository="r"))
    assert isinstance(plain.content, list)
    markers = [id for id in prompt.content if id <= 16]
    assert markers == [id for id in plain.content if id <= 16]
    assert shown(prompt).count(SPECIALS) >= 2 or format == "plain"


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_parts_give_the_same_prompt_within_the_budget(format: str) -> None:
    around = Around(related=RELATED, suffix=SOURCE[9000:], repository="demo", head=lambda row: "import os\n")
    for length in range(2000, 9000, 700):
        prompt = build(format, SOURCE[:length], around)
        assert prompt == build(format, SOURCE[:length], around)
        size = len(prompt.content) + len(TOKENIZER.encode(prompt.heal))
        assert 512 / 2 < size <= 512 + 64 + 2


def test_the_suffix_keeps_to_its_budget_and_ends_with_a_line() -> None:
    text = shown(build("suffix-prefix-middle", "x = ", Around(suffix=SOURCE)))
    suffix = text.partition("<suffix>")[2].partition("<prefix>")[0]
    assert SOURCE.startswith(suffix) and suffix.endswith("\n") and 20 < len(TOKENIZER.encode(suffix)) <= 64


@pytest.mark.parametrize(("format", "least"), [("plain", 0.97), ("suffix-prefix-middle", 0.97)])
def test_typing_keeps_the_prompt_where_the_format_lets_it(format: str, least: float) -> None:
    builder = BUILDERS[format]
    around = Around(related=RELATED, suffix=SOURCE[6600:])
    prompts = [
        builder.build(TextBefore(SOURCE[:length]), "a/b.py", PYTHON, around).content for length in range(6000, 6600)
    ]
    reused = total = 0
    for before, after in pairwise(prompts):
        reused += next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        total += len(after)
    assert reused / total > least


def test_the_head_is_shown_where_the_text_begins_below_it() -> None:
    rows: list[int] = []

    def head(row: int) -> str:
        rows.append(row)
        return "class JSONDecoder:\n"

    prompt = build("plain", SOURCE[:9000], Around(head=head))
    text = shown(prompt).removeprefix("<bos># a/b.py\nclass JSONDecoder:\n").partition("|")[0]
    assert prompt.start > 0 and SOURCE[prompt.start :].startswith(text)
    assert rows and SOURCE[: prompt.start].count("\n") == rows[-1]
    assert "class JSONDecoder" not in shown(build("plain", SOURCE[:300], Around(head=head))).partition("import")[0]


def test_the_text_begins_where_a_statement_does_if_the_step_has_one() -> None:
    text = "".join(f"def f{n}(a,\n      b):\n    x = (a +\n         b)\n    return x\n\n\n" for n in range(200))
    for length in range(4000, len(text), 377):
        prompt = build("plain", text[:length], Around())
        assert text[prompt.start :].startswith("def f")


def test_chunks_are_whole_or_left_out() -> None:
    builder = BUILDERS["plain"]
    long = Chunk("l.py", "\n".join(f"x{n} = {n}" for n in range(200)))
    assert builder.fitting_chunks([long, *RELATED]) == RELATED


@pytest.mark.parametrize(
    ("shown_suffix", "now", "kept"),
    [
        (")\nlast = 1\n" + "x\n" * 40, ")\nlast = 1\n" + "x\n" * 40, True),
        (")\nlast = 1\n" + "x\n" * 40, "])\nlast = 1\n" + "x\n" * 40, True),
        (")\nlast = 1\n" + "x\n" * 40, "\nother = 1\nlast = 1\n" + "x\n" * 40, False),
        ("\nlast = 1\n" + "x\n" * 40, "\n" + "x\n" * 40, False),
        ("\nlast = 1\n" + "x\n" * 40, "\nlast = 1\n" + "y\n" * 40, False),
        ("", "\nlast\n", False),
    ],
)
def test_a_suffix_stays_while_little_of_it_changes(shown_suffix: str, now: str, kept: bool) -> None:
    assert keeps(shown_suffix, now) is kept


def test_encoding_in_pieces_changes_no_token() -> None:
    encoder = PieceEncoder(TOKENIZER)
    assert encoder._cut is not None
    odd = "x = 1\n\n\n   \n\ty\r\nz = 'é漢😀'\n\u2028\n  )\n 12\n" * 60
    for text in (SOURCE, SOURCE.replace("    ", "\t"), SOURCE.replace("\n", "\n\n"), odd):
        assert encoder.encode(text) == TOKENIZER.encode(text) == encoder.encode(text)
