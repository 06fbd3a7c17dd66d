"""Stored weights as the kernels' products read them: rows that hold a single 1 bring out one value each."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dflash_core.kernels import MOST_ROWS
from dflash_core.kernels.mixture import Routing, _product, _Weight
from dflash_core.kernels.skinny_linear import BlockScales, skinny_linear
from dflash_core.layers.stored_weights import fold_mxfp4, unpack_fp8, unpack_mxfp4
from dflash_core.specs import MixtureSpec

_COLUMNS, _CHANNELS = 64, 256
_ONE_EXPERT = MixtureSpec(num_experts=1, experts_per_row=1, intermediate_size=_CHANNELS, normalized=False)


def read_by_kernels(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields (found, expected): FP8 by the product of a linear map and of an expert, MXFP4 by an expert's.

    Every code is among them, and powers of a group from the lowest that leaves its values normal to the largest taken.
    """
    codes = torch.arange(_COLUMNS * _CHANNELS, device=device).to(torch.uint8).view(_COLUMNS, _CHANNELS)
    fp8 = (codes - ((codes & 0x7F) == 0x7F).to(torch.uint8)).view(torch.float8_e4m3fn)
    block = torch.ones(1, 2, device=device)
    expected = unpack_fp8(fp8, block, (_COLUMNS, 128), dtype)
    scales = BlockScales(block, _COLUMNS, 128)
    yield _columns(device, dtype, lambda x, out: skinny_linear(x, fp8, out, scales=scales)), expected
    weight = _Weight(fp8[None], block[None], "fp8", (_COLUMNS, 128))
    yield _columns(device, dtype, lambda x, out: _by_expert(x, weight, out)), expected
    packed = codes[:, : _CHANNELS // 2].contiguous()
    for lowest in (3, 60, 121):  # 2 ** -124 up to 2
        powers = torch.arange(_COLUMNS * _CHANNELS // 32, device=device) % 8 + lowest
        powers = powers.to(torch.uint8).view(_COLUMNS, _CHANNELS // 32)
        folded = _Weight(fold_mxfp4(packed)[None], powers[None], "mxfp4", (1, 32))
        found = _columns(device, dtype, lambda x, out, folded=folded: _by_expert(x, folded, out))
        yield found, unpack_mxfp4(packed, powers, dtype)


def _by_expert(x: Tensor, weight: _Weight, out: Tensor) -> None:
    rows, device = x.shape[0], x.device
    routing = Routing(
        ids=torch.zeros(rows, dtype=torch.int32, device=device),
        weights=torch.ones(rows, device=device),
        order=torch.arange(rows, dtype=torch.int32, device=device),
        counts=torch.tensor([rows], dtype=torch.int32, device=device),
    )
    _product(x, weight, out, routing, _ONE_EXPERT, None, few=True)


def _columns(device: torch.device, dtype: torch.dtype, product: object) -> Tensor:
    """All columns of the weight, MOST_ROWS at a time."""
    found = []
    for rows in torch.eye(_CHANNELS, device=device, dtype=dtype).split(MOST_ROWS):
        out = torch.empty(len(rows), _COLUMNS, device=device, dtype=dtype)
        product(rows.contiguous(), out)  # type: ignore[operator]
        found.append(out.T)
    return torch.cat(found, dim=1)
