"""A weight stored as FP8 in the type of the library's products: for chunks of a prompt, where the products decide."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dflash_core.kernels.launch import begin, launch_options
from dflash_core.kernels.skinny_linear import BlockScales

_ROWS, _COLUMNS = 16, 512


@triton.jit
def _unpack_fp8(
    weight, scales, out, N, K, scale_stride, SCALE_ROWS: tl.constexpr, SCALE_COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin(PDL)
    n = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    known = (n < N)[:, None] & (k < K)[None, :]
    at = n.to(tl.int64)[:, None] * K + k[None, :]
    w = tl.load(weight + at, mask=known, other=0.0).to(tl.float32)
    at_scale = (n // SCALE_ROWS)[:, None] * scale_stride + (k // SCALE_COLUMNS)[None, :]
    s = tl.load(scales + at_scale, mask=known, other=0.0)
    tl.store(out + at, (w * s).to(out.dtype.element_ty), mask=known)


def unpack_fp8(weight: Tensor, scales: BlockScales, out: Tensor) -> None:
    """weight: float8_e4m3fn [N, K]; out: [N, K] in another type."""
    n, k = weight.shape
    _unpack_fp8[(triton.cdiv(k, _COLUMNS), triton.cdiv(n, _ROWS))](
        weight, scales.values, out, n, k, scales.values.stride(0), SCALE_ROWS=scales.rows,
        SCALE_COLUMNS=scales.columns, ROWS=_ROWS, COLUMNS=_COLUMNS, **launch_options(),
    )  # fmt: skip
