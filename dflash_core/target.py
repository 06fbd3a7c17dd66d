"""The target: the model whose text is wanted. Any family is a spec; see `configs.py`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dflash_core.layers.attention import Attend
from dflash_core.layers.decoder_layer import DecoderLayers
from dflash_core.layers.linear import Linear, linear
from dflash_core.layers.rms_norm import RMSNorm
from dflash_core.layers.rotary_embedding import RotaryEmbedding
from dflash_core.specs import TargetSpec


class Target(nn.Module):
    """Decoder stack with embedding, final norm and head."""

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embed_tokens = nn.Parameter(torch.empty(spec.vocab_size, spec.hidden_size))
        self.layers = DecoderLayers(spec.layers)
        self.norm = RMSNorm(spec.hidden_size, spec.layers[0].rms_norm_eps)
        self.lm_head = None if spec.tied_embeddings else Linear(spec.hidden_size, spec.vocab_size)
        self.rotary = RotaryEmbedding(spec.rotary)
        self.window_rotary = RotaryEmbedding(spec.window_rotary) if spec.window_rotary else None
        self.stages: tuple[range, ...] = (range(len(spec.layers)),)
        """Which layers lie on one device after the other; embedding, norm and head are with the first."""

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_tokens.dtype

    def embed(self, tokens: Tensor) -> Tensor:
        """tokens: [N, T] -> [N, T, hidden]."""
        return nn.functional.embedding(tokens, self.embed_tokens)

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, tapped: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """One pass over new tokens.

        tokens, positions: [N, T]; tapped: layer ids whose outputs feed a draft.
        Returns the normed last hidden state [N, T, hidden] (input of `logits`) and the features
        [N, T, len(tapped) * hidden], or None. A feature is the residual stream AFTER its layer and BEFORE the final
        norm, also for the last layer (MiMo taps it).
        """
        rotary = self.rotary(positions)
        window_rotary = self.window_rotary(positions) if self.window_rotary else rotary
        x = self.embed(tokens)
        outputs: dict[int, Tensor] = {}
        for layer in self.layers:
            cos, sin = window_rotary if layer.spec.window else rotary
            x = layer(x.to(layer.device), (cos.to(layer.device), sin.to(layer.device)), attend)
            if layer.index in tapped:
                outputs[layer.index] = x.to(self.device)
        features = torch.cat([outputs[i] for i in tapped], dim=-1) if tapped else None
        return self.norm(x.to(self.device)), features

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [N, T, hidden] after the final norm (a target's own or its draft's) -> [N, T, vocab]."""
        return self.lm_head(hidden) if self.lm_head is not None else linear(hidden, self.embed_tokens)
