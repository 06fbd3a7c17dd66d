"""Reads token shards: flat arrays of documents, where each begins, and what of it is due.

`server/corpus` writes them with the serving prompt code; here they are only numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflash_core.errors import DFlashError

_POOL = 96
"""Documents looked at to fill a row: so many that hardly a hundredth of a row stays empty."""


@dataclass(frozen=True)
class Rows:
    """Packed rows. All [N, S]. Nothing of one document sees another; padding is a document of its own, -1."""

    tokens: Tensor
    """int64"""
    documents: Tensor
    """int32, ascending in a row, -1 for padding."""
    due: Tensor
    """bool: the token is part of a middle, what a completion should write."""

    def to(self, device: torch.device) -> Rows:
        return Rows(*(each.to(device, non_blocking=True) for each in (self.tokens, self.documents, self.due)))

    def pin_memory(self) -> Rows:
        return Rows(self.tokens.pin_memory(), self.documents.pin_memory(), self.due.pin_memory())


def held_out_splits(folder: Path) -> list[str]:
    """Names of the held-out splits of a folder: `held-LANGUAGE`."""
    return sorted({p.name.rsplit("-", 1)[0] for p in folder.glob("held-*.npy") if p.name.count(".") == 1})


class TokenShards:
    """The shards `SPLIT-*.npy` of a folder, as rows of equal length."""

    def __init__(self, folder: Path, split: str) -> None:
        self.paths = sorted(p for p in folder.glob(f"{split}-*.npy") if p.name.count(".") == 1)
        if not self.paths:
            raise DFlashError(f"no token shards {split}-*.npy in {folder}")

    def rows(
        self, length: int, seed: int = 0, passes: int | None = None, long_due: int = 0, long_times: int = 1
    ) -> Iterator[Rows]:
        """Rows [1, length], shards and rows in a new order on every pass; endless unless `passes` are given.

        Documents of which at least `long_due` tokens are due come `long_times` times a pass: long units are rare.

        Documents with a middle are kept whole (the end of the prompt where one is longer than a row); running text
        is cut where a row ends, at another offset every pass.
        """
        generator = np.random.default_rng(seed)
        done = 0
        while passes is None or done < passes:
            found = False
            for path in generator.permutation(np.array(self.paths, dtype=object)):
                for row in _rows_of(path, length, generator, long_due, long_times):
                    found = True
                    yield row
            if not found:
                raise DFlashError(f"the token shards in {self.paths[0].parent} hold no row of {length} tokens")
            done += 1

    def batches(self, rows: int, length: int, seed: int = 0, long_due: int = 0, long_times: int = 1) -> Iterator[Rows]:
        """Endless batches [rows, length]."""
        source = self.rows(length, seed, None, long_due, long_times)
        while True:
            yield join([next(source) for _ in range(rows)])


def join(rows: list[Rows]) -> Rows:
    return Rows(*(torch.cat([getattr(row, name) for row in rows]) for name in ("tokens", "documents", "due")))


def empty_row(length: int) -> Rows:
    """[1, length], padding only."""
    return _row(np.zeros(length), np.full(length, -1), np.zeros(length, bool))


def _rows_of(path: Path, length: int, generator: np.random.Generator, long_due: int, long_times: int) -> Iterator[Rows]:
    tokens, starts, middles = read_shard(path)
    if middles is None:
        yield from _running(tokens, starts, length, generator)
    else:
        times = np.where(np.append(starts[1:], len(tokens)) - middles >= long_due, long_times, 1)
        yield from _packed(tokens, starts, middles, length, generator, times)


def read_shard(path: Path) -> tuple[Any, Any, Any]:
    """tokens [T], starts [D] of the documents, and middles [D] or None. Raises DFlashError when they do not fit."""
    try:
        tokens = np.load(path, mmap_mode="r")
        starts = np.load(path.with_name(f"{path.stem}.starts.npy")).astype(np.int64)
        file = path.with_name(f"{path.stem}.middles.npy")
        middles = np.load(file).astype(np.int64) if file.exists() else None
    except (OSError, ValueError) as error:
        raise DFlashError(f"token shard {path} cannot be read: {error}") from error
    sound = tokens.ndim == 1 and len(starts) and starts[0] == 0 and (np.diff(starts) > 0).all()
    if not sound or starts[-1] >= len(tokens) or (middles is not None and len(middles) != len(starts)):
        raise DFlashError(f"token shard {path} does not fit its starts")
    return tokens, starts, middles


def _running(tokens: Any, starts: Any, length: int, generator: np.random.Generator) -> Iterator[Rows]:
    offset = int(generator.integers(length))
    for start in generator.permutation(np.arange(offset, len(tokens) - length + 1, length)):
        places = np.arange(start, start + length)
        documents = np.searchsorted(starts, places, side="right")
        yield _row(tokens[start : start + length], documents - documents[0], np.zeros(length, bool))


def _packed(
    tokens: Any, starts: Any, middles: Any, length: int, generator: np.random.Generator, times: Any
) -> Iterator[Rows]:
    """times: how often each document comes."""
    ends = np.append(starts[1:], len(tokens))
    sizes = np.minimum(ends - starts, length)
    order = generator.permutation(np.repeat(np.arange(len(starts)), times)).tolist()
    pool = [order.pop() for _ in range(min(_POOL, len(order)))]
    while pool:
        chosen, room = [], length
        while room:
            fitting = next((place for place, document in enumerate(pool) if sizes[document] <= room), None)
            if fitting is None:
                break
            document = pool.pop(fitting)
            chosen.append(document)
            room -= int(sizes[document])
            if order:
                pool.append(order.pop())
        row, documents, due = np.zeros(length, np.int64), np.full(length, -1), np.zeros(length, bool)
        begin = 0
        for number, document in enumerate(chosen):
            size, end = int(sizes[document]), int(ends[document])
            row[begin : begin + size] = tokens[end - size : end]
            documents[begin : begin + size] = number
            due[begin + max(0, size - (end - int(middles[document]))) : begin + size] = True
            begin += size
        yield _row(row, documents, due)


def _row(tokens: Any, documents: Any, due: Any) -> Rows:
    arrays = tokens.astype(np.int64), documents.astype(np.int32), due
    return Rows(*(torch.from_numpy(array)[None] for array in arrays))
