"""Rotary position embedding, unscaled or scaled as transformers defines it."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from dflash_core.errors import CheckpointError
from dflash_core.specs import RotarySpec

Rotary = tuple[Tensor, Tensor]
"""cos and sin, each fp32 [N, T, dim]."""


class RotaryEmbedding(nn.Module):
    """Turns positions into cos and sin once per forward pass; all layers share them."""

    inverse_frequencies: Tensor

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        # On the CPU even when the model is built on `meta`: the frequencies are computed, not loaded.
        with torch.device("cpu"):
            frequencies, self.scale = _inverse_frequencies(spec)
        self.register_buffer("inverse_frequencies", frequencies, persistent=False)

    def forward(self, positions: Tensor) -> Rotary:
        """positions: [N, T] -> cos, sin: [N, T, dim]."""
        angles = positions[..., None].float() * self.inverse_frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos() * self.scale, angles.sin() * self.scale


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Rotates the first `dim` channels of every head. x: [N, T, heads, head_dim]."""
    cos, sin = (t[:, :, None].to(x.dtype) for t in rotary)
    dim = cos.shape[-1]
    turned, kept = x[..., :dim], x[..., dim:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned, kept], dim=-1) if kept.shape[-1] else turned


def _inverse_frequencies(spec: RotarySpec) -> tuple[Tensor, float]:
    if spec.scaling is None:
        exponents = torch.arange(0, spec.dim, 2, dtype=torch.int64).float() / spec.dim
        return 1.0 / spec.base**exponents, 1.0
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = spec.scaling["rope_type"]
    if kind not in ROPE_INIT_FUNCTIONS or kind == "dynamic":
        raise CheckpointError(f"config.json: rope_type {kind!r} is not supported")
    # The library's functions read a model config; this stands for the few fields they look at.
    config = SimpleNamespace(
        rope_parameters=dict(spec.scaling),
        head_dim=spec.dim,
        max_position_embeddings=spec.max_positions,
        standardize_rope_params=lambda: None,
    )
    frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return frequencies.float(), float(scale)
