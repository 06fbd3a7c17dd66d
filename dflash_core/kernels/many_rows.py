"""What a chunk of a prompt needs besides the library's matrix products: norm, gate, and attention over the cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dflash_core.kernels.heads import cache_pointer, padded_head
from dflash_core.kernels.launch import ONE_FOR_ALL, begin, launch_options
from dflash_core.specs import LayerSpec

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _rms_norm(x, weight, out, size, eps, BLOCK: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    wide = tl.load(x + row * size + d, mask=d < size, other=0.0).to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / size + eps)
    scaled = normed * tl.load(weight + d, mask=d < size, other=0.0).to(tl.float32)
    tl.store(out + row * size + d, scaled.to(out.dtype.element_ty), mask=d < size)


def rms_norm(x: Tensor, weight: Tensor, out: Tensor, eps: float) -> None:
    """x, out: [T, size] contiguous; weight: [size]."""
    rows, size = x.shape
    block = triton.next_power_of_2(size)
    warps = 8 if block > 2048 else 4
    _rms_norm[(rows,)](x, weight, out, size, eps, BLOCK=block, num_warps=warps, **launch_options())


@triton.jit
def _gate(gate_up, out, size, BLOCK: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    row = tl.program_id(1).to(tl.int64)
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up + row * 2 * size + d, mask=d < size, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * size + size + d, mask=d < size, other=0.0).to(tl.float32)
    tl.store(out + row * size + d, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=d < size)


def gate(gate_up: Tensor, out: Tensor) -> None:
    """silu(gate) * up. gate_up: [T, 2 size] contiguous; out: [T, size]."""
    rows, size = out.shape
    block = min(2048, triton.next_power_of_2(size))
    _gate[(triton.cdiv(size, block), rows)](gate_up, out, size, BLOCK=block, **launch_options())


@triton.jit(do_not_specialize=ONE_FOR_ALL)
def _chunk_attention(
    queries, addresses, layer, sinks, state, count, out, rows, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    SINKS: tl.constexpr, WINDOW: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    head = tl.program_id(1)
    # Late rows see the most keys: they start first, so that none of them runs alone at the end.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    length = tl.load(state)
    end = length + tl.minimum(tl.load(count), rows)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    if length + block * BLOCK_T >= end:
        return
    d = tl.arange(0, D)
    channel = (d < HEAD_DIM)[None, :]
    dv = tl.arange(0, DV)
    value_channel = (dv < VALUE_DIM)[None, :]
    dtype = queries.dtype.element_ty
    q = tl.load(
        queries + (t[:, None] * HEADS + head) * HEAD_DIM + d[None, :], mask=(t < rows)[:, None] & channel, other=0.0
    )
    kv_head = head // (HEADS // KV_HEADS)
    keys = cache_pointer(addresses, 2 * layer, dtype) + kv_head * HEAD_DIM
    values = cache_pointer(addresses, 2 * layer + 1, dtype) + kv_head * VALUE_DIM
    best = tl.full([BLOCK_T], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_T], tl.float32)
    seen = tl.zeros([BLOCK_T, DV], tl.float32)
    first = length * 0
    if WINDOW > 0:
        first = tl.maximum(length + block * BLOCK_T - WINDOW + 1, 0) // BLOCK_S * BLOCK_S
    last = tl.minimum(length + (block + 1) * BLOCK_T, end)
    for start in range(first, last, BLOCK_S):
        p = start + tl.arange(0, BLOCK_S)
        at = p[:, None] * (KV_HEADS * HEAD_DIM) + d[None, :]
        k = tl.load(keys + at, mask=(p < end)[:, None] & channel, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * _LOG2E)
        visible = p[None, :] <= (length + t)[:, None]
        if WINDOW > 0:
            visible = visible & ((length + t)[:, None] - p[None, :] < WINDOW)
        scores = tl.where(visible, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, axis=1))
        floor = tl.where(higher == float("-inf"), 0.0, higher)
        kept = tl.exp2(best - floor)
        weights = tl.exp2(scores - floor[:, None])
        total = total * kept + tl.sum(weights, axis=1)
        at_value = p[:, None] * (KV_HEADS * VALUE_DIM) + dv[None, :]
        v = tl.load(values + at_value, mask=(p < end)[:, None] & value_channel, other=0.0)
        seen = tl.dot(weights.to(dtype), v, seen * kept[:, None], input_precision=PRECISION)
        best = higher
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * _LOG2E
        higher = tl.maximum(best, sink)
        kept = tl.exp2(best - higher)
        total = total * kept + tl.exp2(sink - higher)
        seen = seen * kept[:, None]
    seen = seen / tl.where(total == 0.0, 1.0, total)[:, None]
    to = out + (t[:, None] * HEADS + head) * VALUE_DIM + dv[None, :]
    tl.store(to, seen.to(dtype), mask=(t < rows)[:, None] & value_channel)


def chunk_attention(
    queries: Tensor, out: Tensor, spec: LayerSpec, sinks: Tensor | None, addresses: Tensor, layer: int, state: Tensor,
    count: Tensor,
) -> None:  # fmt: skip
    """Causal attention of a prompt chunk over everything up to itself; its keys and values are in the cache already.

    queries: [T, heads, head_dim], rotated; out: [T, heads * value_dim]. For addresses, state and count see
    `heads.place_heads`.
    """
    rows = queries.shape[0]
    block_t = 64 if queries.dtype == torch.float32 or rows <= 64 else 128
    _chunk_attention[(triton.cdiv(rows, block_t), spec.num_heads)](
        queries, addresses, layer, sinks if sinks is not None else queries, state, count, out, rows,
        spec.head_dim**-0.5, HEADS=spec.num_heads, KV_HEADS=spec.num_kv_heads, HEAD_DIM=spec.head_dim,
        VALUE_DIM=spec.value_dim, SINKS=sinks is not None, WINDOW=spec.window or 0, BLOCK_T=block_t, BLOCK_S=64,
        D=padded_head(spec.head_dim), DV=padded_head(spec.value_dim),
        PRECISION="ieee" if queries.dtype == torch.float32 else "tf32", num_warps=8 if block_t == 128 else 4,
        num_stages=3 if queries.dtype != torch.float32 else 1, **launch_options(),
    )  # fmt: skip
