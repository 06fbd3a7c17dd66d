"""Attention of one block over the live part of a session's cache, its own rows included.

Split along the keys (flash decoding): one program a key-value head and a stretch of positions, so that a single
document fills the device; the query heads of a group are folded into rows, so that each key is read once. Stretches
have a fixed length, whatever is live: a row's sums run in the same order in every round that sees the same keys.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dflash_core.kernels.heads import cache_pointer, padded_head
from dflash_core.kernels.launch import ONE_FOR_ALL, begin, launch_options
from dflash_core.specs import LayerSpec

_LOG2E = tl.constexpr(1.4426950408889634)
_COMBINED = tl.constexpr(16)
_UNROLLED = tl.constexpr(4)


@triton.jit
def _tile(
    best, total, out, q, keys, values, first, end, length, at_query, scale,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One step of the running softmax: highest scores, their sums and values so far, with TILE more positions."""
    d, dv = tl.arange(0, D), tl.arange(0, DV)
    p = first + tl.arange(0, TILE)
    at = p[:, None] * (KV_HEADS * HEAD_DIM) + d[None, :]
    at_value = p[:, None] * (KV_HEADS * VALUE_DIM) + dv[None, :]
    k = tl.load(keys + at, mask=(p < end)[:, None] & (d < HEAD_DIM)[None, :], other=0.0)
    v = tl.load(values + at_value, mask=(p < end)[:, None] & (dv < VALUE_DIM)[None, :], other=0.0)
    seen = (p < end)[None, :]
    if CAUSAL:
        seen = seen & (p[None, :] <= at_query[:, None])
    if WINDOW > 0:
        seen = seen & (tl.abs(at_query[:, None] - p[None, :]) < WINDOW)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * _LOG2E)
    scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, axis=1))
    floor = tl.where(higher == float("-inf"), 0.0, higher)
    kept = tl.exp2(best - floor)
    weights = tl.exp2(scores - floor[:, None])
    total = total * kept + tl.sum(weights, axis=1)
    out = tl.dot(weights.to(v.dtype), v, out * kept[:, None], input_precision=PRECISION)
    return higher, total, out


@triton.jit(do_not_specialize=ONE_FOR_ALL)
def _attend(
    queries, addresses, layer, state, count, partial, maxima, sums, scale, rows,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, STRETCH: tl.constexpr, TILE: tl.constexpr, R: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    head = tl.program_id(0)
    first = tl.program_id(1) * STRETCH
    dtype = queries.dtype.element_ty
    keys = cache_pointer(addresses, 2 * layer, dtype) + head * HEAD_DIM
    values = cache_pointer(addresses, 2 * layer + 1, dtype) + head * VALUE_DIM
    length = tl.load(state)
    end = length + tl.minimum(tl.load(count), rows)
    if first >= end:
        return
    if WINDOW > 0:
        if first + STRETCH <= length - WINDOW + 1:
            return
    group: tl.constexpr = HEADS // KV_HEADS
    r = tl.arange(0, R)
    d = tl.arange(0, D)
    row = r // group
    at_query = length + row
    channel = (d < HEAD_DIM)[None, :]
    dv = tl.arange(0, DV)
    at_q = row * (HEADS * HEAD_DIM) + (head * group + r % group) * HEAD_DIM
    q = tl.load(queries + at_q[:, None] + d[None, :], mask=(r < rows * group)[:, None] & channel, other=0.0)
    best = tl.full([R], float("-inf"), tl.float32)
    total = tl.zeros([R], tl.float32)
    out = tl.zeros([R, DV], tl.float32)
    # Unrolled where that is short: a long context's stretches would take minutes to compile.
    if STRETCH <= _UNROLLED * TILE:
        for start in tl.static_range(0, STRETCH, TILE):
            best, total, out = _tile(
                best, total, out, q, keys, values, first + start, end, length, at_query, scale,
                KV_HEADS, HEAD_DIM, VALUE_DIM, CAUSAL, WINDOW, TILE, D, DV, PRECISION,
            )  # fmt: skip
    else:
        for start in range(0, STRETCH, TILE):
            best, total, out = _tile(
                best, total, out, q, keys, values, first + start, end, length, at_query, scale,
                KV_HEADS, HEAD_DIM, VALUE_DIM, CAUSAL, WINDOW, TILE, D, DV, PRECISION,
            )  # fmt: skip
    slot = (tl.program_id(1) * KV_HEADS + head) * R + r
    tl.store(partial + slot[:, None] * DV + dv[None, :], out, mask=(r < rows * group)[:, None])
    tl.store(maxima + slot, best)
    tl.store(sums + slot, total)


@triton.jit(do_not_specialize=ONE_FOR_ALL)
def _combine(
    partial, maxima, sums, sinks, state, count, out, rows,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, VALUE_DIM: tl.constexpr, SINKS: tl.constexpr,
    WINDOW: tl.constexpr, STRETCH: tl.constexpr, R: tl.constexpr, DV: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    head = tl.program_id(0)
    row = tl.program_id(1)
    group: tl.constexpr = HEADS // KV_HEADS
    r = row * group + head % group
    length = tl.load(state)
    end = length + tl.minimum(tl.load(count), rows)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW + 1, 0) // STRETCH
    stretches = (end + STRETCH - 1) // STRETCH
    d = tl.arange(0, DV)
    best = float("-inf")
    total = 0.0
    seen = tl.zeros([DV], tl.float32)
    for start in range(first, stretches, _COMBINED):
        s = start + tl.arange(0, _COMBINED)
        slot = (s * KV_HEADS + head // group) * R + r
        live = s < stretches
        # All three at once: what one load waits, the others wait beside it.
        m = tl.load(maxima + slot, mask=live, other=float("-inf"))
        l = tl.load(sums + slot, mask=live, other=0.0)
        o = tl.load(partial + slot.to(tl.int64)[:, None] * DV + d[None, :], mask=live[:, None], other=0.0)
        higher = tl.maximum(best, tl.max(m, axis=0))
        floor = tl.where(higher == float("-inf"), 0.0, higher)
        share = tl.exp2(m - floor)
        kept = tl.exp2(best - floor)
        total = total * kept + tl.sum(share * l, axis=0)
        seen = seen * kept + tl.sum(share[:, None] * o, axis=0)
        best = higher
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * _LOG2E
        higher = tl.maximum(best, sink)
        total = total * tl.exp2(best - higher) + tl.exp2(sink - higher)
        seen = seen * tl.exp2(best - higher)
    seen = seen / tl.where(total == 0.0, 1.0, total)
    tl.store(out + (row * HEADS + head) * VALUE_DIM + d, seen.to(out.dtype.element_ty), mask=d < VALUE_DIM)


class Scratch(NamedTuple):
    """Room for what the programs of one attention hand to its second step; layers share it."""

    partial: Tensor
    maxima: Tensor
    sums: Tensor

    @classmethod
    def for_layers(cls, specs: tuple[LayerSpec, ...], rows: int, capacity: int, device: torch.device) -> Scratch:
        slots = max(_slots(spec, rows, capacity) for spec in specs)
        channels = max(padded_head(spec.value_dim) for spec in specs)
        one = torch.empty(slots, dtype=torch.float32, device=device)
        return cls(torch.empty(slots * channels, dtype=torch.float32, device=device), one, torch.empty_like(one))


def block_attention(
    queries: Tensor, out: Tensor, spec: LayerSpec, sinks: Tensor | None, addresses: Tensor, layer: int, state: Tensor,
    count: Tensor, scratch: Scratch, capacity: int, block_size: int,
) -> None:  # fmt: skip
    """Rows at positions state[0], state[0] + 1, ... see the cache, their own keys in it, as the layer's spec says.

    queries: [rows, heads, head_dim], rotated; out: [rows, heads * value_dim]. addresses: [2 * layers] int64, where
    keys [capacity, kv_heads, head_dim] and values [capacity, kv_heads, value_dim] of each layer lie.
    count: [1] int64, how many rows are real. Fewer rows than `block_size` are computed in tiles of that many, so that
    their sums run in the same order.
    """
    rows = queries.shape[0]
    stretch, padded = _stretch(capacity), _padded_rows(spec, max(rows, block_size))
    shape = {"HEADS": spec.num_heads, "KV_HEADS": spec.num_kv_heads, "VALUE_DIM": spec.value_dim}
    shape |= {"WINDOW": spec.window or 0, "STRETCH": stretch, "R": padded, "DV": padded_head(spec.value_dim)}
    _attend[(spec.num_kv_heads, triton.cdiv(capacity, stretch))](
        queries, addresses, layer, state, count, *scratch, spec.head_dim**-0.5, rows, **shape, CAUSAL=spec.causal,
        HEAD_DIM=spec.head_dim, D=padded_head(spec.head_dim), TILE=min(stretch, 64),
        PRECISION="ieee" if queries.dtype == torch.float32 else "tf32", num_warps=4, **launch_options(),
    )  # fmt: skip
    _combine[(spec.num_heads, rows)](
        *scratch, sinks if sinks is not None else queries, state, count, out, rows, **shape, SINKS=sinks is not None,
        num_warps=2, **launch_options(),
    )  # fmt: skip


def _stretch(capacity: int) -> int:
    """Positions of one program: short enough to fill the device at a few hundred, and at most some hundred of them."""
    return max(64, triton.next_power_of_2(triton.cdiv(capacity, 128)))


def _padded_rows(spec: LayerSpec, rows: int) -> int:
    return max(16, triton.next_power_of_2(rows * spec.num_heads // spec.num_kv_heads))


def _slots(spec: LayerSpec, rows: int, capacity: int) -> int:
    return triton.cdiv(capacity, _stretch(capacity)) * spec.num_kv_heads * _padded_rows(spec, rows)
