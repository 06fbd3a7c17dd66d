"""Reads token shards: flat uint16 arrays of whole documents, each beginning with token 0.

`server/corpus` writes them with the serving prompt code; here they are only numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dflash_core.errors import DFlashError


class TokenShards:
    """The shards `SPLIT-*.npy` of a folder, as rows of equal length cut out of the running text."""

    def __init__(self, folder: Path, split: str) -> None:
        self.paths = sorted(p for p in folder.glob(f"{split}-*.npy") if not p.name.endswith(".starts.npy"))
        if not self.paths:
            raise DFlashError(f"no token shards {split}-*.npy in {folder}")

    def rows(self, length: int, seed: int = 0) -> Iterator[Tensor]:
        """Endless rows [length] of token ids (int64), shards and rows in a new order on every pass.

        Documents are packed: a row may hold the end of one and the start of another, parted by token 0.
        """
        generator = np.random.default_rng(seed)
        while True:
            found = False
            for path in generator.permutation(np.array(self.paths, dtype=object)):
                tokens = np.load(path, mmap_mode="r")
                # Another offset every pass, so that rows do not always break at the same places.
                offset = int(generator.integers(length))
                starts = np.arange(offset, len(tokens) - length + 1, length)
                for start in generator.permutation(starts):
                    found = True
                    yield torch.from_numpy(tokens[start : start + length].astype(np.int64))
            if not found:
                raise DFlashError(f"the token shards in {self.paths[0].parent} hold no row of {length} tokens")

    def batches(self, rows: int, length: int, seed: int = 0) -> Iterator[Tensor]:
        """Endless batches [rows, length]."""
        source = self.rows(length, seed)
        while True:
            yield torch.stack([next(source) for _ in range(rows)])
