"""Grouped-query attention: projections of new rows, and attention of few rows over many keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dflash_core.layers.linear import Linear, linear
from dflash_core.layers.rms_norm import RMSNorm
from dflash_core.layers.rotary_embedding import Rotary, rotate
from dflash_core.specs import LayerSpec

Attend = Callable[[int, LayerSpec, Tensor | None, Tensor, Tensor, Tensor], Tensor]
"""attend(layer_index, spec, sinks, q, k, v) -> [N, T, heads, value_dim].

q: [N, T, heads, head_dim]; k: [N, T, kv_heads, head_dim]; v: [N, T, kv_heads, value_dim], all of the NEW rows only. Who
is seen besides them (a cache when serving, a packed batch when training) is the callable's business: layers know no
cache.
"""


class Attention(nn.Module):
    """Fused q, k, v projection and output projection of one layer."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.spec = spec
        self.qkv_proj = Linear(spec.hidden_size, spec.qkv_size, bias=spec.qkv_bias)
        self.o_proj = Linear(spec.seen_size, spec.hidden_size)
        self.q_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps) if spec.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(spec.head_dim, spec.rms_norm_eps) if spec.qk_norm else nn.Identity()
        self.sinks = nn.Parameter(torch.empty(spec.num_heads)) if spec.sinks else None

    def project(self, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """x: [N, T, hidden] -> q [N, T, heads, head_dim], k and v [N, T, kv_heads, head_dim or value_dim]."""
        q, k, v = self.qkv_proj(x).split([self.spec.q_size, self.spec.k_size, self.spec.v_size], dim=-1)
        q = rotate(self.q_norm(q.unflatten(-1, (-1, self.spec.head_dim))), rotary)
        return q, *self._keys_values(k, v, rotary)

    def project_keys_values(self, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """Keys and values alone, by the same weights: what a draft does with its context (DFlash paper, A.3)."""
        weight = self.qkv_proj.weight[self.spec.q_size :]
        bias = None if self.qkv_proj.bias is None else self.qkv_proj.bias[self.spec.q_size :]
        k, v = linear(x, weight, bias).split([self.spec.k_size, self.spec.v_size], dim=-1)
        return self._keys_values(k, v, rotary)

    def _keys_values(self, k: Tensor, v: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
        k = rotate(self.k_norm(k.unflatten(-1, (-1, self.spec.head_dim))), rotary)
        v = v.unflatten(-1, (-1, self.spec.value_dim))
        return k, v if self.spec.value_scale == 1.0 else v * self.spec.value_scale


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, sinks: Tensor | None = None) -> Tensor:
    """Attention of T query rows over S keys under a boolean mask (True: seen), or one that `folded_mask` made of it.

    q: [N, T, heads, head_dim]; k: [N, S, kv_heads, head_dim]; v: [N, S, kv_heads, value_dim]; mask: [N, T, S];
    sinks: [heads]. Returns [N, T, heads, value_dim].
    """
    n, rows, heads, head_dim = q.shape
    kv_heads = k.shape[2]
    group = heads // kv_heads
    # The heads of a group share their keys, so they are folded into query rows: one product reads each key once.
    q = (
        q.reshape(n, rows, kv_heads, group, head_dim)
        .permute(0, 2, 3, 1, 4)
        .reshape(n, kv_heads, group * rows, head_dim)
    )
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    if mask.dtype == torch.bool:
        mask = folded_mask(mask, group, q.dtype)
    if sinks is None:
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    else:
        scores = (q @ k.transpose(-1, -2)).float() * head_dim**-0.5
        scores = scores + mask
        sink = sinks.float().view(1, kv_heads, group, 1).repeat_interleave(rows, dim=2).expand(n, -1, -1, -1)
        out = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1].to(v.dtype) @ v
    out = out.reshape(n, kv_heads, group, rows, v.shape[-1]).permute(0, 3, 1, 2, 4)
    return out.reshape(n, rows, heads, v.shape[-1])


def folded_mask(mask: Tensor, group: int, dtype: torch.dtype) -> Tensor:
    """A boolean mask [N, T, S] as what is added to the scores of heads folded into rows: [N, 1, group * T, S]."""
    added = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
    return added[:, None].repeat(1, 1, group, 1)
