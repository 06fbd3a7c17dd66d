"""Acceptance length of a pair on texts it was not trained on, by the engine that serves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from dflash_core.engine import Engine
from dflash_core.generation import GenerationRequest
from dflash_core.target import Target
from dflash_core.training.packed_attention import PackedAttention, document_mask
from dflash_core.training.shards import TokenShards, read_shard

_SHORTEST_DOCUMENT = 200
"""Tokens; shorter documents give no context worth the name."""


@dataclass(frozen=True)
class Acceptance:
    """`length` counts the bonus token. `prefix_right[k]`: share of rounds whose first k + 1 drafted rows were right."""

    prompts: int
    rounds: int
    tokens: int
    length: float
    prefix_right: list[float]


def acceptance(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    stop_ids: Sequence[int] = (),
    progress: Callable[[int], object] = lambda prompts: None,
) -> Acceptance:
    """Greedy text after each prompt, every round drafted at the full block. Deterministic in fp32.

    progress: called with the number of prompts just done.
    """
    rounds: list[int] = []
    tokens = 0
    for prompt in prompts:
        generation = engine.submit(
            GenerationRequest(prompt=prompt, max_tokens=max_tokens, draft="on", stop_ids=stop_ids)
        )
        while generation.finish is None:
            step = engine.step()
            # A round cut short by the limit or a stop token says nothing of its missing rows.
            if step and step.block and step.block.drafted == engine.decoder.block_size - 1:
                rounds.append(step.block.accepted)
        tokens += generation.stats.completion_tokens
        progress(1)
    accepted = np.array(rounds)
    right = [float((accepted > k).mean()) for k in range(engine.decoder.block_size - 1)] if rounds else []
    return Acceptance(len(prompts), len(rounds), tokens, 1 + sum(right), right)


@torch.inference_mode()
def bits_of(target: Target, text: Sequence[int], first: int = 1) -> float:
    """Bits that the target needs for the tokens of a text from `first` on, each given all before it."""
    tokens = torch.tensor([list(text)], device=target.device)
    documents = torch.zeros_like(tokens, dtype=torch.int32)
    windows = {layer.spec.window for layer in target.layers}
    attend = PackedAttention({window: document_mask(documents, window) for window in windows})
    hidden, _ = target(tokens, torch.arange(tokens.shape[1], device=target.device)[None], attend)
    logits = target.logits(hidden[:, first - 1 : -1]).float()
    return nn.functional.cross_entropy(logits[0], tokens[0, first:], reduction="sum").item() / math.log(2)


def left_to_right_bits(target: Target, texts: Sequence[Sequence[int]]) -> float:
    """Bits a token of texts read from their beginnings, each seeing itself alone."""
    return sum(bits_of(target, text) for text in texts) / sum(len(text) - 1 for text in texts)


def held_out_prompts(shards: TokenShards, count: int, prompt_tokens: int, seed: int = 0) -> list[list[int]]:
    """Starts of held-out documents, cut at random within `prompt_tokens`, as if one were writing there."""
    generator = np.random.default_rng(seed)
    chosen = _documents(shards, count, generator)
    cut = [int(generator.integers(64, min(prompt_tokens, len(document) - 64))) for document in chosen]
    return [document[:n].tolist() for document, n in zip(chosen, cut, strict=True)]


def held_out_texts(shards: TokenShards, count: int, tokens: int, seed: int = 0) -> list[list[int]]:
    """The first `tokens` of as many held-out documents, the same that prompts are cut from."""
    return [document[:tokens].tolist() for document in _documents(shards, count, np.random.default_rng(seed))]


def _documents(shards: TokenShards, count: int, generator: np.random.Generator) -> list[np.ndarray]:
    documents: list[np.ndarray] = []
    for path in shards.paths:
        tokens, starts, _ = read_shard(path)
        bounds = [*starts, len(tokens)]
        documents += [tokens[a:b] for a, b in itertools.pairwise(bounds) if b - a >= _SHORTEST_DOCUMENT]
    return [documents[i] for i in generator.permutation(len(documents))[:count]]
