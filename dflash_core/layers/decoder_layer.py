"""One pre-norm decoder layer, the same for targets and drafts; what differs stands in its spec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from dflash_core.layers.attention import Attend, Attention
from dflash_core.layers.mlp import MLP
from dflash_core.layers.moe import Mixture
from dflash_core.layers.rms_norm import RMSNorm
from dflash_core.layers.rotary_embedding import Rotary
from dflash_core.specs import LayerSpec


class DecoderLayer(nn.Module):
    def __init__(self, index: int, spec: LayerSpec) -> None:
        super().__init__()
        self.index = index
        self.spec = spec
        self.input_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.mlp = (
            Mixture(spec.hidden_size, spec.mixture) if spec.mixture else MLP(spec.hidden_size, spec.intermediate_size)
        )

    @property
    def device(self) -> torch.device:
        return self.input_layernorm.weight.device

    def forward(self, x: Tensor, rotary: Rotary, attend: Attend) -> Tensor:
        """x: [N, T, hidden] -> [N, T, hidden], the residual stream after this layer."""
        q, k, v = self.self_attn.project(self.input_layernorm(x), rotary)
        seen = attend(self.index, self.spec, self.self_attn.sinks, q, k, v)
        x = x + self.self_attn.o_proj(seen.flatten(-2))
        return x + self.mlp(self.post_attention_layernorm(x))


class DecoderLayers(nn.ModuleList):
    """A stack of decoder layers that knows what it holds."""

    def __init__(self, specs: Sequence[LayerSpec]) -> None:
        super().__init__(DecoderLayer(index, spec) for index, spec in enumerate(specs))

    def __iter__(self) -> Iterator[DecoderLayer]:
        return super().__iter__()  # type: ignore[return-value]
