"""MiMo-V2's targets compute what transformers' `mimo_v2_flash` computes, and the draft hears the right layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_core import Engine, EngineOptions
from dflash_core.checkpoints.target import load_target
from dflash_core.configs import target_spec
from dflash_core.errors import CheckpointError, UnsupportedModelError
from dflash_core.sessions import Session
from dflash_core.target import Target
from tests.core import tiny, tiny_mimo
from tests.core.test_decoding import generate, prompts


def logits_of(target: Target, tokens: list[int], chunks: list[int]) -> torch.Tensor:
    """Logits of every position, read in pieces of these sizes as a prefill and then blocks are: [T, vocab]."""
    session = Session(target, None, 256)
    found, start = [], 0
    with torch.inference_mode():
        for size in chunks:
            positions = session.next_positions(size)
            piece = torch.tensor([tokens[start : start + size]])
            hidden, _ = target(piece, positions, session.target_attention(positions))
            session.commit(piece[0].tolist())
            found.append(target.logits(hidden)[0])
            start += size
    return torch.cat(found)


@pytest.mark.parametrize("seed", range(3))
def test_logits_equal_those_of_transformers_in_prefill_and_block_by_block(seed: int, tmp_path: Path) -> None:
    weights = tiny_mimo.tensors(seed)
    theirs = tiny_mimo.transformers_model(weights)
    ours = load_target(tiny_mimo.write_plain(tmp_path / "target", weights))
    tokens = prompts(1, 64)[0]
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0]
    # Pieces that begin and end on both sides of the window's edges: 10 positions are seen.
    for chunks in ([64], [29, 8, 8, 8, 8, 1, 1, 1], [9, 1, 10, 11, 8, 8, 8, 8, 1]):
        assert (logits_of(ours, tokens, chunks) - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))


def test_the_window_is_crossed_and_the_sinks_are_heard(tmp_path: Path) -> None:
    """What the comparison above would not notice if windows and sinks made no difference."""
    weights = tiny_mimo.tensors()
    tokens = prompts(1, 64)[0]
    exact = logits_of(load_target(tiny_mimo.write_plain(tmp_path / "a", weights)), tokens, [64])
    changes: list[dict[str, Any]] = [
        {"sliding_window_size": tiny_mimo.WINDOW - 1},
        {"swa_rope_theta": 5000000.0},
        {"rope_theta": 10000000.0},
        {"partial_rotary_factor": 0.5},
        {"attention_value_scale": 0.612},
        {"norm_topk_prob": False},
        {"routed_scaling_factor": 2.5},
    ]
    for i, change in enumerate(changes):
        other = load_target(tiny_mimo.write_plain(tmp_path / str(i), weights, **change))
        assert (logits_of(other, tokens, [64]) - exact).abs().max() > 1e-2, change
    for name in ("self_attn.attention_sink_bias", "mlp.gate.e_score_correction_bias"):
        zeroed = {n: torch.zeros_like(t) if n.endswith(name) else t for n, t in weights.items()}
        other = load_target(tiny_mimo.write_plain(tmp_path / name, zeroed))
        assert (logits_of(other, tokens, [64]) - exact).abs().max() > 1e-2, name


def test_greedy_text_with_the_draft_is_transformers_own(tmp_path: Path) -> None:
    weights = tiny_mimo.tensors(1)
    theirs = tiny_mimo.transformers_model(weights)
    target = tiny_mimo.write_plain(tmp_path / "target", weights)
    draft = tiny.write_draft(tmp_path / "draft", tiny_mimo.draft_config(), mask=True)
    options = EngineOptions(device="cpu", dtype="float32", context=256)
    engine = Engine.load(target, draft, tiny.token_bytes(), options)
    for ids in prompts(2, 30):
        prompt = torch.tensor([ids])
        asked = {"max_new_tokens": 32, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        expected = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **asked)[0, len(ids) :].tolist()
        for draft_use in ("on", "off"):
            assert generate(engine, ids, 32, draft=draft_use, session=draft_use) == expected


def test_the_last_layer_is_tapped_before_the_final_norm(tmp_path: Path) -> None:
    weights = tiny_mimo.tensors()
    theirs = tiny_mimo.transformers_model(weights)
    last = tiny_mimo.LAYERS - 1
    taken: list[torch.Tensor] = []
    theirs.model.layers[last].register_forward_hook(
        lambda _m, _a, out: taken.append(out[0] if isinstance(out, tuple) else out)
    )
    tokens = torch.tensor(prompts(1, 20))
    ours = load_target(tiny_mimo.write_plain(tmp_path / "target", weights))
    session = Session(ours, None, 64)
    positions = session.next_positions(tokens.shape[1])
    with torch.inference_mode():
        theirs(tokens)
        _, features = ours(tokens, positions, session.target_attention(positions), (0, last))
    assert features is not None
    assert (features[..., tiny_mimo.HIDDEN :] - taken[0].view_as(features[..., tiny_mimo.HIDDEN :])).abs().max() <= 1e-4


def test_both_spellings_of_a_config_mean_the_same() -> None:
    published = tiny_mimo.config()
    theirs = tiny_mimo.transformers_model(tiny_mimo.tensors()).config.to_dict()
    assert theirs["model_type"] == "mimo_v2_flash" and "hybrid_layer_pattern" not in theirs
    assert target_spec(theirs) == target_spec(published)
    spec = target_spec(published)
    assert [layer.window for layer in spec.layers] == [None, 10, 10, 10, 10, None]
    assert [layer.num_kv_heads for layer in spec.layers] == [2, 4, 4, 4, 4, 2]
    assert [layer.sinks for layer in spec.layers] == [False, True, True, True, True, False]
    assert [layer.mixture is None for layer in spec.layers] == [True] + [False] * 5


def test_the_window_layers_have_the_heads_that_the_config_gives_them() -> None:
    own = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "v_head_dim": 8}
    spec = target_spec(tiny_mimo.config(**{f"swa_{key}": value for key, value in own.items()}))
    sizes = [(each.num_heads, each.num_kv_heads, each.head_dim, each.value_dim) for each in spec.layers]
    assert sizes == [(8, 2, 24, 16), *[(4, 2, 32, 8)] * 4, (8, 2, 24, 16)]


def test_the_window_layers_keep_their_own_rotary_base_where_the_config_is_flat() -> None:
    spec = target_spec(tiny_mimo.config(**tiny_mimo.V2_5))
    assert spec.rotary.base == 1e7 and spec.window_rotary is not None and spec.window_rotary.base == 1e4
    assert spec.rotary.dim == spec.window_rotary.dim == 8


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"hybrid_layer_pattern": [0, 1]}, CheckpointError),
        ({"hybrid_layer_pattern": [0, 1, 2, 1, 1, 0]}, CheckpointError),
        ({"moe_layer_freq": 3}, CheckpointError),
        ({"num_experts_per_tok": 9}, CheckpointError),
        ({"n_routed_experts": None}, CheckpointError),
        ({"sliding_window_size": -1}, CheckpointError),
        ({"attention_value_scale": "x"}, CheckpointError),
        ({"partial_rotary_factor": 3}, CheckpointError),
        ({"n_group": 4}, UnsupportedModelError),
        ({"scoring_func": "softmax"}, UnsupportedModelError),
        ({"topk_method": "greedy"}, UnsupportedModelError),
        ({"n_shared_experts": 1}, UnsupportedModelError),
        ({"attention_bias": True}, UnsupportedModelError),
    ],
    ids=str,
)
def test_a_config_that_is_not_computed_is_refused_by_name(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(change))) as caught:
        target_spec(tiny_mimo.config(**change))
    assert "\n" not in str(caught.value)
