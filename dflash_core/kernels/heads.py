"""Queries and keys as attention wants them: normed per head, rotated, in the cache at their positions."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dflash_core.kernels.launch import ONE_FOR_ALL, begin, launch_options
from dflash_core.specs import LayerSpec

_TILE_ROWS = 16


@triton.jit
def load_heads(
    base, inside, positions, norm, cos, sin, eps, HEAD_DIM: tl.constexpr, ROTARY_DIM: tl.constexpr, D: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """Head vectors at `base` [R] (pointers), normed and rotated to `positions` [R] -> fp32 [R, D], D >= HEAD_DIM.

    cos, sin: [positions, ROTARY_DIM / 2]; channels from ROTARY_DIM on are left as they are (half-split layout).
    """
    d = tl.arange(0, D)
    half: tl.constexpr = ROTARY_DIM // 2
    turned = d < ROTARY_DIM
    partner = tl.where(d < half, d + half, tl.where(turned, d - half, d))
    mask = inside[:, None] & (d < HEAD_DIM)[None, :]
    x = tl.load(base[:, None] + d[None, :], mask=mask, other=0.0).to(tl.float32)
    y = tl.load(base[:, None] + partner[None, :], mask=mask, other=0.0).to(tl.float32)
    if NORM:
        factor = tl.rsqrt(tl.sum(x * x, axis=1) / HEAD_DIM + eps)
        x = x * factor[:, None] * tl.load(norm + d, mask=d < HEAD_DIM, other=0.0).to(tl.float32)[None, :]
        y = y * factor[:, None] * tl.load(norm + partner, mask=d < HEAD_DIM, other=0.0).to(tl.float32)[None, :]
    angle = positions[:, None] * half + tl.where(d < half, d, d - half)[None, :]
    known = inside[:, None] & turned[None, :]
    c = tl.load(cos + angle, mask=known, other=1.0)
    s = tl.load(sin + angle, mask=known, other=0.0)
    return x * c + tl.where(d < half, -y, y) * s


@triton.jit
def cache_pointer(addresses, index, dtype: tl.constexpr):
    """Base address number `index` of a table of addresses, as a pointer to elements of `dtype`."""
    return tl.multiple_of(tl.load(addresses + index).to(tl.pointer_type(dtype)), 16)


@triton.jit(do_not_specialize=ONE_FOR_ALL)
def _place_heads(
    qkv, queries, norm_q, norm_k, cos, sin, addresses, layer, state, count, rows, stride, eps, value_scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr, D: tl.constexpr, NORM: tl.constexpr, BLOCK_T: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    head = tl.program_id(1)
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    length = tl.load(state)
    live = t < tl.minimum(tl.load(count), rows)
    positions = length + t
    dtype = qkv.dtype.element_ty
    base = qkv + t.to(tl.int64) * stride + head * HEAD_DIM
    if head < HEADS:
        x = load_heads(base, t < rows, positions, norm_q, cos, sin, eps, HEAD_DIM, ROTARY_DIM, D, NORM)
        to = queries + (t[:, None] * HEADS + head) * HEAD_DIM + d[None, :]
        tl.store(to, x.to(dtype), mask=(t < rows)[:, None] & (d < HEAD_DIM)[None, :])
    elif head < HEADS + KV_HEADS:
        x = load_heads(base, live, positions, norm_k, cos, sin, eps, HEAD_DIM, ROTARY_DIM, D, NORM)
        keys = cache_pointer(addresses, 2 * layer, dtype) + (head - HEADS) * HEAD_DIM
        at = positions * (KV_HEADS * HEAD_DIM)
        tl.store(keys + at[:, None] + d[None, :], x.to(dtype), mask=live[:, None] & (d < HEAD_DIM)[None, :])
    else:
        mask = live[:, None] & (d < VALUE_DIM)[None, :]
        number = head - HEADS - KV_HEADS
        base = qkv + t.to(tl.int64) * stride + (HEADS + KV_HEADS) * HEAD_DIM + number * VALUE_DIM
        x = tl.load(base[:, None] + d[None, :], mask=mask, other=0.0).to(tl.float32) * value_scale
        values = cache_pointer(addresses, 2 * layer + 1, dtype) + number * VALUE_DIM
        at = positions * (KV_HEADS * VALUE_DIM)
        tl.store(values + at[:, None] + d[None, :], x.to(dtype), mask=mask)


def place_heads(
    projected: Tensor,
    queries: Tensor | None,
    spec: LayerSpec,
    norms: tuple[Tensor, Tensor] | None,
    rotary: tuple[Tensor, Tensor],
    addresses: Tensor,
    layer: int,
    state: Tensor,
    count: Tensor,
) -> None:
    """Writes new keys and values into the session's cache at state[0] .. state[0] + count - 1, and the queries.

    projected: [T, qkv_size] with any row stride, or keys and values alone (queries None).
    queries: [T, heads, head_dim] to fill. addresses: [2 * layers] int64, keys and values of every layer.
    rotary: tables cos, sin [positions, dim / 2]. count: [1] int64, how many of the T rows are real.
    """
    rows = projected.shape[0]
    heads = spec.num_heads if queries is not None else 0
    norm_q, norm_k = norms or (projected, projected)
    _place_heads[(triton.cdiv(rows, _TILE_ROWS), heads + 2 * spec.num_kv_heads)](
        projected, queries if queries is not None else projected, norm_q, norm_k, *rotary, addresses, layer, state,
        count, rows, projected.stride(0), spec.rms_norm_eps, spec.value_scale,
        HEADS=heads, KV_HEADS=spec.num_kv_heads, HEAD_DIM=spec.head_dim, VALUE_DIM=spec.value_dim,
        ROTARY_DIM=2 * rotary[0].shape[1], D=padded_head(max(spec.head_dim, spec.value_dim)), NORM=norms is not None,
        BLOCK_T=_TILE_ROWS, num_warps=4, **launch_options(),
    )  # fmt: skip


def padded_head(head_dim: int) -> int:
    """Channels of a tile that holds one head: a power of two, at least what a tensor core takes."""
    return max(16, triton.next_power_of_2(head_dim))
