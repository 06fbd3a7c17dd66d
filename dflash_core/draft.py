"""The DFlash draft: fills a block of masked positions in one forward pass (DFlash paper, arXiv 2602.06036).

It has no embedding and no head of its own. What it knows of the text comes as hidden states of several target layers,
projected once (`context`) and injected as keys and values into every layer (`write_context`): context rows never make
queries, never pass an MLP. Row 0 of a block is the anchor, the last committed token; row k predicts the token at
anchor + k, the position whose input is the mask.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from dflash_core.kv_cache import KVCache
from dflash_core.layers.attention import Attend
from dflash_core.layers.decoder_layer import DecoderLayers
from dflash_core.layers.linear import Linear
from dflash_core.layers.rms_norm import RMSNorm
from dflash_core.layers.rotary_embedding import RotaryEmbedding
from dflash_core.specs import DraftSpec


class Draft(nn.Module):
    """A few decoder layers over a block, with the context of the target injected as keys and values."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        self.spec = spec
        hidden, eps = spec.hidden_size, spec.layers[0].rms_norm_eps
        self.fc = Linear(len(spec.target_layer_ids) * hidden, hidden)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.layers = DecoderLayers(spec.layers)
        self.norm = RMSNorm(hidden, eps)
        self.rotary = RotaryEmbedding(spec.rotary)
        # A vector of its own: published mask rows of the target's table are often untrained (MiMo's is near zero).
        self.mask_embedding = nn.Parameter(torch.empty(hidden))

    def turn_by(self, base: float) -> None:
        """Replaces the rotary base; keys that were written by the old one are of no use after that."""
        self.spec = replace(self.spec, rotary=replace(self.spec.rotary, base=base))
        self.rotary = RotaryEmbedding(self.spec.rotary).to(self.mask_embedding.device)

    def context(self, features: Tensor) -> Tensor:
        """features: [N, T, len(target_layer_ids) * hidden] of the target -> [N, T, hidden], shared by all layers."""
        return self.hidden_norm(self.fc(features))

    def write_context(self, features: Tensor, positions: Tensor, cache: KVCache) -> None:
        """Injects target features at their positions [N, T]: keys and values of every layer, nothing else.

        The layers' input norm is not applied: it belongs to block rows (reference, notes to 1.1).
        """
        context, rotary = self.context(features), self.rotary(positions)
        for layer in self.layers:
            cache.write(layer.index, positions, *layer.self_attn.project_keys_values(context, rotary))

    def block_input(self, anchor: Tensor) -> Tensor:
        """anchor: embedding of the anchor tokens [N, 1, hidden] -> [N, block_size, hidden]: anchor, then masks."""
        masks = self.mask_embedding.to(anchor.dtype).expand(anchor.shape[0], self.spec.block_size - 1, -1)
        return torch.cat([anchor, masks], dim=1)

    def forward(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """x: [N, T, hidden], positions: [N, T] -> [N, T, hidden], ready for the target's head."""
        rotary = self.rotary(positions)
        for layer in self.layers:
            x = layer(x, rotary, attend)
        return self.norm(x)
