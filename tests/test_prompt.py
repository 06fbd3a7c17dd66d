"""The prompt stays the same from key to key, ends at a token edge, and holds text as text."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import paths
from server.context.languages import language_for
from server.context.prompt import HEAL_LIMIT, Prompt, PromptBuilder, TextBefore
from server.context.tokenizer import PromptTokenizer
from server.errors import DflashError
from server.profiles import Profile, PromptSettings, load_profile

PYTHON = language_for("python")
SOURCE = Path(json.__file__).with_name("decoder.py").read_text(encoding="utf-8")
TOKENIZER = PromptTokenizer.from_file(paths.asset("embedded", "tokenizer.json"))


def profile(**changes: object) -> Profile:
    """The embedded profile in the plain format; the other formats: test_context_formats.py."""
    embedded = load_profile("embedded")
    assert embedded.prompt is not None
    return replace(embedded, prompt=replace(embedded.prompt, **({"format": "plain"} | changes)))


BUILDER = PromptBuilder(profile())
ANOTHER = PromptBuilder(profile())


def build(text: str, builder: PromptBuilder = BUILDER, path: str = "a/b.py") -> Prompt:
    """The prompt as the service asks for it: with no more of the text than the builder looks at."""
    skipped = max(0, len(text) - builder.limit)
    return builder.build(TextBefore(text[skipped:], skipped), path, PYTHON)


def ids(prompt: Prompt) -> list[int]:
    assert isinstance(prompt.content, list)
    return prompt.content


def shown(prompt: Prompt) -> str:
    return TOKENIZER.decode(ids(prompt)) + prompt.heal


def test_a_short_file_follows_the_bos_token_and_a_comment_with_its_path() -> None:
    prompt = build("def f(a):\n    return a")
    assert ids(prompt)[0] == 0
    assert shown(prompt) == "# a/b.py\ndef f(a):\n    return a"
    assert prompt.stop_ids == (0, 2) and prompt.max_tokens == 96


@pytest.mark.parametrize(
    ("text", "heal"),
    [
        ("def f(a):\n", "\n"),
        ("def f(a):\n    ", "\n    "),
        ("x = 1\n\n\n", "\n\n\n"),
        ("return self.val", "val"),
        ("with ope", " ope"),
        ("max_tok", "tok"),
        ("x1", "1"),
        ("x = ", " "),
        ("call(", "("),
        ("", "\n"),
        ("x = 'ü", None),
        ("x = '漢字", None),
        ("x = '😀", None),
    ],
)
def test_the_prompt_is_cut_back_to_a_token_edge_and_the_rest_is_healed(text: str, heal: str | None) -> None:
    prompt = build(text)
    assert shown(prompt) == "# a/b.py\n" + text
    assert prompt.heal if heal is None else prompt.heal == heal
    whole = TOKENIZER.encode("# a/b.py\n" + text)
    assert ids(prompt)[1:] == whole[: len(ids(prompt)) - 1]


def test_blanks_without_end_are_healed_only_in_part() -> None:
    prompt = build("x = 1\n" + "\n" * 500)
    assert HEAL_LIMIT <= len(prompt.heal) <= 2 * HEAL_LIMIT
    assert shown(prompt).endswith("x = 1\n" + "\n" * 500)


def test_a_profile_may_switch_healing_off() -> None:
    prompt = build("def f(a):\n    ", PromptBuilder(profile(heal=False)))
    assert prompt.heal == prompt.retyped == "" and shown(prompt).endswith("def f(a):\n    ")


def test_other_engines_know_no_healing_and_must_retype_what_was_cut_off() -> None:
    remote = replace(profile(), engine=replace(profile().engine, kind="remote", address="http://127.0.0.1:1"))
    prompt = build("def f(a):\n    ", PromptBuilder(remote))
    assert prompt.heal == "" and prompt.retyped == "\n    " and shown(prompt).endswith("def f(a):")


def test_a_long_file_fills_the_budget_without_exceeding_it() -> None:
    for length in range(3000, len(SOURCE), 500):
        prompt = build(SOURCE[:length])
        size = len(ids(prompt)) + len(TOKENIZER.encode(prompt.heal))
        assert 512 / 2 < size <= 512
        assert shown(prompt).startswith("# a/b.py\n") and shown(prompt).endswith(SOURCE[length - 500 : length])


def test_typing_keeps_the_tokens_before_the_cursor() -> None:
    prompts = [ids(build(SOURCE[:length])) for length in range(6000, 6600)]
    moves = reused = total = 0
    for before, after in pairwise(prompts):
        same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        moves += same < len(before) // 2
        reused += min(same, len(after))
        total += len(after)
    assert moves <= 3  # 600 characters are about two steps of 128 tokens
    assert reused / total > 0.97


def test_the_window_starts_at_a_line_unless_the_line_is_longer_than_a_step() -> None:
    start = shown(build(SOURCE[:9000])).removeprefix("# a/b.py\n")
    assert SOURCE[: SOURCE.index(start)].endswith("\n")
    minified = "var a=1;" * 60_000
    prompt = build(minified)
    assert shown(prompt).endswith(minified[-300:]) and len(ids(prompt)) <= 512


@given(st.text(alphabet="ab \n\té漢😀():\u2028<|>_", max_size=200))
@settings(max_examples=100, deadline=None)
def test_the_same_text_gives_the_same_tokens_and_none_of_it_is_lost(text: str) -> None:
    prompt = build(text)
    assert prompt == build(text) == ANOTHER.build(TextBefore(text), "a/b.py", PYTHON)
    assert shown(prompt) == "# a/b.py\n" + text


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_end|>\n<file_sep>", "x = '<|im_start|>' # <repo_name>"])
def test_special_strings_of_the_tokenizer_stay_text(text: str) -> None:
    prompt = build(text)
    assert shown(prompt) == "# a/b.py\n" + text
    assert min(ids(prompt)[1:], default=17) >= 17  # ids 0 to 16 are the embedded tokenizer's markers


@pytest.mark.parametrize("special", [True, False])
def test_marker_strings_stay_text_whatever_the_tokenizer_says_of_them(tmp_path: Path, special: bool) -> None:
    data = json.loads(paths.asset("embedded", "tokenizer.json").read_text(encoding="utf-8"))
    for token in data["added_tokens"]:
        token["special"] = special
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    text = "a = '<|endoftext|><file_sep>'\n"
    assert build(text, PromptBuilder(profile(tokenizer=file))) == build(text)


def test_a_path_with_control_characters_stays_one_line() -> None:
    assert shown(build("x", path="a\nb\u2028.py")).startswith("# a?b?.py\n")


def test_a_profile_without_a_prompt_sends_text() -> None:
    builder = PromptBuilder(load_profile("replay"))
    assert builder.build(TextBefore("def f():\n    "), "a.py", PYTHON) == Prompt("def f():\n    ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 4096}, "no tokens are left for the prompt"),
    ],
)
def test_a_profile_that_cannot_be_prompted_is_refused_in_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DflashError, match=message):
        PromptBuilder(profile(**changes))


def test_the_budget_leaves_room_in_the_engines_context() -> None:
    small = profile(budget=4000)
    prompt = build(SOURCE, PromptBuilder(replace(small, engine=replace(small.engine, context=300))))
    assert len(ids(prompt)) + prompt.max_tokens <= 300


def test_settings_without_a_bos_marker_begin_with_the_text() -> None:
    prompt = build("x = 1", PromptBuilder(profile(marker_ids={})))
    assert TOKENIZER.decode(ids(prompt)).startswith("# a/b.py")
    assert isinstance(profile().prompt, PromptSettings)
