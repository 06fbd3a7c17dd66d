"""The end of a round on the device: the target's tokens, how many drafted ones they confirm, the next anchor."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dflash_core.kernels.launch import begin, launch_options
from dflash_core.kernels.skinny_linear import HalfNormed


@triton.jit
def _embed(
    tokens, table, mask_embedding, out, norm, scaled, squares, hidden,
    MASKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    row = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = table + tl.load(tokens + row) * hidden
    if MASKED:
        if row > 0:
            source = mask_embedding
    x = tl.load(source + d, mask=d < hidden, other=0.0)
    at = row.to(tl.int64) * hidden + d
    tl.store(out + at, x, mask=d < hidden)
    wide = x.to(tl.float32)
    g = tl.load(norm + d, mask=d < hidden, other=0.0).to(tl.float32)
    tl.store(scaled + at, (wide * g).to(out.dtype.element_ty), mask=d < hidden)
    if row < BLOCK_M:
        tl.store(squares + tl.program_id(1) * BLOCK_M + row, tl.sum(wide * wide, axis=0))


def embed(
    tokens: Tensor, table: Tensor, out: Tensor, norm: Tensor, after: HalfNormed, mask_embedding: Tensor | None = None
) -> None:
    """out[i] = table[tokens[i]]; with a mask embedding, every row but the first is that vector.

    tokens: [rows] int64; table: [vocab, hidden]; out: [rows, hidden]. norm: [hidden], the weight of the norm that
    follows, whose first half goes to `after` (its squares are those of the first MOST_ROWS rows).
    """
    rows, hidden = out.shape
    block = triton.next_power_of_2(triton.cdiv(hidden, after.squares.shape[0]))
    masks = table if mask_embedding is None else mask_embedding
    _embed[(rows, after.squares.shape[0])](
        tokens, table, masks, out, norm, after.values, after.squares, hidden, MASKED=mask_embedding is not None,
        BLOCK_M=after.squares.shape[1], BLOCK=block, **launch_options(),
    )  # fmt: skip


@triton.jit
def _argmax_of_tiles(
    best, indices, chosen, tiles, skipped, BLOCK_M: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    begin(PDL)
    row = tl.program_id(0) + skipped
    highest = float("-inf")
    token = tl.full([], 0, tl.int32)
    for start in range(0, tiles, BLOCK):
        t = start + tl.arange(0, BLOCK)
        values = tl.load(best + t * BLOCK_M + row, mask=t < tiles, other=float("-inf"))
        value, at = tl.max(values, axis=0, return_indices=True, return_indices_tie_break_left=True)
        if value > highest:
            highest = value
            token = tl.load(indices + (start + at) * BLOCK_M + row)
    tl.store(chosen + row, token.to(tl.int64))


def argmax_of_tiles(best: Tensor, indices: Tensor, chosen: Tensor, skipped: int = 0) -> None:
    """chosen[r] = the token with the largest logit of row r, of equals the first; the first `skipped` rows are left.

    best: fp32, indices: int32, both [tiles, rows of a tile] as `skinny_argmax` leaves them; chosen: [rows] int64.
    """
    tiles, block_m = best.shape
    block = min(1024, triton.next_power_of_2(tiles))
    _argmax_of_tiles[(chosen.shape[0] - skipped,)](
        best, indices, chosen, tiles, skipped, BLOCK_M=block_m, BLOCK=block, **launch_options()
    )


@triton.jit
def _accept(tokens, chosen, state, result, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    row = tl.arange(0, BLOCK)
    confirmed = tl.load(chosen + row, mask=row < WIDTH - 1, other=-1)
    drafted = tl.load(tokens + row + 1, mask=row < WIDTH - 1, other=-2)
    # The first row whose drafted token is not the target's own: every row before it is right.
    accepted = tl.min(tl.where(confirmed == drafted, BLOCK, row), axis=0)
    tl.store(result, accepted.to(tl.int64))
    tl.store(result + 1 + row, tl.load(chosen + row, mask=row < WIDTH, other=0), mask=row < WIDTH)
    tl.store(state, tl.load(state) + accepted + 1)
    tl.store(tokens, tl.load(chosen + accepted))


def accept(tokens: Tensor, chosen: Tensor, state: Tensor, result: Tensor) -> None:
    """Keeps the longest right prefix (see `dflash_core.verification`) and moves the session on.

    tokens: [>= w] int64, the anchor and the drafted tokens; tokens[0] becomes the next anchor. chosen: [w] int64.
    state[0], the session's length, grows by accepted + 1. result: [1 + w] int64, accepted and the chosen tokens.
    """
    width = chosen.shape[0]
    block = max(2, triton.next_power_of_2(width))
    _accept[(1,)](tokens, chosen, state, result, WIDTH=width, BLOCK=block, num_warps=1, **launch_options())
