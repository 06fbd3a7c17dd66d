"""What a target itself writes after the prompts of shards, many at once, written as shards again.

A draft is asked to go on from the target's own text; a corpus shows it text that the target would not have written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflash_core.errors import DFlashError
from dflash_core.kv_cache import CachedAttention, KVCache
from dflash_core.target import Target
from dflash_core.training.shards import TokenShards, read_shard

SPLIT = "own"
SHARD_TOKENS = 4_000_000


def write_continuations(
    target: Target,
    shards: TokenShards,
    out: Path,
    *,
    minutes: float,
    prompts: int = 512,
    max_tokens: int = 64,
    stop_ids: Sequence[int] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Goes through the prompts of the shards once at most, for `minutes`; writes `own-*.npy`; returns what was done."""
    for stale in out.glob(f"{SPLIT}-*.npy"):
        stale.unlink()
    until = time.monotonic() + 60 * minutes
    examples = tokens = written = 0
    kept: list[tuple[list[int], int]] = []
    for batch in _prompts(shards, prompts, seed):
        texts = continuations(target, batch, max_tokens, stop_ids)
        kept += [(prompt + text, len(prompt)) for prompt, text in zip(batch, texts, strict=True) if text]
        examples, tokens = examples + len(batch), tokens + sum(map(len, texts))
        done = time.monotonic() > until
        if done or sum(len(ids) for ids, _ in kept) > SHARD_TOKENS:
            _save(out, written, kept)
            kept, written = [], written + 1
        if done:
            break
    if kept:
        _save(out, written, kept)
    return {"examples": examples, "tokens": tokens}


@torch.inference_mode()
def continuations(
    target: Target, prompts: Sequence[Sequence[int]], max_tokens: int, stop_ids: Sequence[int] = ()
) -> list[list[int]]:
    """The greedy text after each prompt, the stop token that ended it included.

    Prompts of several lengths share a batch: a short one is filled up, and what that writes is never seen, since
    every query is masked by position and the text overwrites it.
    """
    device = target.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    longest = max(map(len, prompts))
    filled = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        filled[row, : len(prompt)] = torch.tensor(prompt)
    cache = KVCache([layer.spec for layer in target.layers], len(prompts), longest + max_tokens, device, target.dtype)
    positions = torch.arange(longest, device=device).expand(len(prompts), -1)
    hidden, _ = target(filled.to(device), positions, CachedAttention(cache, positions, longest))
    last = hidden[torch.arange(len(prompts), device=device), lengths - 1]
    stops = torch.tensor(list(stop_ids), device=device, dtype=torch.long)
    written: list[Tensor] = []
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for step in range(max_tokens):
        token = target.logits(last[:, None])[:, 0].argmax(-1)
        written.append(torch.where(ended, -1, token))
        ended |= torch.isin(token, stops)
        if step + 1 == max_tokens or (step % 8 == 7 and bool(ended.all())):
            break
        positions = (lengths + step)[:, None]
        hidden, _ = target(token[:, None], positions, CachedAttention(cache, positions, longest + step + 1))
        last = hidden[:, 0]
    rows = torch.stack(written, dim=1).tolist()
    return [[token for token in row if token >= 0] for row in rows]


def _prompts(shards: TokenShards, count: int, seed: int) -> Iterator[list[list[int]]]:
    """Prompts of the examples of all shards, in batches of like lengths."""
    generator = np.random.default_rng(seed)
    for path in generator.permutation(np.array(shards.paths, dtype=object)):
        tokens, starts, middles = read_shard(path)
        if middles is None:
            raise DFlashError(f"{path} holds no prompts: continuations need the shards of `train holes`")
        ends = np.append(starts[1:], len(tokens))
        order = generator.permutation(np.flatnonzero(middles < ends))
        for begin in range(0, len(order), 16 * count):
            part = order[begin : begin + 16 * count]
            by_length = part[np.argsort(middles[part] - starts[part], kind="stable")]
            for place in generator.permutation(-(-len(by_length) // count)):
                batch = by_length[place * count : (place + 1) * count]
                yield [tokens[starts[i] : middles[i]].tolist() for i in batch]


def _save(out: Path, number: int, examples: Sequence[tuple[list[int], int]]) -> None:
    sizes = np.array([len(ids) for ids, _ in examples])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.uint32)
    tokens = np.concatenate([np.array(ids) for ids, _ in examples])
    wide = tokens.max() > np.iinfo(np.uint16).max
    name = f"{SPLIT}-{number:05d}"
    np.save(out / f"{name}.npy", tokens.astype(np.uint32 if wide else np.uint16))
    np.save(out / f"{name}.starts.npy", starts)
    np.save(out / f"{name}.middles.npy", starts + np.array([prompt for _, prompt in examples], dtype=np.uint32))
