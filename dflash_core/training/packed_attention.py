"""Attention of a target over packed rows: each document sees itself alone, as when it is served."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

from dflash_core.errors import DFlashError
from dflash_core.layers.attention import masked_attention
from dflash_core.specs import LayerSpec


def document_mask(documents: Tensor, window: int | None) -> BlockMask | Tensor:
    """Who sees whom in rows whose tokens belong to `documents` [N, S].

    On a GPU a BlockMask for flex attention, on a CPU a plain mask [N, S, S]: flex attention cannot be trained there.
    """
    n, length = documents.shape

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = (documents[batch, query] == documents[batch, key]) & (query >= key)
        return seen if window is None else seen & (query - key < window)

    if documents.device.type == "cpu":
        return create_mask(sees, n, None, length, length, device="cpu")[:, 0]
    return create_block_mask(sees, n, None, length, length, device=documents.device)


class PackedAttention:
    """`Attend` of a target in training. One mask for each window that its layers have."""

    def __init__(self, masks: dict[int | None, BlockMask | Tensor]) -> None:
        self.masks = masks

    def __call__(self, layer: int, spec: LayerSpec, sinks: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = self.masks[spec.window]
        if isinstance(mask, Tensor):
            return masked_attention(q, k, v, mask, sinks)
        # Norms and rotary embedding may leave fp32 behind; the three must agree.
        q, k, v = (t.transpose(1, 2).to(v.dtype).contiguous() for t in (q, k, v))
        out = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        assert isinstance(out, Tensor)
        return out.transpose(1, 2)


def check_trainable(layers: Sequence[LayerSpec]) -> None:
    """Raises DFlashError for what packed attention does not compute on a GPU."""
    if any(spec.sinks for spec in layers) and torch.cuda.is_available():
        raise DFlashError("a target with attention sinks cannot be trained with yet")
