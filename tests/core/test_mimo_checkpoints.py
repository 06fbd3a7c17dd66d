"""MiMo checkpoints in their published layouts give the logits of the plain model, and every documented trap is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_core.checkpoints.reading import TensorFolder
from dflash_core.checkpoints.target import TargetLoading, load_target
from dflash_core.errors import CheckpointError
from dflash_core.layers.moe import Mixture
from dflash_core.layers.stored_weights import Fp8Experts, Fp8Linear, Mxfp4Experts
from tests.core import tiny_mimo
from tests.core.test_decoding import prompts
from tests.core.test_mimo_target import logits_of
from tests.core.tiny_mimo import Tensors

TOKENS = prompts(1, 40)[0]
WEIGHTS = tiny_mimo.tensors(2)

LAYOUTS: dict[str, dict[str, Any]] = {
    "V2-Flash: FP8, q, k and v apart": {"made": {"fused": False}, "changes": {}},
    "V2.5: FP8, fused qkv in shards": {"made": {"fused": True}, "changes": tiny_mimo.V2_5},
    "V2.6: MXFP4 experts": {"made": {"fused": True, "experts": "mxfp4"}, "changes": tiny_mimo.V2_5},
}


def plain_logits(folder: Path, weights: Tensors, changes: dict[str, Any]) -> torch.Tensor:
    return logits_of(load_target(tiny_mimo.write_plain(folder, weights, **changes)), TOKENS, [40])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_gives_the_logits_of_the_plain_model(layout: str, tmp_path: Path) -> None:
    made, changes = LAYOUTS[layout]["made"], LAYOUTS[layout]["changes"]
    stored, values = tiny_mimo.published(WEIGHTS, **made)
    target = load_target(tiny_mimo.write_published(tmp_path / "published", stored, **changes))
    found = logits_of(target, TOKENS, [40])
    # Exactly that of the values which the stored bytes stand for.
    exact = plain_logits(tmp_path / "values", values, changes)
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


def test_blocks_of_scales_may_end_within_a_projection(tmp_path: Path) -> None:
    rows = 20  # of a block: queries, keys and values have 192, 48 or 96, and 32 or 64
    stored, values = tiny_mimo.published(WEIGHTS, fused=False)
    for name in [name for name in stored if f"{name}_scale_inv" in stored]:
        stored[name], grid = tiny_mimo.fp8_blocks(WEIGHTS[name], rows)
        stored[f"{name}_scale_inv"] = grid
        spread = grid.repeat_interleave(rows, 0).repeat_interleave(tiny_mimo.BLOCK, 1)
        out, columns = stored[name].shape
        values[name] = stored[name].float() * spread[:out, :columns]
    folder = tiny_mimo.write_published(tmp_path / "published", stored)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = [rows, tiny_mimo.BLOCK]
    (folder / "config.json").write_text(json.dumps(config))
    found, exact = logits_of(load_target(folder), TOKENS, [40]), plain_logits(tmp_path / "values", values, {})
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_is_as_near_to_the_bf16_model_as_its_format_allows(layout: str, tmp_path: Path) -> None:
    made, changes = LAYOUTS[layout]["made"], LAYOUTS[layout]["changes"]
    # Calm weights: a random model of large ones sends a row to other experts for the smallest difference.
    calm = {name: tensor / 4 if "_proj." in name else tensor for name, tensor in WEIGHTS.items()}
    stored, _ = tiny_mimo.published(calm, **made)
    found = logits_of(load_target(tiny_mimo.write_published(tmp_path / "a", stored, **changes)), TOKENS, [40])
    whole = plain_logits(tmp_path / "whole", calm, changes)
    shares = (found - whole).norm(dim=-1) / whole.norm(dim=-1)
    # Significands of 4 and of 2 bits; what is taken apart wrongly is off by more than a whole.
    assert 1e-4 < float(shares.median()) < (0.12 if made.get("experts") == "mxfp4" else 0.05)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_stay_as_small_as_they_are_stored(layout: str, tmp_path: Path) -> None:
    made, changes = LAYOUTS[layout]["made"], LAYOUTS[layout]["changes"]
    stored, _ = tiny_mimo.published(WEIGHTS, **made)
    target = load_target(tiny_mimo.write_published(tmp_path / "published", stored, **changes), dtype=torch.bfloat16)
    layer = target.layers[1]
    assert isinstance(layer.mlp, Mixture)
    assert isinstance(layer.self_attn.qkv_proj, Fp8Linear) and isinstance(target.layers[0].mlp.down_proj, Fp8Linear)
    assert isinstance(layer.mlp.experts, Mxfp4Experts if made.get("experts") else Fp8Experts)
    assert layer.self_attn.o_proj.weight.dtype == torch.bfloat16  # never quantized as published
    # The choice of experts hangs on small differences: router and its bias stay as wide as they came.
    assert layer.mlp.gate.weight.dtype == torch.float32
    assert layer.mlp.choice_bias is not None and layer.mlp.choice_bias.dtype == torch.float32
    assert torch.equal(layer.mlp.gate.weight, WEIGHTS["model.layers.1.mlp.gate.weight"])
    on_disk = sum(t.nbytes for t in stored.values())
    # Scales are kept for smaller blocks where a block straddles two parts.
    assert sum(p.nbytes for p in target.parameters()) <= 1.1 * on_disk


def test_the_index_says_for_how_many_shards_a_fused_tensor_was_cut(tmp_path: Path) -> None:
    stored, values = tiny_mimo.published(WEIGHTS, fused=True, shards=1)
    folder = tiny_mimo.write_published(tmp_path / "one", stored, tp_size=1, **tiny_mimo.V2_5)
    exact = plain_logits(tmp_path / "values", values, tiny_mimo.V2_5)
    assert (logits_of(load_target(folder), TOKENS, [40]) - exact).abs().max() <= 1e-5 * exact.abs().max()
    for wrong in (3, 0, "4", 2.0):
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        index["metadata"]["tp_size"] = wrong
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(CheckpointError, match=r"qkv_proj|tp_size"):
            load_target(folder)


def test_a_bf16_model_with_fused_projections_is_taken_apart_by_shards_too(tmp_path: Path) -> None:
    weights = {n: t for n, t in WEIGHTS.items() if n.split(".")[-2] not in ("q_proj", "k_proj", "v_proj")}
    for i in range(tiny_mimo.LAYERS):
        stem = f"model.layers.{i}.self_attn."
        parts = [WEIGHTS[f"{stem}{p}_proj.weight"].chunk(2) for p in "qkv"]
        weights[f"{stem}qkv_proj.weight"] = torch.cat([part for shard in zip(*parts, strict=True) for part in shard])
    found = plain_logits(tmp_path / "fused", weights, tiny_mimo.V2_5)
    assert (found - plain_logits(tmp_path / "plain", WEIGHTS, tiny_mimo.V2_5)).abs().max() <= 1e-4


Change = Callable[[Tensors], Any]
QKV = "model.layers.2.self_attn.qkv_proj.weight"
EXPERT = "model.layers.3.mlp.experts.5.up_proj.weight"
DAMAGES: dict[str, tuple[Change, str]] = {
    "a grid of scales over the whole tensor": (
        lambda t: t.update({QKV + "_scale_inv": t[QKV + "_scale_inv"][:-1]}),
        "layers.2.self_attn.qkv_proj.weight_scale_inv has shape",
    ),
    "no scales": (lambda t: t.pop(QKV + "_scale_inv"), "layers.2.self_attn.qkv_proj.weight_scale_inv is missing"),
    "an expert's scales are missing": (
        lambda t: t.pop(EXPERT + "_scale"),
        "layers.3.mlp.experts.5.up_proj.weight_scale is missing",
    ),
    "an expert in another form": (
        lambda t: t.update({EXPERT: t[EXPERT].to(torch.float32)}),
        "layers.3.mlp.experts.0.gate_proj.weight has type uint8",
    ),
    "an expert of another size": (
        lambda t: t.update({EXPERT: t[EXPERT][:, :-1].contiguous()}),
        "layers.3.mlp.experts.5.up_proj.weight has shape [32, 31]",
    ),
    "no bias for the choice of experts": (
        lambda t: t.pop("model.layers.4.mlp.gate.e_score_correction_bias"),
        "layers.4.mlp.gate.e_score_correction_bias is missing",
    ),
    "no sinks": (
        lambda t: t.pop("model.layers.1.self_attn.attention_sink_bias"),
        "layers.1.self_attn.attention_sink_bias is missing",
    ),
    "sinks where the config has none": (
        lambda t: t.update({"model.layers.0.self_attn.attention_sink_bias": torch.ones(8)}),
        "layers.0.self_attn.attention_sink_bias is not part",
    ),
    "a value that is no number": (
        lambda t: t[QKV].view(torch.uint8).__setitem__((5, 5), 0x7F),
        "layers.2.self_attn.qkv_proj.weight holds values that are not finite",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_is_named_by_its_tensor(damage: str, tmp_path: Path) -> None:
    change, words = DAMAGES[damage]
    stored, _ = tiny_mimo.published(WEIGHTS, fused=True, experts="mxfp4")
    change(stored)
    with pytest.raises(CheckpointError) as caught:
        load_target(tiny_mimo.write_published(tmp_path / "t", stored, **tiny_mimo.V2_5))
    assert words in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_only_what_the_text_model_needs_is_wanted(tmp_path: Path) -> None:
    stored, _ = tiny_mimo.published(WEIGHTS, fused=True)
    folder = tiny_mimo.write_published(tmp_path / "t", stored, **tiny_mimo.V2_5)
    before = logits_of(load_target(folder), TOKENS, [40])
    (folder / "model_mtp.safetensors").unlink()  # multi-token prediction, eyes and ears: nobody asks for them
    assert torch.equal(logits_of(load_target(folder), TOKENS, [40]), before)
    (folder / "model_pp0_ep1_shard0.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"file model_pp0_ep1_shard0.safetensors is missing; it holds tensor"):
        load_target(folder)


def test_a_load_that_stopped_at_a_tensor_goes_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, _ = tiny_mimo.published(WEIGHTS, fused=True)
    folder = tiny_mimo.write_published(tmp_path / "t", stored, **tiny_mimo.V2_5)
    right = logits_of(load_target(folder), TOKENS, [40])
    broken = dict(stored)
    broken[QKV] = stored[QKV].clone()
    broken[QKV].view(torch.uint8)[0, 0] = 0x7F
    tiny_mimo.write_published(folder, broken, **tiny_mimo.V2_5)
    loading = TargetLoading(folder, device=torch.device("cpu"), dtype=torch.float32)
    seen: list[float] = []
    with pytest.raises(CheckpointError, match=r"layers.2.self_attn.qkv_proj.weight holds"):
        loading.run(seen.append)
    assert seen == sorted(seen) and 0 < seen[-1] < 1
    tiny_mimo.write_published(folder, stored, **tiny_mimo.V2_5)
    read: list[str] = []
    whole = TensorFolder.read

    def noted(self: TensorFolder, name: str, rows: Any = None) -> torch.Tensor:
        read.append(name)
        return whole(self, name, rows)

    monkeypatch.setattr(TensorFolder, "read", noted)
    target = loading.run()
    assert read[0] == "layers.2.self_attn.qkv_proj.weight"  # what lies before is not read again
    assert torch.equal(logits_of(target, TOKENS, [40]), right)


def test_mimo_7b_is_a_qwen2_whose_further_layers_are_left_unread(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from tests.core import tiny

    folder = tiny.write_target(tmp_path / "qwen2", "qwen2")
    config = json.loads((folder / "config.json").read_text())
    expected = logits_of(load_target(folder), TOKENS, [40])
    more = {
        "model.mtp_layers.0.input_proj.weight": torch.ones(48, 96),
        "model.mtp_layers.0.self_attn.q_proj.weight": torch.ones(48, 48),
    }
    save_file(load_file(folder / "model.safetensors") | more, folder / "model.safetensors", metadata={"format": "pt"})
    own = {"model_type": "mimo", "num_nextn_predict_layers": 1, "attention_bias": True}
    (folder / "config.json").write_text(json.dumps(config | own))
    assert torch.equal(logits_of(load_target(folder), TOKENS, [40]), expected)


def test_a_scale_beyond_what_kernels_multiply_with_is_one_clear_line(tmp_path: Path) -> None:
    stored, changes = tiny_mimo.few_layers("MXFP4 experts")
    name = next(name for name in stored if name.endswith("down_proj.weight_scale"))
    stored[name][0, 0] = 129
    target = load_target(tiny_mimo.write_published(tmp_path / "target", stored, **tiny_mimo.V2_5, **changes))
    with pytest.raises(CheckpointError, match=r"^an MXFP4 scale is larger than 2"):
        for experts in (module for module in target.modules() if isinstance(module, Mxfp4Experts)):
            experts.fold()
