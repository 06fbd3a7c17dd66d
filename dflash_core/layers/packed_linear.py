"""Linear maps whose weights are int8 or int4, for CPUs: reading weights is what a product of few rows costs.

Activations stay in the model's type and are rounded to bf16 on the way into the product: torch's packed kernels are
quick for bf16 rows only (for fp32 rows they were measured a hundred times slower here). A row's result does not depend
on how many rows are computed at once, so that text is the same with and without a draft.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from dflash_core.layers.linear import Linear
from dflash_core.target import Target

Packing = Literal["int8", "int4"]

GROUP = 32
"""Columns that share a scale and an offset in int4: the layout of GGUF's Q4_1, so weights from there hardly change."""

_ROWS_OF_INT4 = 16
"""The int4 kernel takes rows of the weight by so many."""


class PackedInt8(nn.Module):
    """y = x W^T with W in int8 and one scale for each of its rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        wide = weight.float()
        scales = wide.abs().amax(dim=1).clamp(min=1e-12) / 127
        self.weight = _constant((wide / scales[:, None]).round().to(torch.int8))
        self.scales = _constant(scales.to(torch.bfloat16))
        self.bias = None if bias is None else _constant(bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] -> [..., out]."""
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
        y = torch._weight_int8pack_mm(rows, self.weight, self.scales).to(x.dtype).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias

    def unpacked(self) -> Tensor:
        """The weight that this computes with, [out, in] in fp32."""
        return self.weight.float() * self.scales.float()[:, None]


class PackedInt4(nn.Module):
    """y = x W^T with W in int4, a scale and an offset for every `GROUP` columns of a row."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        out, columns = weight.shape
        groups = weight.float().view(out, columns // GROUP, GROUP)
        low, high = groups.amin(dim=-1), groups.amax(dim=-1)
        scales = ((high - low) / 15).clamp(min=1e-12)
        numbers = ((groups - low[..., None]) / scales[..., None]).round().clamp(0, 15).to(torch.int32)
        # The kernel computes (number - 8) * scale + offset.
        parameters = torch.stack([scales, low + 8 * scales], dim=-1).transpose(0, 1).contiguous()
        self.parameters_of_groups = _constant(parameters.to(torch.bfloat16))  # [in / GROUP, out, 2]
        packed = torch._convert_weight_to_int4pack_for_cpu(numbers.view(out, columns).contiguous(), 1)
        self.weight = _constant(packed)
        self.out_features = out
        self.bias = None if bias is None else _constant(bias.detach())

    @staticmethod
    def takes(weight: Tensor) -> bool:
        return weight.shape[1] % GROUP == 0 and weight.shape[0] % _ROWS_OF_INT4 == 0

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] -> [..., out]."""
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
        y = torch._weight_int4pack_mm_for_cpu(rows, self.weight, GROUP, self.parameters_of_groups)
        y = y.to(x.dtype).view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias


def pack_target(target: Target, packing: Packing) -> None:
    """Packs the linear maps of a target's layers and its head, in place; its embedding keeps its type.

    A map whose sizes the int4 kernel does not take becomes int8. Mixtures of experts stay as they are.
    """
    for module in list(target.layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Linear):
                setattr(module, name, _packed(child.weight, child.bias, packing))
    head = target.embed_tokens if target.lm_head is None else target.lm_head.weight
    target.lm_head = _packed(head, None, packing)  # type: ignore[assignment]


def precision(target: Target) -> str:
    """What a target's products are computed from: "int8" or "int4" where it is packed, else its type."""
    head = getattr(target, "lm_head", None)  # a target that transformers computes has none of ours
    if isinstance(head, PackedInt4):
        return "int4"
    return "int8" if isinstance(head, PackedInt8) else str(target.dtype).removeprefix("torch.")


def _packed(weight: Tensor, bias: Tensor | None, packing: Packing) -> PackedInt8 | PackedInt4:
    return PackedInt4(weight, bias) if packing == "int4" and PackedInt4.takes(weight) else PackedInt8(weight, bias)


def _constant(tensor: Tensor) -> nn.Parameter:
    # A parameter, so that it counts as a weight where memory is counted.
    return nn.Parameter(tensor, requires_grad=False)
