"""Bytes that a model of some shape takes, by arithmetic; no weights are read."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_core.published import Form
from dflash_core.specs import DraftSpec, LayerSpec, TargetSpec

_BF16 = 2.0
_FP8 = 1.0 + 4.0 / (128 * 128)
"""A byte and its share of the fp32 scale of a block."""
_MXFP4 = 0.5 + 1.0 / 32
"""Half a byte and its share of the scale of a group."""


def target_bytes(spec: TargetSpec, form: Form) -> int:
    """Weights of a target in a form: embedding, layers, norms, head."""
    total = spec.vocab_size * spec.hidden_size * _BF16 * (1 if spec.tied_embeddings else 2) + spec.hidden_size * _BF16
    return round(total + sum(layer_bytes(layer, form) for layer in spec.layers))


def layer_bytes(layer: LayerSpec, form: Form) -> float:
    """Weights of one layer in a form."""
    projection = _BF16 if form == "plain" else _FP8
    expert = {"plain": _BF16, "fp8": _FP8, "mxfp4": _MXFP4}[form]
    total = _attention(layer, projection)
    mixture = layer.mixture
    if mixture is None:
        return total + 3 * layer.hidden_size * layer.intermediate_size * projection
    router = 4.0 if mixture.router == "sigmoid" else _BF16
    total += mixture.num_experts * 3 * layer.hidden_size * mixture.intermediate_size * expert
    return total + mixture.num_experts * (layer.hidden_size + (mixture.router == "sigmoid")) * router


def draft_bytes(spec: DraftSpec) -> int:
    """Weights of a draft in bf16, its mask's vector aside."""
    hidden = spec.hidden_size
    total = (len(spec.target_layer_ids) * hidden * hidden + 2 * hidden) * _BF16
    for layer in spec.layers:
        total += _attention(layer, _BF16) + 3 * layer.hidden_size * layer.intermediate_size * _BF16
    return round(total)


def kv_bytes(layers: Sequence[LayerSpec], positions: int, bytes_a_value: int = 2) -> int:
    """Keys and values of one session. Layers with a window keep all positions too (decoding rule 3 of the design)."""
    return sum((layer.k_size + layer.v_size) * positions * bytes_a_value for layer in layers)


def _attention(layer: LayerSpec, projection: float) -> float:
    """Projections (the output's is bf16 in every form), norms, biases, sinks."""
    small = 2 * layer.hidden_size
    small += layer.num_heads if layer.sinks else 0
    small += 2 * layer.head_dim if layer.qk_norm else 0
    small += layer.qkv_size if layer.qkv_bias else 0
    return layer.hidden_size * (layer.qkv_size * projection + layer.seen_size * _BF16) + small * _BF16
