"""Which decoder runs a pair: captured graphs where the device and the pair allow it, the plain round elsewhere."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from dflash_core.block_decoder import BlockDecoder
from dflash_core.draft import Draft
from dflash_core.generic_target import GenericTarget
from dflash_core.kernels import MOST_ROWS
from dflash_core.target import Target


def decoder_for(target: Target, draft: Draft | None, context: int) -> BlockDecoder:
    """The quickest decoder for sessions of `context` positions; its `runtime` says which it is, and why."""
    reason = why_plain(target, draft)
    if reason is None:
        # Late: Triton is there only where CUDA is.
        from dflash_core.cuda_decoder import CudaDecoder

        return CudaDecoder(target, draft, context)
    decoder = BlockDecoder(target, draft)
    if target.device.type == "cuda":
        decoder.runtime = f"launched one by one: {reason}"
    return decoder


def why_plain(target: Target, draft: Draft | None) -> str | None:
    """Why graphs cannot be captured for this pair; None when they can."""
    if target.device.type != "cuda":
        return "not a CUDA device"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if torch.cuda.get_device_capability(target.device) < (8, 0):
        return "the device is older than compute capability 8.0"
    if draft and draft.spec.block_size > MOST_ROWS:
        return f"the draft's block has more than {MOST_ROWS} rows"
    if isinstance(target, GenericTarget):
        return "the target runs by its own library"
    return None
