"""The draft computes what was published, whichever variant its config names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dflash_core.block_decoder import BlockDecoder
from dflash_core.checkpoints.draft import load_draft, save_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.sessions import Session
from tests.core import reference_draft, tiny

VARIANTS = {
    "full attention, not causal": {},
    "sliding layers are causal": {
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "sliding_window": 9,
    },
    "sliding layers, not causal by is_causal": {
        "layer_types": ["sliding_attention"] * 3,
        "sliding_window": 9,
        "is_causal": False,
    },
    "MiMo: window by use_swa, sinks, value scale, half rotary": {
        "partial_rotary_factor": 0.5,
        "dflash": {
            "use_swa": True,
            "swa_window_size": 10,
            "attention_sink_bias": True,
            "attention_value_scale": 0.612,
        },
    },
    "causal by dflash_config": {"dflash": {"causal": True}},
}


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_target(tmp_path_factory.mktemp("target"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_draft_forward_equals_a_slow_reading_of_the_published_formulas(
    variant: str, target_folder: Path, tmp_path: Path
) -> None:
    config = tiny.draft_config(**VARIANTS[variant])
    target = load_target(target_folder)
    draft = load_draft(tiny.write_draft(tmp_path / "draft", config, mask=True), target)
    decoder, session = BlockDecoder(target, draft), Session(target, draft, 128)
    text = torch.randint(0, 90, (31,), generator=torch.Generator().manual_seed(3)).tolist()
    # Prefilled in two pieces, so that the context is what serving makes of it, not one tidy pass.
    decoder.prefill(session, text[:13])
    decoder.prefill(session, text[13:30])

    positions = session.next_positions(8)
    x = draft.block_input(target.embed(torch.tensor([[text[30]]])))
    ours = draft(x, positions, session.draft_attention(positions))[0]

    hidden = torch.tensor([text[:30]])
    features = _features_by_hooks(target_folder, hidden, config["dflash_config"]["target_layer_ids"])
    theirs = reference_draft.draft_block(config, tiny.draft_tensors(config), features, x[0], start=30)
    assert (ours - theirs).abs().max() <= 1e-4


def _features_by_hooks(folder: Path, tokens: torch.Tensor, layer_ids: list[int]) -> torch.Tensor:
    """Residual stream after each tapped layer, taken from transformers' own model by hooks: [T, K * H]."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    taken: dict[int, torch.Tensor] = {}
    for i in layer_ids:
        model.model.layers[i].register_forward_hook(
            lambda _m, _a, out, i=i: taken.__setitem__(i, out[0] if isinstance(out, tuple) else out)
        )
    with torch.no_grad():
        model(tokens)
    return torch.cat([taken[i].view(tokens.shape[1], -1) for i in layer_ids], dim=-1)


def test_the_mask_is_the_trained_vector_where_one_is_shipped_and_the_table_row_otherwise(
    target_folder: Path, tmp_path: Path
) -> None:
    target = load_target(target_folder)
    plain = load_draft(tiny.write_draft(tmp_path / "plain"), target)
    own = load_draft(tiny.write_draft(tmp_path / "own", mask=True), target)
    assert torch.equal(plain.mask_embedding, target.embed_tokens[95])
    stored = torch.load(tmp_path / "own" / "mask_embedding.pt", weights_only=True)["embedding"]
    assert torch.equal(own.mask_embedding, stored)


def test_a_saved_draft_has_the_published_names_and_loads_to_the_same_weights(
    target_folder: Path, tmp_path: Path
) -> None:
    config = tiny.draft_config(dflash={"attention_sink_bias": True})
    target = load_target(target_folder)
    draft = load_draft(tiny.write_draft(tmp_path / "a", config, mask=True), target)
    save_draft(draft, tmp_path / "b", dtype=torch.float32)
    before, after = load_file(tmp_path / "a/model.safetensors"), load_file(tmp_path / "b/model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert json.loads((tmp_path / "b/config.json").read_text()) == config
    again = load_draft(tmp_path / "b", target)
    assert torch.equal(again.mask_embedding, draft.mask_embedding)
