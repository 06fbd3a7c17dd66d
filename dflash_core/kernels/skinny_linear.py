"""y = x W^T for the few rows of a block: each weight is read once, at memory speed.

What stands around the product in a decoder layer rides along: bias, gate, residual, the head's argmax, and the norm.
An RMSNorm is done in two halves, so that no program has to see a whole row first: the product that makes the row also
stores it times the norm's weight, with the sums of squares of its columns; the product that takes the row in divides by
the root of their mean at its end. A block of 8 rows costs what one row costs, since the weights decide.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dflash_core.kernels import MOST_ROWS
from dflash_core.kernels.launch import ONE_FOR_ALL, begin, launch_options, prefetch
from dflash_core.kernels.stored import unpack

_EXCHANGED = 1 << 22
"""Floats that the programs of one product may hand to each other: MOST_ROWS x columns x parts of the widest."""


class HalfNormed(NamedTuple):
    """Rows of an RMSNorm over `size` channels, not yet divided by their root mean square.

    values: [rows, size], the rows times the norm's weight. squares: fp32 [tiles, MOST_ROWS], sums of squares of the
    rows themselves, tile by tile; rows / rms = values * rsqrt(squares.sum(0) / size + eps).
    """

    values: Tensor
    squares: Tensor
    eps: float


class BlockScales(NamedTuple):
    """Scales of a weight stored as FP8: values fp32 [rows of the weight / rows, ceil(its columns / columns)]."""

    values: Tensor
    rows: int
    columns: int


class Tiling(NamedTuple):
    """How a product is cut.

    columns, channels: of one tile of the weight. warps: of a program. stages: tiles in flight. ahead: channels of its
    weight that a program asks for before it may read what the kernel before it wrote. parts: programs that share the
    channels of one tile of columns; the last of them to arrive adds all up, always in the same order.
    """

    columns: int
    channels: int
    warps: int
    stages: int
    ahead: int = 0
    parts: int = 1


def tiling(columns: int, channels: int, gated: bool = False) -> Tiling:
    """Measured in place on an H200 at the shapes of an 8 B model: enough bytes in flight on every processor.

    The columns of a tile depend on `columns` alone, so that two products that fill the same row agree on its tiles.
    """
    if gated:
        return _dividing(Tiling(32, 128, 4, 4), channels)
    if columns < 6144:
        return _dividing(Tiling(32, 256, 4, 6), channels)
    return _dividing(Tiling(64, 256, 4, 3 if columns >= 65536 else 4), channels)


def router_tiling(channels: int) -> Tiling:
    """A router has few columns and, in fp32, wide rows: were its channels not shared out, few processors would read."""
    return _dividing(Tiling(16, 128, 2, 4, parts=8), channels)


def _dividing(t: Tiling, channels: int) -> Tiling:
    """The same with tiles that divide the channels, where a power of two does."""
    step = t.channels
    while channels % step and step > 16:
        step //= 2
    return t._replace(channels=step)


@triton.jit(do_not_specialize=ONE_FOR_ALL)
def _skinny_linear(
    x,  # [rows, K]
    weight,  # [N, K], gate rows first when GATED: [2 N, K]
    out,  # [rows, N], or the largest value of each tile [tiles, BLOCK_M] when ARGMAX
    indices,  # [tiles, BLOCK_M], only when ARGMAX
    bias,  # [N]
    squares,  # [square_tiles, BLOCK_M], of x
    residual,  # [rows, N]
    tap,  # [rows, N], a second copy of out
    norm,  # [N], of the norm that follows
    scaled,  # [rows, N], out times norm
    squares_out,  # [tiles, BLOCK_M], of out
    scales,  # fp32 [rows of weight / SCALE_ROWS, scale_stride], of weights stored as FP8
    parts,  # fp32 [tiles, PARTS, 1 or 2, BLOCK_M, BLOCK_N]
    arrivals,  # int32 [tiles], zeros before and after
    tap_stride,
    scale_stride,
    rows,
    N,
    K,
    square_tiles,
    eps,
    BIAS: tl.constexpr,
    NORMED: tl.constexpr,
    RESIDUAL: tl.constexpr,
    TAP: tl.constexpr,
    FOLLOWED: tl.constexpr,
    GATED: tl.constexpr,
    ARGMAX: tl.constexpr,
    SCALE_ROWS: tl.constexpr,
    SCALE_COLUMNS: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    SQUARES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    AHEAD: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    FAST: tl.constexpr = PDL and x.dtype.element_ty == tl.bfloat16
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.arange(0, BLOCK_M)
    first = 0
    last = K
    if PARTS > 1:
        share = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS) * BLOCK_K
        first = tl.program_id(1) * share
        last = tl.minimum(first + share, K)
    k = tl.arange(0, BLOCK_K)
    row_of_weight = weight + n.to(tl.int64)[None, :] * K
    row_of_up = row_of_weight + tl.cast(N, tl.int64) * K
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    total_up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if AHEAD > 0:
        prefetch(weight + first, n, K, AHEAD)
        if GATED:
            prefetch(weight + tl.cast(N, tl.int64) * K + first, n, K, AHEAD)
    begin(PDL)
    for start in range(first, last, BLOCK_K):
        at = start + k
        inside = m[:, None] < rows
        wanted = (n[None, :] < N) & (at[:, None] < K)
        if not EVEN_K:
            inside = inside & (at[None, :] < K)
        block = tl.load(x + m[:, None] * K + at[None, :], mask=inside, other=0.0)
        if SCALE_ROWS == 0:  # the weight may be wider than its rows: a router's
            block = block.to(weight.dtype.element_ty)
        if EVEN_K and EVEN_N:
            w = tl.load(row_of_weight + at[:, None], eviction_policy="evict_first")
        else:
            w = tl.load(row_of_weight + at[:, None], mask=wanted, other=0.0, eviction_policy="evict_first")
        if SCALE_ROWS == 0:
            total = tl.dot(block, w, total, input_precision=PRECISION)
        else:
            s = tl.load(scales + n // SCALE_ROWS * scale_stride + start // SCALE_COLUMNS, mask=n < N, other=0.0)
            total += tl.dot(block, unpack(w, block.dtype, FAST), input_precision=PRECISION) * s[None, :]
        if GATED:
            if EVEN_K and EVEN_N:
                up = tl.load(row_of_up + at[:, None], eviction_policy="evict_first")
            else:
                up = tl.load(row_of_up + at[:, None], mask=wanted, other=0.0, eviction_policy="evict_first")
            if SCALE_ROWS == 0:
                total_up = tl.dot(block, up, total_up, input_precision=PRECISION)
            else:
                at_scale = (N + n) // SCALE_ROWS * scale_stride + start // SCALE_COLUMNS
                s = tl.load(scales + at_scale, mask=n < N, other=0.0)
                total_up += tl.dot(block, unpack(up, block.dtype, FAST), input_precision=PRECISION) * s[None, :]
    if PARTS > 1:
        tile = tl.program_id(0)
        cell = m[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        kinds: tl.constexpr = 2 if GATED else 1
        size: tl.constexpr = BLOCK_M * BLOCK_N
        mine = parts + ((tile * PARTS + tl.program_id(1)) * kinds) * size
        tl.store(mine + cell, total)
        if GATED:
            tl.store(mine + size + cell, total_up)
        tl.debug_barrier()
        if tl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu") != PARTS - 1:
            return
        tl.store(arrivals + tile, 0)
        total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        total_up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for part in tl.static_range(PARTS):
            theirs = parts + ((tile * PARTS + part) * kinds) * size
            total += tl.load(theirs + cell, cache_modifier=".cg")
            if GATED:
                total_up += tl.load(theirs + size + cell, cache_modifier=".cg")
    if NORMED:
        t = tl.arange(0, SQUARES)
        tiles = tl.load(squares + t[:, None] * BLOCK_M + m[None, :], mask=t[:, None] < square_tiles, other=0.0)
        factor = tl.rsqrt(tl.sum(tiles, axis=0) / K + eps)
        total *= factor[:, None]
        total_up *= factor[:, None]
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if GATED:
        total = total * tl.sigmoid(total) * total_up
    at_tile = tl.program_id(0) * BLOCK_M + m
    if ARGMAX:
        total = tl.where(n[None, :] < N, total, float("-inf"))
        best, index = tl.max(total, axis=1, return_indices=True, return_indices_tie_break_left=True)
        tl.store(out + at_tile, best)
        tl.store(indices + at_tile, index + tl.program_id(0) * BLOCK_N)
    else:
        inside = (m[:, None] < rows) & (n[None, :] < N)
        at_out = m[:, None] * N + n[None, :]
        if RESIDUAL:
            total += tl.load(residual + at_out, mask=inside, other=0.0).to(tl.float32)
        y = total.to(out.dtype.element_ty)
        tl.store(out + at_out, y, mask=inside)
        if TAP:
            tl.store(tap + m[:, None] * tap_stride + n[None, :], y, mask=inside)
        if FOLLOWED:
            # Of the value as stored: the norm that follows must see what any other reader sees.
            wide = tl.where(inside, y.to(tl.float32), 0.0)
            g = tl.load(norm + n, mask=n < N, other=0.0).to(tl.float32)
            tl.store(scaled + at_out, (wide * g[None, :]).to(out.dtype.element_ty), mask=inside)
            tl.store(squares_out + at_tile, tl.sum(wide * wide, axis=1))


def skinny_linear(
    x: Tensor | HalfNormed,
    weight: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    tap: Tensor | None = None,
    gated: bool = False,
    followed_by: tuple[Tensor, HalfNormed] | None = None,
    scales: BlockScales | None = None,
    tiles: Tiling | None = None,
) -> None:
    """out = f(x W^T + bias) + residual, of at most MOST_ROWS rows.

    x: [rows, in], or half-normed; weight: [columns, in], or [2 columns, in] when gated (gate rows first,
    f = silu(gate) * up). out, residual: [rows, columns], may be the same tensor. tap: [rows, columns] of any row
    stride, receives a copy. scales: of a weight in FP8. followed_by: the weight [columns] of the norm over `out` and
    where its first half goes; `squares` there has `column_tiles(...)` tiles.
    """
    half = x if isinstance(x, HalfNormed) else None
    values = half.values if half else x
    assert isinstance(values, Tensor)
    rows, channels = values.shape
    columns = out.shape[1]
    t = tiles or _fitting(tiling(columns, channels, gated), weight.dtype, scales)
    norm, after = followed_by or (out, None)
    _skinny_linear[(triton.cdiv(columns, t.columns), t.parts)](
        values, weight, out, out, _or(bias, out), half.squares if half else out, _or(residual, out), _or(tap, out),
        norm,
        after.values if after else out, after.squares if after else out, scales.values if scales else out,
        *_exchange(out.device), tap.stride(0) if tap is not None else 0, scales.values.stride(0) if scales else 0,
        rows, columns, channels, half.squares.shape[0] if half else 0, half.eps if half else 0.0,
        BIAS=bias is not None, NORMED=half is not None, RESIDUAL=residual is not None, TAP=tap is not None,
        FOLLOWED=after is not None, GATED=gated, ARGMAX=False, SCALE_ROWS=scales.rows if scales else 0,
        SCALE_COLUMNS=scales.columns if scales else 0,
        **_blocks(t, half, columns, channels, values.dtype, weight.dtype),
    )  # fmt: skip


def column_tiles(columns: int) -> int:
    """How many tiles `skinny_linear` and `skinny_argmax` split this many columns into, whatever they are made from."""
    return triton.cdiv(columns, tiling(columns, MOST_ROWS).columns)


def skinny_argmax(x: HalfNormed, weight: Tensor, best: Tensor, indices: Tensor, tiles: Tiling | None = None) -> None:
    """The largest logit of every tile of the vocabulary and where it stands.

    x: [rows, hidden]; weight: [vocab, hidden]; best: fp32, indices: int32, both [column_tiles(...), MOST_ROWS].
    """
    rows, channels = x.values.shape
    columns = weight.shape[0]
    t = tiles or _fitting(tiling(columns, channels), weight.dtype)
    _skinny_linear[(triton.cdiv(columns, t.columns),)](
        x.values, weight, best, indices, best, x.squares, best, best, best, best, best, best, best, best, 0, 0, rows,
        columns, channels, x.squares.shape[0], x.eps, BIAS=False, NORMED=True, RESIDUAL=False, TAP=False,
        FOLLOWED=False, GATED=False, ARGMAX=True, SCALE_ROWS=0, SCALE_COLUMNS=0,
        **_blocks(t, x, columns, channels, x.values.dtype, weight.dtype),
    )  # fmt: skip


@functools.cache
def _exchange(device: torch.device) -> tuple[Tensor, Tensor]:
    """Room where programs that share a tile meet; one product runs at a time, so all use the same."""
    parts = torch.empty(_EXCHANGED, dtype=torch.float32, device=device)
    return parts, torch.zeros(_EXCHANGED >> 8, dtype=torch.int32, device=device)


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


def _fitting(t: Tiling, dtype: torch.dtype, scales: BlockScales | None = None) -> Tiling:
    """The tilings are for 2 bytes a value; wider ones take shorter tiles, since shared memory is as large as it is.

    A tile of FP8 lies within one column of its blocks.
    """
    if scales:
        return t._replace(channels=math.gcd(t.channels, scales.columns))
    return t if dtype.itemsize <= 2 else t._replace(channels=max(16, t.channels * 2 // dtype.itemsize))


def _blocks(
    t: Tiling, half: HalfNormed | None, columns: int, channels: int, dtype: torch.dtype, stored: torch.dtype
) -> dict[str, object]:
    return {
        "EVEN_N": columns % t.columns == 0,
        "EVEN_K": channels % t.channels == 0,
        "SQUARES": triton.next_power_of_2(half.squares.shape[0]) if half else 1,
        "BLOCK_M": MOST_ROWS,
        "BLOCK_N": t.columns,
        "BLOCK_K": t.channels,
        # Asked for ahead only where the kernel before may still run.
        "PARTS": t.parts,
        "AHEAD": t.ahead if launch_options()["PDL"] else 0,
        # Full fp32 products where the weights are fp32: the exact tests run in it.
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32x3" if stored == torch.float32 else "tf32",
        "num_warps": t.warps,
        "num_stages": t.stages,
        **launch_options(),
    }
