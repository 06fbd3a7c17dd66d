"""Blocks at random anchors of packed rows: inputs, labels, weights, and who sees whom.

N rows of S tokens, A anchors a row, blocks of B. All blocks of a row are drafted in one pass: their context keys are
the row's S positions, of which a block sees those of its document strictly before its anchor, exactly as at serving,
where the anchor's own hidden state does not exist yet (reference 1.2 and 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, flex_attention

from dflash_core.draft import Draft
from dflash_core.layers.attention import masked_attention
from dflash_core.specs import LayerSpec
from dflash_core.training.shards import Rows


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


def sample_anchors(rows: Rows, count: int, block_size: int, due_weight: float = 1.0) -> Tensor:
    """`count` distinct random positions a row, sorted, far enough from its end for a whole block. [N, count].

    Tokens before one that is due are drawn with `due_weight`, padding only when nothing else is left.
    """
    last = rows.tokens.shape[1] - block_size
    weights = torch.where(rows.due[:, 1 : last + 1], due_weight, 1.0)
    weights = torch.where(rows.documents[:, :last] >= 0, weights, 1e-6)
    # The largest of u^(1/w) are a sample without replacement with weights w (Efraimidis and Spirakis, 2006).
    draws = torch.rand(weights.shape, device=weights.device).log() / weights
    return draws.topk(count, dim=1).indices.sort(dim=1).values


def make_blocks(
    rows: Rows, greedy: Tensor, anchors: Tensor, block_size: int, decay: float | None, off_path_weight: float
) -> Blocks:
    """greedy: [N, S], the target's argmax AFTER each position of the row. decay: None weighs all rows alike.

    A label is what verification compares with: the target's own choice. Verification reaches row k only when rows
    1 .. k - 1 were right, that is, when the text up to there is the target's own. Where the row's text left that path
    (a token that greedy decoding would not have chosen), the rows behind it are labelled all the same, but weigh
    less. Nothing behind the end of a document counts.
    """
    n, a = anchors.shape
    tokens = rows.tokens
    offsets = torch.arange(block_size, device=tokens.device)
    positions = anchors[:, :, None] + offsets
    text = tokens.gather(1, positions.flatten(1)).view(n, a, block_size)
    chosen = greedy.gather(1, positions.flatten(1)).view(n, a, block_size)[:, :, :-1]  # after rows 0 .. B - 2
    documents = rows.documents.gather(1, positions.flatten(1)).view(n, a, block_size)
    inside = (documents[:, :, 1:] == documents[:, :, :1]) & (documents[:, :, :1] >= 0)
    followed = (text[:, :, 1:-1] == chosen[:, :, :-1]).cummin(dim=-1).values
    on_path = torch.cat([torch.ones_like(followed[:, :, :1]), followed], dim=-1)
    order = torch.arange(block_size - 1, device=tokens.device)
    weights = torch.ones_like(order, dtype=torch.float32) if decay is None else torch.exp(-order / decay)
    weights = weights * torch.where(on_path, 1.0, off_path_weight) * inside
    return Blocks(anchors, positions.flatten(1), chosen, weights)


def block_mask(anchors: Tensor, documents: Tensor, block_size: int) -> BlockMask | Tensor:
    """Who sees whom among A * B block rows (queries) and S context rows followed by the block rows (keys).

    documents: [N, S], whose tokens the context rows are.

    On a GPU a BlockMask for flex attention, which skips what nobody sees; on a CPU, where flex attention cannot be
    trained through, a plain mask [N, A * B, S + A * B].
    """
    n, a = anchors.shape
    row_tokens = documents.shape[1]
    queries, keys = a * block_size, row_tokens + a * block_size
    own = documents.gather(1, anchors)  # [N, A]

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block = query // block_size
        context = key.clamp(max=row_tokens - 1)
        before = (key < anchors[batch, block]) & (documents[batch, context] == own[batch, block])
        return torch.where(key < row_tokens, before, (key - row_tokens) // block_size == block)

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
