"""Linear maps whose weights are int8 or int4, for CPUs: reading weights is what a product of few rows costs.

Few rows go to torch's packed kernels, which take activations of bf16 only (for fp32 rows they were measured a hundred
times slower). There a row's result does not depend on how many rows are computed at once, so that text is the same
with and without a draft. Many rows, a prompt's, cost arithmetic instead: for them the weight is unpacked into room for
one map and multiplied in fp32, which was measured twice as quick.
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

FEW_ROWS = {"int8": 32, "int4": 64}
"""Rows up to which the packed kernels are taken, where they cost what unpacking does (measured). It must be more than
a block has, or its text would depend on its width."""

_ROWS_OF_INT4 = 16
"""The int4 kernel takes rows of the weight by so many."""

_CANDIDATES = 16
"""Tokens of a row whose logits are computed again from the whole weight."""


class Room:
    """Where one map's weight is unpacked, shared by all maps of a target: memory for the largest of them only."""

    def __init__(self) -> None:
        self._tensor = torch.empty(0)

    def take(self, rows: int, columns: int) -> Tensor:
        """[rows, columns] in fp32, with whatever was left in it."""
        if self._tensor.numel() < rows * columns:
            self._tensor = torch.empty(rows * columns)
        return self._tensor[: rows * columns].view(rows, columns)


class PackedInt8(nn.Module):
    """y = x W^T with W in int8 and one scale for each of its rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, room: Room | None = None) -> None:
        super().__init__()
        wide = weight.float()
        scales = wide.abs().amax(dim=1).clamp(min=1e-12) / 127
        self.weight = _constant((wide / scales[:, None]).round().to(torch.int8))
        self.scales = _constant(scales.to(torch.bfloat16))
        self.bias = None if bias is None else _constant(bias.detach())
        self.few_rows = FEW_ROWS["int8"]
        self._room = room or Room()

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] -> [..., out]."""
        rows = x.reshape(-1, x.shape[-1])
        if rows.shape[0] <= self.few_rows:
            y = torch._weight_int8pack_mm(rows.to(torch.bfloat16), self.weight, self.scales).to(x.dtype)
        else:
            whole = self._room.take(*self.weight.shape).copy_(self.weight)
            y = nn.functional.linear(rows.float(), whole).mul_(self.scales.float()).to(x.dtype)
        y = y.view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


class PackedInt4(nn.Module):
    """y = x W^T with W in int4, a scale and an offset for every `GROUP` columns of a row.

    The numbers are kept twice, as the kernel wants them and plainly: its layout differs by processor.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, room: Room | None = None) -> None:
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
        # For many rows, [out, in / GROUP, 1]: number * scale + offset, rounded as the kernel has them.
        self.scales, offsets = (
            _constant(t.contiguous()) for t in parameters.bfloat16().float().permute(2, 1, 0)[..., None]
        )
        self.offsets = _constant(offsets - 8 * self.scales)
        left, right = numbers.view(out, columns).to(torch.uint8).chunk(2, dim=1)
        self.numbers = _constant(left | right << 4)  # [out, in / 2]: column k and column k + in / 2
        self.out_features = out
        self.bias = None if bias is None else _constant(bias.detach())
        self.few_rows = FEW_ROWS["int4"]
        self._room = room or Room()

    @staticmethod
    def takes(weight: Tensor) -> bool:
        return weight.shape[1] % (2 * GROUP) == 0 and weight.shape[0] % _ROWS_OF_INT4 == 0

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in] -> [..., out]."""
        rows = x.reshape(-1, x.shape[-1])
        if rows.shape[0] <= self.few_rows:
            y = torch._weight_int4pack_mm_for_cpu(
                rows.to(torch.bfloat16), self.weight, GROUP, self.parameters_of_groups
            ).to(x.dtype)
        else:
            y = nn.functional.linear(rows.float(), self._unpacked()).to(x.dtype)
        y = y.view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def _unpacked(self) -> Tensor:
        """The weight that this computes with, [out, in] in fp32, good until the next map needs the room."""
        half = self.numbers.shape[1]
        whole = self._room.take(self.out_features, 2 * half)
        whole[:, :half].copy_(self.numbers & 15)
        whole[:, half:].copy_(self.numbers >> 4)
        whole.view(self.out_features, -1, GROUP).mul_(self.scales).add_(self.offsets)
        return whole


class PackedHead(nn.Module):
    """A head in int8 whose best tokens are weighed again by its whole weight.

    The packed product rounds a logit to 8 bits, so that the best tokens often come out equal; those few rows of the
    whole weight, which is there for the embedding anyway where the two are tied, put them in their true order.
    """

    def __init__(self, weight: Tensor, room: Room | None = None) -> None:
        super().__init__()
        self.whole = weight
        self.packed = PackedInt8(weight, None, room)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., hidden] -> [..., vocab]."""
        logits = self.packed(x)
        best = logits.topk(min(_CANDIDATES, logits.shape[-1]), dim=-1).indices
        # Products and sums of a row by itself: as everywhere here, its neighbours change nothing.
        exact = (nn.functional.embedding(best, self.whole) * x[..., None, :]).sum(dim=-1)
        return logits.scatter(-1, best, exact)


def pack_target(target: Target, packing: Packing) -> None:
    """Packs the linear maps of a target's layers and its head, in place; its embedding keeps its type.

    A map whose sizes the int4 kernel does not take becomes int8, as every head does. Mixtures of experts stay as they
    are.
    """
    room = Room()
    for module in list(target.layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Linear):
                setattr(module, name, _packed(child.weight, child.bias, packing, room))
    head = target.embed_tokens if target.lm_head is None else target.lm_head.weight
    target.lm_head = PackedHead(head, room)  # type: ignore[assignment]


def is_packed(target: Target) -> bool:
    """Whether a target's linear maps are packed."""
    # A target that transformers computes has no head of ours.
    return isinstance(getattr(target, "lm_head", None), PackedHead)


def precision(target: Target) -> str:
    """What a target's products are computed from: "int8" or "int4" where it is packed, else its type."""
    if not is_packed(target):
        return str(target.dtype).removeprefix("torch.")
    return "int4" if any(isinstance(module, PackedInt4) for module in target.modules()) else "int8"


def _packed(weight: Tensor, bias: Tensor | None, packing: Packing, room: Room) -> PackedInt8 | PackedInt4:
    fits = packing == "int4" and PackedInt4.takes(weight)
    return PackedInt4(weight, bias, room) if fits else PackedInt8(weight, bias, room)


def _constant(tensor: Tensor) -> nn.Parameter:
    # A parameter, so that it counts as a weight where memory is counted.
    return nn.Parameter(tensor, requires_grad=False)
