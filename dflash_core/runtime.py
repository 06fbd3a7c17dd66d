"""Which decoder runs a pair: captured graphs where the device and the pair allow it, the plain round elsewhere."""

from __future__ import annotations

import torch

from dflash_core.block_decoder import BlockDecoder
from dflash_core.draft import Draft
from dflash_core.generic_target import GenericTarget
from dflash_core.plain_path import plain_on_gpu
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
    if isinstance(target, GenericTarget):
        return "the target runs by its own library"
    in_fp8 = any(parameter.dtype == torch.float8_e4m3fn for parameter in target.parameters())
    if in_fp8 and torch.cuda.get_device_capability(target.device) < (8, 9):
        return "the target's weights are FP8, which the device does not read (compute capability 8.9 does)"
    block_size = draft.spec.block_size if draft else None
    return plain_on_gpu(torch.cuda.get_device_capability(target.device), block_size)
