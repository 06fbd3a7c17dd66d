"""Static keys and values of a model, written at their positions and masked by position.

Nothing is ever cropped: a rejected row stays where it is until a later round writes its position again, and until
then no query sees it, because every query is masked by position (decoding rule 3 of the design).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dflash_core.layers.attention import folded_mask, masked_attention
from dflash_core.specs import LayerSpec

_BUCKET = 64
"""Keys are read up to the live length rounded up to this, so that shapes recur instead of growing by one."""


def capacity_for(positions: int) -> int:
    """Positions a cache holds that is asked to hold so many."""
    return -(-positions // _BUCKET) * _BUCKET


class KVCache:
    """Keys [N, capacity, kv_heads, head_dim] and values [N, capacity, kv_heads, value_dim] of every layer."""

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        batch: int,
        capacity: int,
        devices: torch.device | Sequence[torch.device],
        dtype: torch.dtype,
    ) -> None:
        """devices: one for all layers, or each layer's own."""
        # Zeros, not empty: a key that no query sees still takes part in the product, where NaN would survive the mask.
        self.capacity = capacity_for(capacity)
        self.specs = tuple(layers)

        places = [devices] * len(self.specs) if isinstance(devices, torch.device) else devices

        def room(spec: LayerSpec, channels: int, device: torch.device) -> Tensor:
            return torch.zeros(batch, self.capacity, spec.num_kv_heads, channels, device=device, dtype=dtype)

        self.keys = [room(spec, spec.head_dim, place) for spec, place in zip(layers, places, strict=True)]
        self.values = [room(spec, spec.value_dim, place) for spec, place in zip(layers, places, strict=True)]
        # By the devices as tensors name them: "cuda" is one of them by its number.
        self._batch_rows = {keys.device: torch.arange(batch, device=keys.device)[:, None] for keys in self.keys}

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*self.keys, *self.values))

    def write(self, layer: int, positions: Tensor, k: Tensor, v: Tensor) -> None:
        """positions: [N, T]; k: [N, T, kv_heads, head_dim]; v: [N, T, kv_heads, value_dim]."""
        rows = self._batch_rows[k.device]
        self.keys[layer][rows, positions] = k
        self.values[layer][rows, positions] = v

    def read(self, layer: int, live: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `live` positions, [N, live, kv_heads, ...] each (views)."""
        return self.keys[layer][:, :live], self.values[layer][:, :live]

    def copy_prefix(self, source: KVCache, length: int) -> None:
        """Takes over the first `length` positions of another cache of the same model."""
        for mine, theirs in zip((*self.keys, *self.values), (*source.keys, *source.values), strict=True):
            mine[:, :length] = theirs[:, :length]


class CachedAttention:
    """`Attend` over a KVCache: writes the new rows at their positions, then lets them see what their mask allows.

    least_rows: fewer queries are computed as so many, so that the product's shape, and with it the order of its sums,
    is the same for all of them.

    positions: [N, T], ascending; `end` is one past the highest position of the batch (known to the host).
    A causal row sees positions up to its own. A row of a non-causal layer sees every position up to the last of its
    batch row, which is the end of its block. A window hides what is `window` or more positions away.
    """

    def __init__(self, cache: KVCache, positions: Tensor, end: int, least_rows: int = 1) -> None:
        self.cache = cache
        self.positions = positions
        self._lacking = max(0, least_rows - positions.shape[1])
        self.live = min(-(-end // _BUCKET) * _BUCKET, cache.capacity)
        self._masks: dict[tuple[bool, int | None, int, torch.device], Tensor] = {}

    def __call__(self, layer: int, spec: LayerSpec, sinks: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.cache.write(layer, self.positions.to(q.device), k, v)
        keys, values = self.cache.read(layer, self.live)
        mask = self._mask(spec, q.dtype, q.device)
        if not self._lacking:
            return masked_attention(q, keys, values, mask, sinks)
        q = torch.cat([q, q[:, -1:].expand(-1, self._lacking, -1, -1)], dim=1)
        return masked_attention(q, keys, values, mask, sinks)[:, : -self._lacking]

    def _mask(self, spec: LayerSpec, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Made once a pass for all layers alike: it costs a tenth of a layer's attention of few rows."""
        causal, window, group = spec.causal, spec.window, spec.num_heads // spec.num_kv_heads
        kind = (causal, window, group, device)
        if kind not in self._masks:
            queries = self.positions[:, :, None]
            if self._lacking:
                queries = torch.cat([queries, queries[:, -1:].expand(-1, self._lacking, -1)], dim=1)
            keys = torch.arange(self.live, device=self.positions.device)[None, None]
            mask = keys <= (queries if causal else queries[:, -1:].expand_as(queries))  # [N, T, live]
            if window is not None:
                mask &= (queries - keys).abs() < window
            self._masks[kind] = folded_mask(mask, group, dtype).to(device)
        return self._masks[kind]
