"""Whether a draft fits a target is said in plain words, before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_core.compatibility import PairReport, compare_pair, revision_of, rotary_bases
from dflash_core.published import DRAFT_V2_5, DRAFT_V2_5_PRO, DRAFT_V2_6, PUBLISHED

V2_5 = PUBLISHED["mimo-v2.5"].target


def folders(tmp_path: Path, target: dict[str, Any], draft: dict[str, Any], mask: bool = True) -> tuple[Path, Path]:
    """A draft in its target's folder, as Xiaomi publishes them; no weights."""
    inside = tmp_path / "target" / "dflash"
    inside.mkdir(parents=True)
    (tmp_path / "target" / "config.json").write_text(json.dumps(target))
    (inside / "config.json").write_text(json.dumps(draft))
    if mask:
        (inside / "mask_embedding.pt").write_bytes(b"looked at when it is loaded")
    return tmp_path / "target", inside


def tokenizer(path: Path, **changed: int) -> None:
    vocab = {f"t{i}": i for i in range(300)} | changed
    path.write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": [{"id": 400, "content": "<|end|>"}]}))


@pytest.mark.parametrize("name", ["mimo-v2.5", "mimo-v2.6-flash", "mimo-v2.5-pro"])
def test_the_published_pairs_fit(name: str, tmp_path: Path) -> None:
    published = PUBLISHED[name]
    assert published.draft is not None
    report = compare_pair(*folders(tmp_path, published.target, published.draft))
    assert report.refusals == () and report.warnings == ()
    sizes = {
        "mimo-v2.5-pro": "hidden 6144, vocabulary 152064, tapped layers 0, 15, 31, 47, 69",
    }.get(name, "hidden 4096, vocabulary 152576, tapped layers 0, 11, 23, 35, 47")
    assert sizes in report.facts[0]


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ({"hidden_size": 2048}, "hidden size 2048, target has 4096"),
        ({"vocab_size": 151936}, "vocabulary of 151936, target has 152576"),
        ({"num_target_layers": 36}, "made for 36 layers, target has 48"),
        ({"dflash_config": {"target_layer_ids": [0, 48], "mask_token_id": 151675}}, "target_layer_ids [48]"),
        ({"dflash_config": {"target_layer_ids": [0, 47], "mask_token_id": 152576}}, "mask_token_id 152576 is outside"),
        ({"conv_kernel_size": 2}, "DFlash 2's convolutions"),
        ({"dflash_config": {"target_layer_ids": [0], "mask_token_id": 1, "projector_type": "domino"}}, "Domino"),
        (DRAFT_V2_5_PRO, "hidden size 6144, target has 4096"),
        ({"num_hidden_layers": "five"}, "num_hidden_layers"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(draft: dict[str, Any], words: str, tmp_path: Path) -> None:
    report = compare_pair(*folders(tmp_path, V2_5, DRAFT_V2_5 | draft))
    assert any(words in line for line in report.refusals)


def test_a_mask_that_was_never_trained_is_warned_of(tmp_path: Path) -> None:
    report = compare_pair(*folders(tmp_path, V2_5, DRAFT_V2_5, mask=False))
    assert report.refusals == () and "row 151675 of a MiMo's table is untrained" in report.warnings[0]
    first_release = DRAFT_V2_5 | {"dflash_config": DRAFT_V2_5["dflash_config"] | {"mask_token_id": 151669}}
    report = compare_pair(*folders(tmp_path / "pro", V2_5, first_release))
    assert "MiMo's is 151675" in report.warnings[0]


def test_tokenizers_must_say_the_same_of_every_id(tmp_path: Path) -> None:
    target, draft = folders(tmp_path, V2_5, DRAFT_V2_5)
    tokenizer(target / "tokenizer.json")
    tokenizer(tmp_path / "same.json")
    tokenizer(tmp_path / "other.json", t7=8, t8=7)
    tokenizer(tmp_path / "larger.json", far=200000)
    assert any(
        "tokenizers agree" in fact for fact in compare_pair(target, draft, tokenizer=tmp_path / "same.json").facts
    )
    other = compare_pair(target, draft, tokenizer=tmp_path / "other.json").refusals
    assert len(other) == 1 and "tokenizers differ at id" in other[0] and "prompts are made with" in other[0]
    assert "id 200000" in compare_pair(target, draft, tokenizer=tmp_path / "larger.json").refusals[0]


def test_a_draft_away_from_its_target_and_another_revision_are_warned_of(tmp_path: Path) -> None:
    target, draft = folders(tmp_path, V2_5, DRAFT_V2_5)
    elsewhere = tmp_path / "draft"
    draft.rename(elsewhere)
    assert "published with it" in compare_pair(target, elsewhere).warnings[0]
    noted = target / ".cache/huggingface/download"
    noted.mkdir(parents=True)
    (noted / "config.json.metadata").write_text("a" * 40 + "\netag\n0\n")
    assert revision_of(target) == "a" * 40
    assert revision_of(tmp_path / "snapshots" / ("b" * 40)) == "b" * 40
    words = compare_pair(target, elsewhere, revisions=("bbbb", None)).warnings
    assert "is revision aaaaaaaaaaaa, the profile wants bbbb" in words[0]
    assert not any("revision a" in w for w in compare_pair(target, elsewhere, revisions=("aaaa", None)).warnings)


def test_a_config_with_a_comma_too_many_says_what_to_do(tmp_path: Path) -> None:
    target, draft = folders(tmp_path, V2_5, DRAFT_V2_6)
    (draft / "config.json").write_text('{"hidden_size": 4096,}')
    report: PairReport = compare_pair(target, draft)
    assert "a later revision of it may be right" in report.refusals[0] and "\n" not in report.refusals[0]


def test_the_contested_rotary_bases_are_both_seen() -> None:
    assert rotary_bases(DRAFT_V2_5) == [10000.0, 5000000.0]
    assert rotary_bases(DRAFT_V2_6) == [10000.0]


def test_the_report_needs_no_torch() -> None:
    code = "import sys, dflash_core.compatibility, dflash_core.published; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
