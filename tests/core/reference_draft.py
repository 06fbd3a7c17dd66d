"""The published formulas of a DFlash draft, read slowly: one row at a time, no cache, no fusion, plain arithmetic.

An independent reading of reference 1.1 and 1.2 for the tests. Shares nothing with dflash_core.
"""

from __future__ import annotations

import math
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean() + eps) * weight


def rope(x: torch.Tensor, position: int, base: float, dim: int) -> torch.Tensor:
    out = x.clone()
    half = dim // 2
    for i in range(half):
        angle = position / base ** (2 * i / dim)
        a, b = x[i], x[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def draft_block(
    config: dict[str, Any], tensors: Tensors, features: torch.Tensor, rows: torch.Tensor, start: int
) -> torch.Tensor:
    """features: [start, K * H] of positions 0 .. start - 1; rows: [B, H], anchor and masks.

    Returns [B, H] after the final norm.
    """
    nested = config["dflash_config"]
    eps, heads, kv_heads, hd = (
        config["rms_norm_eps"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["head_dim"],
    )
    rotary_dim = int(hd * config.get("partial_rotary_factor", 1.0))
    scale = nested.get("attention_value_scale", 1.0)
    context = [rms(tensors["fc.weight"] @ f, tensors["hidden_norm.weight"], eps) for f in features]
    x = list(rows)
    for i in range(config["num_hidden_layers"]):
        w = {name.removeprefix(f"layers.{i}."): t for name, t in tensors.items() if name.startswith(f"layers.{i}.")}

        def key_value(h: torch.Tensor, position: int, w: Tensors = w) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            k = (w["self_attn.k_proj.weight"] @ h).split(hd)
            v = (w["self_attn.v_proj.weight"] @ h * scale).split(hd)
            k = [
                rope(rms(one, w["self_attn.k_norm.weight"], eps), position, config["rope_theta"], rotary_dim)
                for one in k
            ]
            return k, list(v)

        normed = [rms(h, w["input_layernorm.weight"], eps) for h in x]
        seen = [key_value(c, p) for p, c in enumerate(context)]
        seen += [key_value(h, start + j) for j, h in enumerate(normed)]
        out = []
        for j, h in enumerate(normed):
            position = start + j
            queries = (w["self_attn.q_proj.weight"] @ h).split(hd)
            heads_out = []
            for head, q in enumerate(queries):
                q = rope(rms(q, w["self_attn.q_norm.weight"], eps), position, config["rope_theta"], rotary_dim)
                kv = head // (heads // kv_heads)
                visible = [p for p in range(len(seen)) if is_seen(config, i, position, p)]
                scores = [float(q @ seen[p][0][kv]) / math.sqrt(hd) for p in visible]
                sink = float(w["self_attn.attention_sink_bias"][head]) if nested.get("attention_sink_bias") else None
                top = max([*scores, sink] if sink is not None else scores)
                total = sum(math.exp(s - top) for s in scores) + (math.exp(sink - top) if sink is not None else 0)
                mixed = sum(math.exp(s - top) / total * seen[p][1][kv] for s, p in zip(scores, visible, strict=True))
                heads_out.append(mixed)
            out.append(x[j] + w["self_attn.o_proj.weight"] @ torch.cat(heads_out))
        x = []
        for h in out:
            n = rms(h, w["post_attention_layernorm.weight"], eps)
            gate = w["mlp.gate_proj.weight"] @ n
            inner = gate / (1 + torch.exp(-gate)) * (w["mlp.up_proj.weight"] @ n)
            x.append(h + w["mlp.down_proj.weight"] @ inner)
    return torch.stack([rms(h, tensors["norm.weight"], eps) for h in x])


def is_seen(config: dict[str, Any], layer: int, query: int, key: int) -> bool:
    """Who sees whom inside and before a block (reference 1.2, the MiMo row of its table included)."""
    nested = config["dflash_config"]
    types = config.get("layer_types")
    sliding = types[layer] == "sliding_attention" if types else bool(nested.get("use_swa"))
    window = nested.get("swa_window_size") or config.get("sliding_window")
    causal = config.get("is_causal", nested.get("causal"))
    if causal is None:
        causal = sliding and types is not None
    if causal and key > query:
        return False
    return not sliding or abs(query - key) < window
