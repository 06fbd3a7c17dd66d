"""Which rows of which published tensors make up a parameter of ours.

A parameter is its pieces, one below the other. Mostly a piece is a whole tensor (`names.py`). MiMo's fused qkv tensor
is stored as shards of [queries, keys, values], each with a grid of FP8 scales of its own: there a piece is some rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from dflash_core.checkpoints.names import checkpoint_names, expert_names
from dflash_core.checkpoints.reading import TensorFolder
from dflash_core.errors import CheckpointError
from dflash_core.specs import LayerSpec


@dataclass(frozen=True)
class Piece:
    """Rows of a published tensor: a stretch of them, some by number, or all (None)."""

    name: str
    rows: range | Sequence[int] | None = None


Pieces = Callable[[str, Tensor], list[Piece]]
"""pieces(name of our parameter, the parameter) -> what it is made of, top to bottom."""


def whole_tensors(tensors: TensorFolder) -> Pieces:
    """Every piece is a tensor of its own: the layout of most published checkpoints."""

    def pieces(name: str, parameter: Tensor) -> list[Piece]:
        names = checkpoint_names(name)
        if names[0] not in tensors:
            names = expert_names(name, parameter.shape[0]) or names
        return [Piece(each) for each in names]

    return pieces


@dataclass(frozen=True)
class FusedQkv:
    """How a fused qkv tensor lies on disk: `shards` times [queries, keys, values] of as many heads each."""

    spec: LayerSpec
    shards: int

    def check(self, name: str) -> None:
        if self.spec.num_heads % self.shards or self.spec.num_kv_heads % self.shards:
            raise CheckpointError(
                f"tensor {name}: {self.spec.num_heads} heads with {self.spec.num_kv_heads} key-value heads cannot be "
                f"stored in {self.shards} shards"
            )

    @property
    def sizes(self) -> list[int]:
        """Rows of queries, keys and values in one shard."""
        return [size // self.shards for size in (self.spec.q_size, self.spec.k_size, self.spec.v_size)]

    def stretches(self) -> list[range]:
        """Rows of the stored tensor in our order: all queries, all keys, all values."""
        q, k, v = self.sizes
        found = []
        for start, size in ((0, q), (q, k), (q + k, v)):
            for shard in range(self.shards):
                first = shard * (q + k + v) + start
                found.append(range(first, first + size))
        return found

    def unit(self, block_rows: int) -> int:
        """The most rows that lie in one block of scales wherever they are cut."""
        return math.gcd(block_rows, *self.sizes)

    def scale_rows(self, block_rows: int) -> list[int]:
        """For every `unit` of our rows, the row of the stored scales: each shard's grid begins with the shard."""
        of_shard = sum(self.sizes)
        grid = -(-of_shard // block_rows)
        return [
            row // of_shard * grid + row % of_shard // block_rows
            for stretch in self.stretches()
            for row in stretch[:: self.unit(block_rows)]
        ]
