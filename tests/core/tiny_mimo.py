"""Small random MiMo-V2 models, written in the layouts that the published ones come in.

The plain layout (V2-Flash's names, one type) is what transformers reads; the others are made from the same tensors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]

VOCAB, HIDDEN, LAYERS, EXPERTS = 96, 64, 6, 8
HEADS, KV_HEADS, HEAD_DIM, VALUE_DIM = 8, 2, 24, 16
WINDOW = 9
"""Positions BEFORE a query, as `sliding_window_size` counts them."""


def config(**changes: Any) -> dict[str, Any]:
    """V2-Flash's config.json in its published spelling, small. Layers 0 and 5 are global, all but 0 are mixtures."""
    return {
        "model_type": "mimo_v2_flash",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "v_head_dim": VALUE_DIM,
        "swa_num_attention_heads": HEADS,
        "swa_num_key_value_heads": 2 * KV_HEADS,
        "swa_head_dim": HEAD_DIM,
        "swa_v_head_dim": VALUE_DIM,
        "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0],
        "moe_layer_freq": [0, 1, 1, 1, 1, 1],
        "sliding_window": WINDOW,
        "sliding_window_size": WINDOW,
        "rope_theta": 5000000.0,
        "swa_rope_theta": 10000.0,
        "partial_rotary_factor": 0.334,
        "attention_value_scale": 0.707,
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "n_routed_experts": EXPERTS,
        "num_experts_per_tok": 3,
        "n_shared_experts": None,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": None,
        "layernorm_epsilon": 1e-5,
        "max_position_embeddings": 512,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "eos_token_id": None,
    } | changes


V2_5: dict[str, Any] = {
    "model_type": "mimo_v2",
    "rope_theta": 10000000.0,
    # As published: flat, and of the global layers alone.
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.334},
    "attention_projection_layout": "fused_qkv",
}
"""What V2.5 and V2.6 say differently."""


def tensors(seed: int = 0) -> Tensors:
    """Random weights under V2-Flash's names, fp32, every one a bf16 number; large enough that text varies."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int, scale: float = 0.25) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * scale).bfloat16().float()

    def norm() -> torch.Tensor:
        return (1 + 0.1 * torch.randn(HIDDEN, generator=generator)).bfloat16().float()

    found: Tensors = {
        "model.embed_tokens.weight": random(VOCAB, HIDDEN),
        "model.norm.weight": norm(),
        "lm_head.weight": random(VOCAB, HIDDEN),
    }
    for i in range(LAYERS):
        full = i in (0, 5)
        kv = KV_HEADS if full else 2 * KV_HEADS
        layer: Tensors = {
            "input_layernorm.weight": norm(),
            "post_attention_layernorm.weight": norm(),
            "self_attn.q_proj.weight": random(HEADS * HEAD_DIM, HIDDEN),
            "self_attn.k_proj.weight": random(kv * HEAD_DIM, HIDDEN),
            "self_attn.v_proj.weight": random(kv * VALUE_DIM, HIDDEN),
            "self_attn.o_proj.weight": random(HIDDEN, HEADS * VALUE_DIM),
        }
        if not full:
            layer["self_attn.attention_sink_bias"] = random(HEADS, scale=2.0)
        if i == 0:
            layer |= _mlp("mlp", 96, random)
        else:
            layer["mlp.gate.weight"] = random(EXPERTS, HIDDEN)
            layer["mlp.gate.e_score_correction_bias"] = random(EXPERTS, scale=0.3)
            for e in range(EXPERTS):
                layer |= _mlp(f"mlp.experts.{e}", 32, random)
        found |= {f"model.layers.{i}.{name}": tensor for name, tensor in layer.items()}
    return found


def _mlp(stem: str, ffn: int, random: Any) -> Tensors:
    return {
        f"{stem}.gate_proj.weight": random(ffn, HIDDEN),
        f"{stem}.up_proj.weight": random(ffn, HIDDEN),
        f"{stem}.down_proj.weight": random(HIDDEN, ffn),
    }


def write_plain(folder: Path, weights: Tensors, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """One file in V2-Flash's layout, without quantization."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.to(dtype) for name, tensor in weights.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(**changes)))
    return folder


def transformers_model(weights: Tensors, base: float = 5e6) -> Any:
    """transformers' own model of these weights, fp32."""
    from transformers import MiMoV2FlashConfig, MiMoV2FlashForCausalLM

    theirs = MiMoV2FlashConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=96, moe_intermediate_size=32,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        v_head_dim=VALUE_DIM, sliding_window=WINDOW + 1, n_routed_experts=EXPERTS, num_experts_per_tok=3,
        max_position_embeddings=512, attention_value_scale=0.707,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.334}
            for kind, theta in (("full_attention", base), ("sliding_attention", 1e4))
        },
    )  # fmt: skip
    model = MiMoV2FlashForCausalLM(theirs).float().eval()
    state: Tensors = {}
    for name, tensor in weights.items():
        if ".experts." not in name:
            state[name.replace("attention_sink_bias", "sinks")] = tensor
    for i in range(1, LAYERS):
        stem = f"model.layers.{i}.mlp.experts"

        def of(part: str, stem: str = stem) -> torch.Tensor:
            return torch.stack([weights[f"{stem}.{e}.{part}.weight"] for e in range(EXPERTS)])

        state[f"{stem}.gate_up_proj"] = torch.cat([of("gate_proj"), of("up_proj")], dim=1)
        state[f"{stem}.down_proj"] = of("down_proj")
    model.load_state_dict(state)
    return model


def draft_config(**changes: Any) -> dict[str, Any]:
    """A MiMo-V2.5 draft's config for these targets: taps global layers, the last one among them."""
    nested = {
        "target_layer_ids": [0, LAYERS - 1], "mask_token_id": VOCAB - 1, "block_size": 8, "use_swa": True,
        "swa_window_size": 20, "attention_sink_bias": True, "attention_value_scale": 0.612,
        "backbone_rotary_base": 5000000,
    }  # fmt: skip
    return {
        "model_type": "qwen3", "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 80,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
        "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-6, "rope_theta": 10000, "max_position_embeddings": 512,
        "num_target_layers": LAYERS, "block_size": 8, "tie_word_embeddings": False,
        "dflash_config": nested | changes.pop("dflash", {}),
    } | changes  # fmt: skip


# -- published layouts -------------------------------------------------------------------------------------------------

BLOCK = 16
"""Rows and columns of an FP8 block, 128 as published: heads of 24 rows straddle blocks of 16 as those of 192 do 128."""


def fp8_blocks(weight: torch.Tensor, rows: int = BLOCK) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix as e4m3 with an fp32 scale for every block of rows x BLOCK, partial blocks at its ends."""
    out, columns = weight.shape
    grid = torch.zeros(-(-out // rows), -(-columns // BLOCK))
    stored = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    for r in range(grid.shape[0]):
        for c in range(grid.shape[1]):
            place = (slice(r * rows, (r + 1) * rows), slice(c * BLOCK, (c + 1) * BLOCK))
            grid[r, c] = weight[place].abs().max().clamp(min=1e-6) / 448
            stored[place] = (weight[place] / grid[r, c]).to(torch.float8_e4m3fn)
    return stored, grid


def fp8_values(stored: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """What an FP8 matrix stands for, block by block."""
    found = stored.float()
    for r in range(grid.shape[0]):
        for c in range(grid.shape[1]):
            found[r * BLOCK : (r + 1) * BLOCK, c * BLOCK : (c + 1) * BLOCK] *= grid[r, c]
    return found


_VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def mxfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix as MXFP4: bytes of two values, the first in the low half, and a power of two for every 32."""
    groups = weight.unflatten(-1, (-1, 32))
    exponents = (groups.abs().amax(-1).clamp(min=1e-6) / 6).log2().ceil().clamp(-100, 100)
    scaled = groups / exponents.exp2()[..., None]
    codes = (scaled[..., None] - torch.tensor(_VALUES)).abs().argmin(-1).flatten(-2).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8)


def mxfp4_values(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    found = torch.zeros(packed.shape[0], packed.shape[1] * 2)
    for row in range(packed.shape[0]):
        for i in range(packed.shape[1]):
            for half, code in enumerate((int(packed[row, i]) & 15, int(packed[row, i]) >> 4)):
                found[row, 2 * i + half] = _VALUES[code] * 2.0 ** (int(scales[row, (2 * i + half) // 32]) - 127)
    return found


def published(
    weights: Tensors, *, fused: bool, experts: str = "fp8", shards: int = KV_HEADS
) -> tuple[Tensors, Tensors]:
    """The tensors of a quantized checkpoint, and the plain weights that they stand for.

    As published: projections and the dense MLP in FP8, output projections, router, norms and embedding in bf16; the
    experts in FP8 or MXFP4; `fused`: queries, keys and values of each shard together, with a grid of its own.
    """
    stored: Tensors = {}
    values: Tensors = {}
    for name, weight in weights.items():
        if ".experts." in name and experts == "mxfp4":
            stored[name], stored[name + "_scale"] = mxfp4(weight)
            values[name] = mxfp4_values(stored[name], stored[name + "_scale"])
        elif name.endswith("_proj.weight") and not name.endswith("o_proj.weight"):
            if fused and name.split(".")[-2] in ("q_proj", "k_proj", "v_proj"):
                continue
            stored[name], grid = fp8_blocks(weight)
            stored[name + "_scale_inv"], values[name] = grid, fp8_values(stored[name], grid)
        else:
            keeps = name.endswith(("mlp.gate.weight", "e_score_correction_bias"))
            stored[name], values[name] = weight if keeps else weight.bfloat16(), weight
    for i in range(LAYERS if fused else 0):
        stem = f"model.layers.{i}.self_attn."
        parts = [weights[f"{stem}{p}_proj.weight"].chunk(shards) for p in "qkv"]
        tensors, grids, back = [], [], []
        for shard in zip(*parts, strict=True):
            one, grid = fp8_blocks(torch.cat(shard))
            tensors.append(one)
            grids.append(grid)
            back.append(fp8_values(one, grid).split([part.shape[0] for part in shard]))
        stored[f"{stem}qkv_proj.weight"] = torch.cat([t.view(torch.uint8) for t in tensors]).view(torch.float8_e4m3fn)
        stored[f"{stem}qkv_proj.weight_scale_inv"] = torch.cat(grids)
        for p, pieces in zip("qkv", zip(*back, strict=True), strict=True):
            values[f"{stem}{p}_proj.weight"] = torch.cat(pieces)
    return stored, values


EXTRAS: Tensors = {
    "model.mtp.layers.0.input_layernorm.weight": torch.ones(HIDDEN),
    "visual.patch_embed.proj.weight": torch.ones(4, 4),
    "audio_encoder.conv1.weight": torch.ones(4, 4, 3),
}
"""What V2.5 and V2.6 hold beside the text part, in files of its own."""


def write_published(folder: Path, stored: Tensors, ep: int = 2, tp_size: int | None = None, **changes: Any) -> Path:
    """Files by expert-parallel rank with an index, as published: `model_pp0_ep0_shard0.safetensors`, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Tensors] = {}
    for name, tensor in stored.items():
        expert = int(name.split(".experts.")[1].split(".")[0]) if ".experts." in name else None
        rank = 0 if expert is None else expert * ep // EXPERTS
        files.setdefault(f"model_pp0_ep{rank}_shard{int(expert is None)}.safetensors", {})[name] = tensor.contiguous()
    files["model_mtp.safetensors"] = EXTRAS
    for file, found in files.items():
        save_file(found, folder / file, metadata={"format": "pt"})
    index: dict[str, Any] = {"weight_map": {name: file for file, found in files.items() for name in found}}
    index["metadata"] = {"total_size": 1} | ({"tp_size": tp_size} if tp_size else {})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    quantization = {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK],
        "ignored_layers": [f"model.layers.{i}.self_attn.o_proj" for i in range(LAYERS)],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config(quantization_config=quantization, **changes)))
    return folder


KEPT = (0, 1, 5)
"""Layers that `few_layers` keeps: global and dense, windowed and mixed, global and mixed."""


def few_layers(form: str) -> tuple[Tensors, dict[str, Any]]:
    """A model of three layers in a published form, with what that changes in its config: kernels are slow to try."""
    weights = published(tensors(3), **FORMS[form])[0]
    found = {name: tensor for name, tensor in weights.items() if ".layers." not in name}
    for new, old in enumerate(KEPT):
        stem = f"model.layers.{old}."
        found |= {n.replace(stem, f"model.layers.{new}."): t for n, t in weights.items() if n.startswith(stem)}
    return found, {"num_hidden_layers": 3, "hybrid_layer_pattern": [0, 1, 0], "moe_layer_freq": [0, 1, 1]}


FORMS: dict[str, dict[str, Any]] = {
    "FP8": {"fused": True},
    "MXFP4 experts": {"fused": False, "experts": "mxfp4"},
}
