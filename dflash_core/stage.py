"""Layers of a target that lie on one device, as the CUDA round runs them: their buffers, their graphs, their taps.

Where one device holds all layers there is one stage, and a round is one graph. Where it does not, stages run one after
the other: each hands its residual stream, with the session's length, to the next by copies that the devices' own
streams put in order; the host waits for none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dflash_core.graphs import Graphs
from dflash_core.kernel_stack import CHUNKS, Stack
from dflash_core.kernels import MOST_ROWS
from dflash_core.kv_cache import KVCache
from dflash_core.target import Target


class Stage:
    """A stretch of a target's layers on their device."""

    def __init__(
        self,
        target: Target,
        taken: range,
        tapped: Sequence[int],
        capacity: int,
        block_size: int,
        further: int = 0,
        kept: Sequence[Tensor] = (),
    ) -> None:
        """tapped: target layers whose outputs feed the draft, in the draft's order. further: layers of another model
        on this device, whose addresses follow those of the stage's own. kept: what else its graphs change."""
        self.taken = taken
        layers = list(target.layers)
        self.layers = layers[taken.start : taken.stop]
        self.device = device = self.layers[0].device
        self.state = torch.zeros(2 + 2 * (len(taken) + further), dtype=torch.int64, device=device)
        """Length of the session, rows that are real, then where keys and values of each layer lie."""
        self.length, self.count = self.state[:1], self.state[1:2]
        self.own = 2 + 2 * len(taken)
        """Where the addresses of another model's layers begin."""
        self.counts = {w: torch.tensor([w], device=device) for w in range(1, MOST_ROWS + 1)}
        # The norm that follows a stage's last layer is the next stage's first, or the model's own.
        after = layers[taken.stop].input_layernorm if taken.stop < len(layers) else target.norm
        self.stack = Stack(
            self.layers,
            after.weight.to(device),
            target.rotary,
            target.window_rotary,
            self.state[2 : self.own],
            capacity,
            block_size,
            target.dtype,
        )
        self.tapped = [layer for layer in tapped if layer in taken]
        hidden = target.spec.hidden_size
        self.features = torch.zeros(CHUNKS[-1], len(self.tapped) * hidden, dtype=target.dtype, device=device)
        """[rows, len(tapped) * hidden]: what the draft is told of these layers."""
        self.graphs = Graphs(device, kept=(self.state, *kept, *(self.stack.residual if taken.start else ())))

    def few(self, rows: int, count: Tensor) -> None:
        """At most MOST_ROWS rows through these layers."""
        for layer in self.layers:
            self.stack.few(layer, rows, self.length, count, tap=self._tap(layer.index, rows))

    def many(self, rows: int) -> None:
        """A chunk of a prompt through these layers."""
        for layer in self.layers:
            self.stack.many(layer, rows, self.length, self.count)
            tap = self._tap(layer.index, rows)
            if tap is not None:
                tap.copy_(self.stack.rows(rows))

    def follow(self, before: Stage, rows: int) -> None:
        """Takes over where the stage before left off."""
        self.state[:2].copy_(before.state[:2], non_blocking=True)
        self.stack.receive(before.stack, rows)

    def point_at(self, cache: KVCache) -> None:
        """Tells the device where this session's keys and values lie."""
        where = torch.tensor(addresses(cache, self.taken), pin_memory=self.device.type == "cuda")
        self.state[2 : self.own].copy_(where, non_blocking=True)

    def _tap(self, layer: int, rows: int) -> Tensor | None:
        return part(self.features, self.tapped.index(layer), len(self.tapped), rows) if layer in self.tapped else None


class Taps:
    """What all stages tell the draft, brought to the first device and put in the draft's order."""

    def __init__(self, stages: Sequence[Stage], tapped: Sequence[int]) -> None:
        first, *others = stages
        self._tapped = tapped
        # One stage writes its features where they are wanted.
        self._features = (
            torch.zeros(
                CHUNKS[-1], len(tapped) * first.stack.hidden_size, dtype=first.features.dtype, device=first.device
            )
            if others
            else first.features
        )
        self._landed = [(first, first.features)] if others else []
        self._landed += [(stage, torch.zeros_like(stage.features, device=first.device)) for stage in others]

    def collect(self, rows: int) -> None:
        """Brings what the last pass left on other devices; their streams put it in order."""
        for stage, landed in self._landed:
            if stage.tapped and landed is not stage.features:
                landed[:rows].copy_(stage.features[:rows], non_blocking=True)

    def joined(self, rows: int) -> Tensor:
        """[rows, tapped layers * hidden], in the draft's order; a piece of a graph."""
        for stage, landed in self._landed:
            for index, layer in enumerate(stage.tapped):
                into = part(self._features, self._tapped.index(layer), len(self._tapped), rows)
                into.copy_(part(landed, index, len(stage.tapped), rows))
        return self._features[:rows]


def part(features: Tensor, index: int, parts: int, rows: int) -> Tensor:
    """One layer's features, [rows, hidden], of several side by side. features: contiguous, of `parts` layers."""
    hidden = features.shape[1] // parts
    return features[:rows, index * hidden : (index + 1) * hidden]


def addresses(cache: KVCache, layers: range) -> list[int]:
    """Where keys and values of these layers lie, one after the other."""
    return [t.data_ptr() for i in layers for t in (cache.keys[i], cache.values[i])]
