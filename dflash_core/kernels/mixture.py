"""A mixture of experts for the rows at hand: each picked expert is read once, by all rows that picked it.

Pairs (row, place) are put in order of their experts on the device; a program of the two products takes one tile of
one expert's pairs, so nothing about the routing is known to the host and the whole is captured in a graph.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dflash_core.kernels import MOST_ROWS
from dflash_core.kernels.launch import ONE_FOR_ALL, begin, launch_options
from dflash_core.kernels.skinny_linear import HalfNormed, Tiling
from dflash_core.kernels.stored import mxfp4_to_bf16, unpack
from dflash_core.layers.moe import Experts
from dflash_core.layers.stored_weights import MXFP4_GROUP, Fp8Experts, Mxfp4Experts
from dflash_core.specs import MixtureSpec


class Routing(NamedTuple):
    """Which experts the rows take. A pair is row * experts_per_row + place; padding rows have no expert.

    ids: int32 [pairs], the expert of each, or num_experts for none. weights: fp32 [pairs]. order: int32 [pairs], pairs
    by expert. counts: int32 [num_experts].
    """

    ids: Tensor
    weights: Tensor
    order: Tensor
    counts: Tensor

    @classmethod
    def empty(cls, rows: int, spec: MixtureSpec, device: torch.device) -> Routing:
        pairs = rows * spec.experts_per_row
        whole = torch.zeros(pairs, dtype=torch.int32, device=device)
        counts = torch.zeros(spec.num_experts, dtype=torch.int32, device=device)
        return cls(whole, torch.zeros(pairs, dtype=torch.float32, device=device), torch.zeros_like(whole), counts)

    def first(self, pairs: int) -> Routing:
        return Routing(self.ids[:pairs], self.weights[:pairs], self.order[:pairs], self.counts)


@triton.jit
def _pick(
    logits, bias, count, ids, weights, order, counts, scale, rows,
    EXPERTS: tl.constexpr, PICKED: tl.constexpr, NORMALIZED: tl.constexpr, SIGMOID: tl.constexpr,
    ORDERED: tl.constexpr, M: tl.constexpr, E: tl.constexpr, P: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """M rows a program. ORDERED: one program has all rows, and puts their pairs in order as well."""
    begin(PDL)
    row = tl.program_id(0) * M + tl.arange(0, M)
    e = tl.arange(0, E)
    known = (row < rows)[:, None] & (e < EXPERTS)[None, :]
    scores = tl.load(logits + row[:, None] * EXPERTS + e[None, :], mask=known, other=float("-inf")).to(tl.float32)
    if SIGMOID:
        shares = 1.0 / (1.0 + tl.exp(-scores))
        left = shares + tl.load(bias + e, mask=e < EXPERTS, other=0.0)[None, :]
    else:
        # A row that is none has no largest score: it is given one.
        shares = tl.exp(scores - tl.maximum(tl.max(scores, axis=1), -1e30)[:, None])
        shares = shares / tl.maximum(tl.sum(shares, axis=1), 1e-30)[:, None]
        left = shares
    left = tl.where(known, left, float("-inf"))
    real = (row < tl.load(count)) & (row < rows)
    place = tl.arange(0, P)
    picked = tl.full([M, P], EXPERTS, tl.int32)
    values = tl.zeros([M, P], tl.float32)
    total = tl.zeros([M], tl.float32)
    for turn in tl.static_range(PICKED):
        at = tl.argmax(left, axis=1)
        here = e[None, :] == at[:, None]
        value = tl.sum(tl.where(here, shares, 0.0), axis=1)
        total += value
        left = tl.where(here, float("-inf"), left)
        taken = place[None, :] == turn
        values = tl.where(taken, value[:, None], values)
        picked = tl.where(taken & real[:, None], at[:, None], picked)
    if NORMALIZED:
        values = values / tl.maximum(total, 1e-30)[:, None]  # of a row that is none it is 0
    values = values * scale
    pair = row[:, None] * PICKED + place[None, :]
    inside = (row < rows)[:, None] & (place < PICKED)[None, :]
    tl.store(ids + pair, picked, mask=inside)
    # Rounded as the published router rounds it: to the type of its logits.
    tl.store(weights + pair, values.to(logits.dtype.element_ty).to(tl.float32), mask=inside)
    if ORDERED:
        # Places that are none (no pair of theirs is stored) go behind all others.
        mine = tl.reshape(tl.where(inside, picked, EXPERTS + 1), [M * P])
        number = tl.reshape(pair, [M * P])
        stored = tl.reshape(inside.to(tl.int32), [M * P]) > 0
        n = tl.arange(0, M * P)
        before = (mine[None, :] < mine[:, None]) | ((mine[None, :] == mine[:, None]) & (n[None, :] < n[:, None]))
        tl.store(order + tl.sum(before.to(tl.int32), axis=1), number, mask=stored)
        found = tl.sum((mine[:, None] == e[None, :]).to(tl.int32), axis=0)
        tl.store(counts + e, found, mask=e < EXPERTS)


@triton.jit
def unpack_pairs(packed, factor, N: tl.constexpr, K: tl.constexpr, dtype: tl.constexpr, FAST: tl.constexpr):
    """Folded MXFP4 -> the values of the low and of the high halves, exact in `dtype`, [N, K / 2] each.

    packed: bytes [N, K / 2]; factor: bytes [N, K / 32], 2 ** (factor - 127) of each 32; up to 128 where FAST.
    """
    if FAST:
        power = ((factor.to(tl.int16) + 126) << 7).to(tl.bfloat16, bitcast=True)
        power = tl.reshape(tl.broadcast_to(power[:, :, None], [N, K // 32, 16]), [N, K // 2])
        return mxfp4_to_bf16(packed, power)
    # The lowest power has no exponent: it is subnormal.
    power = tl.where(factor == 0, 0x400000, factor.to(tl.int32) << 23).to(tl.float32, bitcast=True)
    power = tl.reshape(tl.broadcast_to(power[:, :, None], [N, K // 32, 16]), [N, K // 2])
    code = packed.to(tl.int32)
    low = (((code & 7) << 9) | ((code & 8) << 12)).to(tl.int16).to(tl.float16, bitcast=True)
    high = (((code & 0x70) << 5) | ((code & 0x80) << 8)).to(tl.int16).to(tl.float16, bitcast=True)
    # A code's bits are those of an fp16 number that is 2 ** 14 times smaller.
    return (low.to(tl.float32) * 16384.0 * power).to(dtype), (high.to(tl.float32) * 16384.0 * power).to(dtype)


@triton.jit
def _experts(
    x,  # [rows, K] when gated, else [pairs, K] in the order of `order`
    weight,  # [experts, N, K], or [experts, 2 N, K] when gated; K / 2 bytes a row when MXFP4
    scales,  # FP8: fp32 [experts, N or 2 N / SCALE_ROWS, scale_stride]; MXFP4: bytes [experts, N or 2 N, scale_stride]
    out,  # [pairs, N]: in the order of `order` when gated, else by pair
    order, counts, weights, squares,
    N, K, scale_stride, square_tiles, eps,
    STORED: tl.constexpr, SCALE_ROWS: tl.constexpr, SCALE_COLUMNS: tl.constexpr, GATED: tl.constexpr,
    NORMED: tl.constexpr, PICKED: tl.constexpr, EXPERTS: tl.constexpr, E: tl.constexpr,
    SQUARES: tl.constexpr, SQUARE_ROWS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    FAST: tl.constexpr = PDL and x.dtype.element_ty == tl.bfloat16
    # Which expert this tile belongs to: experts follow each other, each with as many tiles as its pairs fill.
    e = tl.arange(0, E)
    count = tl.load(counts + e, mask=e < EXPERTS, other=0)
    tiles = (count + BLOCK_M - 1) // BLOCK_M
    tiles_to = tl.cumsum(tiles, axis=0)
    tile = tl.program_id(1)
    expert = tl.sum((tiles_to <= tile).to(tl.int32), axis=0)
    if expert >= EXPERTS:
        return
    here = e == expert
    first_tile = tl.sum(tl.where(here, tiles_to - tiles, 0), axis=0)
    start = tl.sum(tl.where(e < expert, count, 0), axis=0)
    size = tl.sum(tl.where(here, count, 0), axis=0)
    at = (tile - first_tile) * BLOCK_M + tl.arange(0, BLOCK_M)
    live = at < size
    place = start + at
    pair = tl.load(order + place, mask=live, other=0)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    if GATED:
        source = x + (pair // PICKED).to(tl.int64) * K
        first_row = expert.to(tl.int64) * 2 * N
    else:
        source = x + place.to(tl.int64) * K
        first_row = expert.to(tl.int64) * N
    width = K // 2 if STORED == "mxfp4" else K
    row_of_weight = weight + (first_row + n)[:, None] * width
    row_of_up = row_of_weight + tl.cast(N, tl.int64) * width
    # The weight stands left: its many rows fill the tensor cores' longer side, and it goes there as it is unpacked.
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    total_up = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for begin_k in range(0, K, BLOCK_K):
        inside, wanted = live[None, :], (n < N)[:, None]
        if STORED == "mxfp4":
            # Two values a byte, of two runs of 16: the columns of x are taken in two halves as well.
            pairs = begin_k // 2 + tl.arange(0, BLOCK_K // 2)
            run = tl.arange(0, BLOCK_K // 2) // 16 * 32 + tl.arange(0, BLOCK_K // 2) % 16
            group = begin_k // 32 + tl.arange(0, BLOCK_K // 32)
            scaled = wanted
            if not EVEN_K:
                inside = inside & (pairs < width)[:, None]
                scaled = wanted & (group < scale_stride)[None, :]
                wanted = wanted & (pairs < width)[None, :]
            first = tl.load(source[None, :] + (begin_k + run)[:, None], mask=inside, other=0.0)
            second = tl.load(source[None, :] + (begin_k + 16 + run)[:, None], mask=inside, other=0.0)
            at_scale = scales + (first_row + n)[:, None] * scale_stride + group[None, :]
            packed = tl.load(row_of_weight + pairs[None, :], mask=wanted, other=0)
            factor = tl.load(at_scale, mask=scaled, other=0)
            low, high = unpack_pairs(packed, factor, BLOCK_N, BLOCK_K, source.dtype.element_ty, FAST)
            total = tl.dot(low, first, total, input_precision=PRECISION)
            total = tl.dot(high, second, total, input_precision=PRECISION)
            if GATED:
                packed = tl.load(row_of_up + pairs[None, :], mask=wanted, other=0)
                factor = tl.load(at_scale + tl.cast(N, tl.int64) * scale_stride, mask=scaled, other=0)
                low, high = unpack_pairs(packed, factor, BLOCK_N, BLOCK_K, source.dtype.element_ty, FAST)
                total_up = tl.dot(low, first, total_up, input_precision=PRECISION)
                total_up = tl.dot(high, second, total_up, input_precision=PRECISION)
        else:
            c = begin_k + k
            if not EVEN_K:
                inside = inside & (c < K)[:, None]
                wanted = wanted & (c < K)[None, :]
            block = tl.load(source[None, :] + c[:, None], mask=inside, other=0.0)
            w = tl.load(row_of_weight + c[None, :], mask=wanted, other=0.0)
            if STORED == "fp8":
                at_scale = scales + (first_row + n) // SCALE_ROWS * scale_stride + begin_k // SCALE_COLUMNS
                s = tl.load(at_scale, mask=n < N, other=0.0)
                total += tl.dot(unpack(w, block.dtype, FAST), block, input_precision=PRECISION) * s[:, None]
            else:
                total = tl.dot(w, block, total, input_precision=PRECISION)
            if GATED:
                up = tl.load(row_of_up + c[None, :], mask=wanted, other=0.0)
                if STORED == "fp8":
                    s = tl.load(at_scale + tl.cast(N, tl.int64) // SCALE_ROWS * scale_stride, mask=n < N, other=0.0)
                    total_up += tl.dot(unpack(up, block.dtype, FAST), block, input_precision=PRECISION) * s[:, None]
                else:
                    total_up = tl.dot(up, block, total_up, input_precision=PRECISION)
    if NORMED:
        t = tl.arange(0, SQUARES)
        row = pair // PICKED
        sums = tl.load(
            squares + t[:, None] * SQUARE_ROWS + row[None, :],
            mask=(t < square_tiles)[:, None] & live[None, :],
            other=0.0,
        )
        factor = tl.rsqrt(tl.sum(sums, axis=0) / K + eps)
        total *= factor[None, :]
        total_up *= factor[None, :]
    mask = live[None, :] & (n < N)[:, None]
    if GATED:
        y = total * tl.sigmoid(total) * total_up
        to = out + place.to(tl.int64)[None, :] * N + n[:, None]
    else:
        y = total * tl.load(weights + pair, mask=live, other=0.0)[None, :]
        to = out + pair.to(tl.int64)[None, :] * N + n[:, None]
    tl.store(to, y.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=ONE_FOR_ALL)
def _gather(
    parts, ids, x, tap, norm, scaled, squares, tap_stride, rows, hidden,
    PICKED: tl.constexpr, EXPERTS: tl.constexpr, TAP: tl.constexpr, FOLLOWED: tl.constexpr, SQUARE_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (m < rows)[:, None] & (d < hidden)[None, :]
    at = m.to(tl.int64)[:, None] * hidden + d[None, :]
    total = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    for place in tl.static_range(PICKED):
        pair = m * PICKED + place
        taken = tl.load(ids + pair, mask=m < rows, other=EXPERTS) < EXPERTS
        part = parts + pair.to(tl.int64)[:, None] * hidden + d[None, :]
        total += tl.load(part, mask=mask & taken[:, None], other=0.0).to(tl.float32)
    y = total.to(x.dtype.element_ty)
    tl.store(x + at, y, mask=mask)
    if TAP:
        tl.store(tap + m.to(tl.int64)[:, None] * tap_stride + d[None, :], y, mask=mask)
    if FOLLOWED:
        wide = tl.where(mask, y.to(tl.float32), 0.0)
        g = tl.load(norm + d, mask=d < hidden, other=0.0).to(tl.float32)
        tl.store(scaled + at, (wide * g[None, :]).to(x.dtype.element_ty), mask=mask)
        tl.store(squares + tl.program_id(0) * SQUARE_ROWS + m, tl.sum(wide * wide, axis=1), mask=m < SQUARE_ROWS)


def route(
    logits: Tensor, count: Tensor, spec: MixtureSpec, routing: Routing, choice_bias: Tensor | None = None
) -> None:
    """Fills `routing` for the first `count` ([1] int64) rows of the router's logits [rows, num_experts].

    choice_bias: fp32 [num_experts], of a sigmoid router.
    """
    rows, experts = logits.shape
    few = rows <= MOST_ROWS
    # A warp has whole rows, so that a row's sums run in one order however many rows a block has.
    together = (8 if rows <= 8 else MOST_ROWS) if few else 1
    _pick[(triton.cdiv(rows, together),)](
        logits, choice_bias if choice_bias is not None else logits, count, *routing, spec.scale, rows,
        EXPERTS=experts, PICKED=spec.experts_per_row, NORMALIZED=spec.normalized, SIGMOID=spec.router == "sigmoid",
        ORDERED=few, M=together, E=triton.next_power_of_2(experts), P=triton.next_power_of_2(spec.experts_per_row),
        num_warps=8 if few else 1, **launch_options(),
    )  # fmt: skip
    if not few:
        routing.order.copy_(routing.ids.argsort(stable=True))
        one = torch.ones_like(routing.ids)
        counted = torch.zeros(experts + 1, dtype=torch.int32, device=logits.device)
        routing.counts.copy_(counted.index_add_(0, routing.ids, one)[:experts])


def mix(
    x: Tensor, normed: HalfNormed | Tensor, experts: Experts | Fp8Experts | Mxfp4Experts, routing: Routing,
    spec: MixtureSpec, gated: Tensor, parts: Tensor, tap: Tensor | None = None,
    followed_by: tuple[Tensor, HalfNormed] | None = None,
) -> None:  # fmt: skip
    """x += the weighted sum of each row's experts over its norm.

    x: [rows, hidden]; normed: the same rows normed, or half-normed. experts: read as they are stored.
    gated: [pairs, ffn] and parts: [pairs, hidden] are room for what lies between. tap, followed_by: as in
    `skinny_linear`.
    """
    rows, hidden = x.shape
    half = normed if isinstance(normed, HalfNormed) else None
    few = rows <= MOST_ROWS
    gate_up, down = _stored(experts)
    _product(half.values if half else normed, gate_up, gated, routing, spec, half, few)
    _product(gated, down, parts, routing, spec, None, few)
    norm, after = followed_by or (x, None)
    columns = triton.next_power_of_2(triton.cdiv(hidden, after.squares.shape[0])) if after else 128
    _gather[(triton.cdiv(hidden, columns), triton.cdiv(rows, MOST_ROWS))](
        parts, routing.ids, x, tap if tap is not None else x, norm, after.values if after else x,
        after.squares if after else x, tap.stride(0) if tap is not None else 0, rows, hidden,
        PICKED=spec.experts_per_row, EXPERTS=spec.num_experts, TAP=tap is not None, FOLLOWED=after is not None,
        SQUARE_ROWS=MOST_ROWS, BLOCK_M=MOST_ROWS, BLOCK=columns, **launch_options(),
    )  # fmt: skip


class _Weight(NamedTuple):
    """A stack of experts' weights in some form; block: rows and columns that share a scale, of FP8."""

    values: Tensor
    scales: Tensor | None = None
    form: str = "plain"
    block: tuple[int, int] = (0, 0)


def _stored(experts: Experts | Fp8Experts | Mxfp4Experts) -> tuple[_Weight, _Weight]:
    gate_up, down = experts.gate_up_proj, experts.down_proj
    if isinstance(experts, Experts):
        return _Weight(gate_up), _Weight(down)
    form, block = ("fp8", experts.block) if isinstance(experts, Fp8Experts) else ("mxfp4", (1, MXFP4_GROUP))
    return _Weight(gate_up, experts.gate_up_scales, form, block), _Weight(down, experts.down_scales, form, block)


_CHUNK = Tiling(64, 64, 4, 3)


def _tiling(gated: bool) -> Tiling:
    """Of the few rows of a block: 16 columns or 32 a warp, since fewer would have warps unpack the same weights."""
    return Tiling(32 if gated else 64, 128, 2, 4)


def _product(
    x: Tensor | HalfNormed, weight: _Weight, out: Tensor, routing: Routing, spec: MixtureSpec, half: HalfNormed | None,
    few: bool,
) -> None:  # fmt: skip
    assert isinstance(x, Tensor)
    columns, channels = out.shape[1], x.shape[1]
    gated = weight.values.shape[1] != columns
    pairs = out.shape[0]
    t = _tiling(gated) if few else _CHUNK
    rows = pairs // spec.experts_per_row
    block_m = (8 if rows <= 8 else MOST_ROWS) if few else 64
    block_n, step = t.columns, t.channels * 2 // x.dtype.itemsize
    if weight.form == "fp8":  # a tile lies within one column of blocks
        step = math.gcd(step, weight.block[1])
    while channels % step and step > (32 if weight.form == "mxfp4" else 16):
        step //= 2
    scales = weight.scales if weight.scales is not None else x
    # Every expert that has pairs has a tile of its own that may not be full.
    tiles = min(pairs, triton.cdiv(pairs, block_m) + spec.num_experts)
    _experts[(triton.cdiv(columns, block_n), tiles)](
        x, weight.values, scales, out, routing.order, routing.counts, routing.weights,
        half.squares if half else routing.weights, columns, channels,
        scales.stride(1) if weight.scales is not None else 0, half.squares.shape[0] if half else 0,
        half.eps if half else 0.0, STORED=weight.form, SCALE_ROWS=weight.block[0], SCALE_COLUMNS=weight.block[1],
        GATED=gated, NORMED=half is not None, PICKED=spec.experts_per_row, EXPERTS=spec.num_experts,
        E=triton.next_power_of_2(spec.num_experts),
        SQUARES=triton.next_power_of_2(half.squares.shape[0]) if half else 1,
        SQUARE_ROWS=MOST_ROWS, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=step,
        EVEN_N=columns % block_n == 0, EVEN_K=channels % step == 0,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32", num_warps=t.warps, num_stages=t.stages,
        **launch_options(),
    )  # fmt: skip
