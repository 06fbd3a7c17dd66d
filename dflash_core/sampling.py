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
    """argmax(logits + Gumbel noise) is a draw from softmax(logits).

    The noise of a token is a hash of (seed, position, token): the same on every device, whatever else is computed.
    """
    tokens = torch.arange(like.shape[-1], device=like.device)
    key = _mixed(positions.to(like.device) + _wrapped(seed * _ODD))  # [N, T]
    bits = _mixed(_mixed(key)[..., None] + tokens * _wrapped(_ODD))
    # 24 bits and a half: never 0, never 1, exact in fp32.
    uniform = ((bits >> 40) & 0xFFFFFF).float().add_(0.5).mul_(2.0**-24)
    return -(-uniform.log()).log()


_ODD = 0x9E3779B97F4A7C15
"""The golden ratio in 64 bits: multiples of it spread evenly (Weyl sequence)."""


def _mixed(x: Tensor) -> Tensor:
    """Finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of x touches every bit of the result."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ _shifted(x, shift)) * _wrapped(factor)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _wrapped(value: int) -> int:
    """The signed 64-bit number with the same bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
