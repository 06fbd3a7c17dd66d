"""How the target chooses its own next token, greedily or by chance; a draft never takes part in it.

Lossless speculation at temperature > 0 by sample-and-match: the target's choice at a position is drawn with noise
that depends on (seed, position) alone, and a drafted token is kept where it equals that choice. What is emitted is
always the target's own sample, so its distribution is the target's, and the same seed gives the same text whatever was
drafted (reference 1.8).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_p in (0, 1]; seed fixes the noise."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


def choose(logits: Tensor, positions: Tensor, sampling: Sampling) -> Tensor:
    """The target's own token for each row.

    logits: [N, T, vocab]; positions: [N, T], where each chosen token will stand. Returns [N, T].
    """
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    scaled = logits.float() / sampling.temperature
    if sampling.top_p < 1:
        scaled = _keep_top_p(scaled, sampling.top_p)
    return (scaled + _gumbel_noise(scaled, positions, sampling.seed)).argmax(dim=-1)


def _keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Masks all but the smallest set of tokens whose probability reaches top_p (the first is always kept)."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    ordered = ordered.masked_fill(before >= top_p, float("-inf"))
    return torch.full_like(logits, float("-inf")).scatter(-1, order, ordered)


def _gumbel_noise(like: Tensor, positions: Tensor, seed: int) -> Tensor:
    """argmax(logits + Gumbel noise) is a draw from softmax(logits); one generator a position makes it repeatable."""
    noise = torch.empty(like.shape, dtype=torch.float32)
    for row, position in enumerate(positions.flatten().tolist()):
        generator = torch.Generator().manual_seed((seed * 1_000_003 + position) % (1 << 63))
        noise.view(-1, like.shape[-1])[row].exponential_(generator=generator)
    return -noise.log().to(like.device)
