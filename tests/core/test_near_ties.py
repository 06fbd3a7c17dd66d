"""Below fp32 kernels differ by width: a token that is not the target's own greedy one may only be a near tie."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from dflash_core import Engine, EngineOptions
from dflash_core.benchmarks.side_by_side import NEAR_TIE, gap_at_first_difference
from server.context.tokenizer import PromptTokenizer
from server.paths import asset
from tests.core import tiny
from tests.core.test_decoding import FAMILIES, generate, load, prompts


def below_the_best(target: Path, prompt: list[int], text: list[int]) -> torch.Tensor:
    """How far each token of a text lies below the best of its place, in logits: by transformers, in bf16, given all
    that stands before it."""
    theirs = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).eval()
    whole = torch.tensor([[*prompt, *text]])
    with torch.inference_mode():
        logits = theirs(whole).logits[0, len(prompt) - 1 : -1].float()
    return logits.max(dim=-1).values - logits.gather(1, whole[0, len(prompt) :, None])[:, 0]


@pytest.mark.parametrize("name", [name for name, options in FAMILIES.items() if "num_experts" not in options])
def test_every_token_in_bf16_is_transformers_own_or_a_near_tie(name: str, tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target", name.split(",")[0], **FAMILIES[name])
    engine = load((target, tiny.write_draft(tmp_path / "draft", mask=True)), dtype="bfloat16")
    for prompt in prompts(3):
        texts = [generate(engine, prompt, draft=draft) for draft in ("on", "off")]
        assert all(below_the_best(target, prompt, text).max() <= NEAR_TIE for text in texts)
        # These models know their mind: a token taken at random would be seen.
        assert below_the_best(target, prompt, [(token + 1) % 90 for token in texts[0]]).median() > 4 * NEAR_TIE


@pytest.mark.parametrize("name", [name for name, options in FAMILIES.items() if "num_experts" in options])
def test_a_mixture_in_bf16_parts_from_its_own_text_at_near_ties_only(name: str, tmp_path: Path) -> None:
    """Held to its own steps of one row: a router has near ties of its own, and other experts are another model."""
    target = tiny.write_target(tmp_path / "target", name.split(",")[0], **FAMILIES[name])
    engine = load((target, tiny.write_draft(tmp_path / "draft", mask=True)), dtype="bfloat16")
    for prompt in prompts(3):
        alone = prompt + generate(engine, prompt, draft="off")
        for block_size in (2, 8):
            found = prompt + generate(engine, prompt, draft="on", block_size=block_size)
            gap = gap_at_first_difference(engine, alone, found)
            assert gap is None or gap <= NEAR_TIE


def test_the_embedded_pair_in_bf16_writes_transformers_own_text_but_for_near_ties(embedded_target: Path) -> None:
    tokenizer = PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))
    options = EngineOptions(device="cpu", dtype="bfloat16", context=128)
    engine = Engine.load(embedded_target, asset("embedded", "draft"), tokenizer.token_bytes, options)
    prompt = [0, *tokenizer.encode(Path(tiny.__file__).read_text(encoding="utf-8"))[:60]]
    for draft, block_size in (("on", 8), ("on", 3), ("off", None)):
        text = generate(engine, prompt, 24, draft=draft, block_size=block_size)
        assert below_the_best(embedded_target, prompt, text).max() <= NEAR_TIE
