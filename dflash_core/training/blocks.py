"""Blocks at random anchors of packed rows: inputs, labels, weights, and who sees whom.

N rows of S tokens, A anchors a row, blocks of B. All blocks of a row are drafted in one pass: their context keys are
the row's S positions, of which a block sees those strictly before its anchor, exactly as at serving, where the
anchor's own hidden state does not exist yet (reference 1.2 and 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

from dflash_core.configs import LayerSpec
from dflash_core.draft import Draft
from dflash_core.layers.attention import masked_attention


@dataclass(frozen=True)
class Blocks:
    anchors: Tensor
    """[N, A] positions, ascending in a row."""
    positions: Tensor
    """[N, A * B]"""
    labels: Tensor
    """[N, A, B - 1] the target's own greedy token at anchor + k, given the row's text before it."""
    weights: Tensor
    """[N, A, B - 1] fp32"""


def sample_anchors(tokens: Tensor, count: int, block_size: int) -> Tensor:
    """`count` distinct random positions a row, sorted, far enough from its end for a whole block. [N, count]."""
    n, length = tokens.shape
    draws = torch.rand(n, length - block_size, device=tokens.device)
    return draws.topk(count, dim=1).indices.sort(dim=1).values


def make_blocks(
    tokens: Tensor, greedy: Tensor, anchors: Tensor, block_size: int, decay: float, off_path_weight: float
) -> Blocks:
    """tokens: [N, S]; greedy: [N, S], the target's argmax AFTER each position of the row.

    A label is what verification compares with: the target's own choice. Verification reaches row k only when rows
    1 .. k - 1 were right, that is, when the text up to there is the target's own. Where the row's text left that path
    (a token that greedy decoding would not have chosen), the rows behind it are labelled all the same, but weigh
    less. Nothing behind the end of a document (token 0) counts.
    """
    n, a = anchors.shape
    offsets = torch.arange(block_size, device=tokens.device)
    positions = anchors[:, :, None] + offsets
    text = tokens.gather(1, positions.flatten(1)).view(n, a, block_size)
    chosen = greedy.gather(1, positions.flatten(1)).view(n, a, block_size)[:, :, :-1]  # after rows 0 .. B - 2
    inside = (text[:, :, 1:] != 0).cummin(dim=-1).values
    followed = (text[:, :, 1:-1] == chosen[:, :, :-1]).cummin(dim=-1).values
    on_path = torch.cat([torch.ones_like(followed[:, :, :1]), followed], dim=-1)
    weights = torch.exp(-torch.arange(block_size - 1, device=tokens.device) / decay)
    weights = weights * torch.where(on_path, 1.0, off_path_weight) * inside
    return Blocks(anchors, positions.flatten(1), chosen, weights)


def block_mask(anchors: Tensor, row_tokens: int, block_size: int) -> BlockMask | Tensor:
    """Who sees whom among A * B block rows (queries) and S context rows followed by the block rows (keys).

    On a GPU a BlockMask for flex attention, which skips what nobody sees; on a CPU, where flex attention cannot be
    trained through, a plain mask [N, A * B, S + A * B].
    """
    n, a = anchors.shape
    queries, keys = a * block_size, row_tokens + a * block_size

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block = query // block_size
        return torch.where(key < row_tokens, key < anchors[batch, block], (key - row_tokens) // block_size == block)

    if anchors.device.type == "cpu":
        return create_mask(sees, n, None, queries, keys, device="cpu")[:, 0]
    return create_block_mask(sees, n, None, queries, keys, device=anchors.device)


class BlockAttention:
    """`Attend` of training: block rows see the injected context of their row, and their own block."""

    def __init__(self, draft: Draft, features: Tensor, mask: BlockMask | Tensor) -> None:
        """features: [N, S, K * H] of the target."""
        n, length, _ = features.shape
        positions = torch.arange(length, device=features.device).expand(n, length)
        context, rotary = draft.context(features), draft.rotary(positions)
        self.context = [layer.self_attn.project_keys_values(context, rotary) for layer in draft.layers]
        self.mask = mask

    def __call__(self, layer: int, spec: LayerSpec, sinks: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        context_k, context_v = self.context[layer]
        k, v = torch.cat([context_k, k], dim=1), torch.cat([context_v, v], dim=1)
        if isinstance(self.mask, Tensor):
            return masked_attention(q, k, v, self.mask, sinks)
        # Norms leave fp32 behind under autocast; the three must agree.
        q, k, v = (t.transpose(1, 2).to(v.dtype).contiguous() for t in (q, k, v))
        out = flex_attention(q, k, v, block_mask=self.mask, enable_gqa=True)
        assert isinstance(out, Tensor)
        return out.transpose(1, 2)


def packed_causal_attention(
    layer: int, spec: LayerSpec, sinks: Tensor | None, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """`Attend` of the frozen target over whole rows: plain causal attention, no cache."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2)
