"""A target that only transformers can compute: same text, same drafts, same sessions, by the slower path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from dflash_core import Engine, EngineOptions, GenerationRequest
from dflash_core.checkpoints.target import load_target
from dflash_core.errors import CheckpointError
from dflash_core.generic_target import GenericTarget
from dflash_core.sessions import Session
from tests.core import tiny
from tests.core.test_decoding import drafted_by, generate, prompts, run

FAMILIES: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window": 16, "query_pre_attn_scalar": 8, "final_logit_softcapping": 5.0},
    "gemma3_text": {"sliding_window": 16, "query_pre_attn_scalar": 8},
    "mistral": {"sliding_window": 16},
    "gpt_neox": {},
    "gpt2": {},
    "phi": {},
    "starcoder2": {},
    "cohere": {"logit_scale": 0.25},
}


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # the families' own are beyond the vocabulary
    target = tiny.write_target(folder / "target", request.param, **special, **FAMILIES[request.param])
    return target, tiny.write_draft(folder / "draft")


def load(pair: tuple[Path, Path]) -> Engine:
    options = EngineOptions(device="cpu", dtype="float32", context=256)
    return Engine.load(pair[0], pair[1], tiny.token_bytes(), options)


def test_greedy_text_equals_that_of_transformers_with_and_without_the_draft(pair: tuple[Path, Path]) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(pair[0], dtype=torch.float32).eval()
    engine = load(pair)
    assert isinstance(engine.decoder.target, GenericTarget)
    assert "slower path" in engine.describe()["target"]
    for ids in prompts(2, 50):
        prompt = torch.tensor([ids])
        options = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None}
        expected = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, len(ids) :].tolist()
        for draft in ("on", "off", "auto"):
            assert generate(engine, ids, 40, draft=draft, session=draft) == expected


def test_reused_prefixes_change_neither_text_nor_drafts(pair: tuple[Path, Path]) -> None:
    warm = load(pair)
    prompt = prompts(1, 60)[0]
    fresh = load(pair)
    cold_blocks, warm_blocks = drafted_by(fresh), drafted_by(warm)
    expected = generate(fresh, prompt, 40, draft="on")
    generate(warm, [*prompt[:40], 3, 1, 4], session="a", draft="on")
    for session, reused in (("a", 40), ("b", len(prompt) - 1)):  # an edit, and another document's prefix taken over
        warm_blocks.clear()
        generation = warm.submit(GenerationRequest(prompt=prompt, max_tokens=40, draft="on", session=session))
        assert run(warm, generation) == expected
        assert generation.stats.reused_tokens == reused
        assert warm_blocks == cold_blocks


def test_features_are_the_residual_stream_before_the_final_norm_also_after_the_last_layer(
    pair: tuple[Path, Path],
) -> None:
    target = load_target(pair[0])
    ids = torch.tensor(prompts(1, 30))
    session = Session(target, None, 64)
    positions = session.next_positions(30)
    last = tiny.LAYERS - 1
    with torch.inference_mode():
        hidden, features = target(ids, positions, session.target_attention(positions), (0, last))
        assert features is not None and features.shape == (1, 30, 2 * tiny.HIDDEN)
        theirs = AutoModelForCausalLM.from_pretrained(pair[0], dtype=torch.float32).eval()
        states = theirs(ids, output_hidden_states=True).hidden_states
        assert (features[..., : tiny.HIDDEN] - states[1]).abs().max() <= 1e-4
        norm = next(module for name, module in theirs.base_model.named_children() if "norm" in name or name == "ln_f")
        after = features[..., tiny.HIDDEN :]
        assert (norm(after) - hidden).abs().max() <= 1e-4 < (after - hidden).abs().max()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("model.layers.2.mlp.up_proj.weight"), "layers.2.mlp.up_proj.weight is missing"),
        (lambda t: t.update({"model.layers.2.extra": torch.ones(2)}), "layers.2.extra is not part of this model"),
        (lambda t: t["model.norm.weight"].fill_(torch.nan), "model.norm.weight holds values that are not finite"),
        (lambda t: t.update({"model.norm.weight": torch.ones(3)}), "cannot be loaded by transformers"),
    ],
)
def test_a_wrong_tensor_is_named(change: Callable[[dict[str, torch.Tensor]], Any], words: str, tmp_path: Path) -> None:
    folder = tiny.write_target(tmp_path / "target", "mistral")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        load_target(folder)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_model_whose_state_cannot_be_rolled_back_and_one_with_code_of_its_own_are_refused(tmp_path: Path) -> None:
    AutoConfig.for_model("mamba", vocab_size=96, hidden_size=32, num_hidden_layers=2).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="'mamba' is not supported"):
        load_target(tmp_path)
    (tmp_path / "attack.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    own = {"model_type": "attack", "auto_map": {"AutoConfig": "attack.A", "AutoModelForCausalLM": "attack.M"}}
    (tmp_path / "config.json").write_text(json.dumps(own))
    with pytest.raises(CheckpointError, match="'attack' is not supported"):
        load_target(tmp_path)
    assert not (tmp_path / "ran").exists()
