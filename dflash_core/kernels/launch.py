"""How kernels are launched: with programmatic dependent launch where the device has it.

Hopper starts the next kernel of a stream while the last one drains (`gdc_launch_dependents`); `gdc_wait` then holds it
until everything before it is written. Every kernel here waits before its first read of what another one wrote.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@functools.cache
def dependent_launch() -> bool:
    """Whether this device overlaps dependent kernels (compute capability 9.0 and later)."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


ONE_FOR_ALL = ("layer", "rows")
"""Arguments that say where and how much, and nothing about how: compiled for each of their values, as Triton does for 1
and for multiples of 16, the same kernel would be compiled three times at every first start."""


def launch_options() -> dict[str, Any]:
    """Options of every launch; kernels take PDL as a constant."""
    return {"PDL": True, "launch_pdl": True} if dependent_launch() else {"PDL": False}


@triton.jit
def begin(PDL: tl.constexpr):
    """First statement of a kernel that reads what an earlier kernel wrote."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def prefetch(weight, rows, stride, CHANNELS: tl.constexpr):
    """Asks for the first CHANNELS (2 bytes each) of these rows of a weight, which no kernel writes, to be near."""
    line = tl.arange(0, CHANNELS // 64) * 64
    at = weight + rows.to(tl.int64)[:, None] * stride + line[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64, bitcast=True)], tl.int32, False, 1
    )
