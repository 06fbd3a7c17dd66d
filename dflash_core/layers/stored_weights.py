"""Weights computed with as they are stored: FP8 in blocks with a scale each, and MXFP4 for experts.

Nothing is unpacked ahead of use: a model of 300 GB fits because it stays as small as its checkpoint. Here a product
unpacks its weight first, which is right everywhere and quick nowhere; on a CUDA device kernels read the stored form.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dflash_core.errors import CheckpointError
from dflash_core.layers.linear import linear
from dflash_core.specs import MixtureSpec

MXFP4_GROUP = 32
"""Values of a row that share one scale (OCP microscaling formats 1.0)."""

STORED_TYPES = (torch.float8_e4m3fn, torch.uint8)
"""Types that a weight keeps when it is loaded, whatever the rest is cast to."""

_LARGEST_SCALE = 128

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def loaded_types(module: nn.Module, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """What each parameter is once it is loaded: stored forms as they are, what its owner calls `wide` fp32, the rest
    `dtype`."""
    wide = {f"{path}.{leaf}" for path, part in module.named_modules() for leaf in getattr(part, "wide", ())}
    return {
        name: parameter.dtype if parameter.dtype in STORED_TYPES else torch.float32 if name in wide else dtype
        for name, parameter in module.named_parameters()
    }


def unpack_fp8(weight: Tensor, scales: Tensor, block: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """weight: float8_e4m3fn [..., N, K]; scales: fp32 [..., N / rows, ceil(K / columns)] of blocks (rows, columns)."""
    rows, columns = block
    spread = scales.repeat_interleave(rows, dim=-2).repeat_interleave(columns, dim=-1)
    return (weight.float() * spread[..., : weight.shape[-1]]).to(dtype)


def unpack_mxfp4(packed: Tensor, scales: Tensor, dtype: torch.dtype, *, folded: bool = False) -> Tensor:
    """packed: uint8 [..., N, K / 2], the first of two values in the low half; scales: uint8 [..., N, K / 32].

    A scale s stands for 2 ** (s - 127). folded: as `fold_mxfp4` leaves it.
    """
    values = torch.tensor(_E2M1, device=packed.device)
    halves = values[(packed & 15).int()], values[(packed >> 4).int()]
    if folded:
        found = torch.cat([half.unflatten(-1, (-1, MXFP4_GROUP // 2)) for half in halves], dim=-1).flatten(-2)
    else:
        found = torch.stack(halves, dim=-1).flatten(-2)
    factors = torch.exp2(scales.float() - 127).repeat_interleave(MXFP4_GROUP, dim=-1)
    return (found * factors).to(dtype)


def fold_mxfp4(packed: Tensor) -> Tensor:
    """Published bytes hold values 2 i and 2 i + 1 of a row; these hold i and i + 16 of a group.

    So the low halves of a kernel's bytes belong to runs of the rows that they are multiplied with, and so do the high
    ones: it reads those rows in stretches, not every other value.
    packed: uint8 [..., N, K / 2].
    """
    groups = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2).unflatten(-1, (-1, MXFP4_GROUP))
    low, high = groups.chunk(2, dim=-1)
    return (low | high << 4).flatten(-2)


class Fp8Linear(nn.Module):
    """y = x W^T with W in FP8 and one scale for each block of it."""

    wide = ("scales",)

    def __init__(self, in_features: int, out_features: int, block: tuple[int, int]) -> None:
        """block: rows and columns that share a scale; rows must divide out_features."""
        super().__init__()
        rows, columns = self.block = block
        self.weight = _stored(out_features, in_features, dtype=torch.float8_e4m3fn)
        self.scales = _stored(out_features // rows, -(-in_features // columns), dtype=torch.float32)
        self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, unpack_fp8(self.weight, self.scales, self.block, x.dtype))


class Fp8Experts(nn.Module):
    """The stacked weights of a layer's experts in FP8."""

    wide = ("gate_up_scales", "down_scales")

    def __init__(self, hidden_size: int, spec: MixtureSpec, block: tuple[int, int]) -> None:
        super().__init__()
        rows, columns = self.block = block
        experts, ffn = spec.num_experts, spec.intermediate_size
        fp8 = torch.float8_e4m3fn
        self.gate_up_proj = _stored(experts, 2 * ffn, hidden_size, dtype=fp8)
        self.gate_up_scales = _stored(experts, 2 * ffn // rows, -(-hidden_size // columns), dtype=torch.float32)
        self.down_proj = _stored(experts, hidden_size, ffn, dtype=fp8)
        self.down_scales = _stored(experts, hidden_size // rows, -(-ffn // columns), dtype=torch.float32)

    def of(self, expert: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """One expert's weights: gate and up [2 * ffn, hidden], down [hidden, ffn]."""
        return (
            unpack_fp8(self.gate_up_proj[expert], self.gate_up_scales[expert], self.block, dtype),
            unpack_fp8(self.down_proj[expert], self.down_scales[expert], self.block, dtype),
        )


class Mxfp4Experts(nn.Module):
    """The stacked weights of a layer's experts in MXFP4: two values a byte, a scale for each 32 of a row."""

    folded = False
    """Whether `fold` was called."""

    def __init__(self, hidden_size: int, spec: MixtureSpec) -> None:
        super().__init__()
        experts, ffn = spec.num_experts, spec.intermediate_size
        self.gate_up_proj = _stored(experts, 2 * ffn, hidden_size // 2, dtype=torch.uint8)
        self.gate_up_scales = _stored(experts, 2 * ffn, hidden_size // MXFP4_GROUP, dtype=torch.uint8)
        self.down_proj = _stored(experts, hidden_size, ffn // 2, dtype=torch.uint8)
        self.down_scales = _stored(experts, hidden_size, ffn // MXFP4_GROUP, dtype=torch.uint8)

    def of(self, expert: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """One expert's weights: gate and up [2 * ffn, hidden], down [hidden, ffn]."""
        return (
            unpack_mxfp4(self.gate_up_proj[expert], self.gate_up_scales[expert], dtype, folded=self.folded),
            unpack_mxfp4(self.down_proj[expert], self.down_scales[expert], dtype, folded=self.folded),
        )

    @torch.inference_mode()
    def fold(self) -> None:
        """Puts the weights, where they lie, in the order in which kernels read them.

        Raises CheckpointError where a scale is beyond what they multiply with: no weight of a sane model is.
        """
        if self.folded:
            return
        for scales in (self.gate_up_scales, self.down_scales):
            if int(scales.max()) > _LARGEST_SCALE:
                raise CheckpointError("an MXFP4 scale is larger than 2: no expert's weights are of that size")
        for weight in (self.gate_up_proj, self.down_proj):
            for expert in weight.data:  # one at a time: all at once would need room for all of them again
                expert.copy_(fold_mxfp4(expert))
        self.folded = True


def _stored(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    # Parameters, so that they count as weights where memory is counted.
    return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)
