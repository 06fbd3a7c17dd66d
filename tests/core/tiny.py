"""Small random pairs in the published layouts: a target written by transformers, a draft written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB = 96
HIDDEN = 48
LAYERS = 6
MIXTURE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True}
"""Options of a `qwen3_moe` target."""


def write_target(folder: Path, family: str = "llama", seed: int = 0, **options: Any) -> Path:
    """A random model of a real family, saved by transformers itself."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    config = AutoConfig.for_model(family, **(sizes | options))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # larger than the default, so that greedy text is not one repeated token
            parameter.copy_(
                torch.randn_like(parameter) * (0.25 if parameter.dim() > 1 else 0.1) + (parameter.dim() == 1)
            )
    model.save_pretrained(folder)
    return folder


def draft_config(**options: Any) -> dict[str, Any]:
    """A z-lab config for the random target; keys of `dflash` go to its nested part."""
    nested = {"target_layer_ids": [0, 2, LAYERS - 1], "mask_token_id": 95} | options.pop("dflash", {})
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "num_target_layers": LAYERS,
        "block_size": 8,
        "tie_word_embeddings": False,
        "dflash_config": nested,
    } | options


def draft_tensors(config: dict[str, Any], seed: int = 1) -> dict[str, torch.Tensor]:
    """Random tensors under the published names (reference 1.1)."""
    generator = torch.Generator().manual_seed(seed)
    hidden, ff, hd = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * hd, config["num_key_value_heads"] * hd
    nested = config["dflash_config"]

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.2

    def norm(size: int) -> torch.Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    tensors = {
        "fc.weight": matrix(hidden, len(nested["target_layer_ids"]) * hidden),
        "hidden_norm.weight": norm(hidden),
        "norm.weight": norm(hidden),
    }
    for i in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": norm(hidden),
            "post_attention_layernorm.weight": norm(hidden),
            "self_attn.q_proj.weight": matrix(q, hidden),
            "self_attn.k_proj.weight": matrix(kv, hidden),
            "self_attn.v_proj.weight": matrix(kv, hidden),
            "self_attn.o_proj.weight": matrix(hidden, q),
            "self_attn.q_norm.weight": norm(hd),
            "self_attn.k_norm.weight": norm(hd),
            "mlp.gate_proj.weight": matrix(ff, hidden),
            "mlp.up_proj.weight": matrix(ff, hidden),
            "mlp.down_proj.weight": matrix(hidden, ff),
        }
        if nested.get("attention_sink_bias"):
            layer["self_attn.attention_sink_bias"] = matrix(config["num_attention_heads"]) * 5
        tensors |= {f"layers.{i}.{name}": tensor for name, tensor in layer.items()}
    return tensors


def write_draft(folder: Path, config: dict[str, Any] | None = None, seed: int = 1, mask: bool = False) -> Path:
    config = config or draft_config()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(draft_tensors(config, seed), folder / "model.safetensors")
    if mask:
        vector = torch.randn(config["hidden_size"], generator=torch.Generator().manual_seed(seed + 100))
        stored = {"mask_token_id": config["dflash_config"]["mask_token_id"], "embedding": vector}
        torch.save(stored, folder / "mask_embedding.pt")
    return folder


def token_bytes() -> list[bytes]:
    """A vocabulary for the random models: every id a distinct printable byte, the last one a marker without text."""
    return [bytes([32 + i]) for i in range(VOCAB - 1)] + [b""]
