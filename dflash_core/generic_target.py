"""A target of any family that transformers knows, computed by transformers' own model: the slower path.

Same interface as `Target`. The features for a draft are taken by hooks on the decoder layers: the residual stream
AFTER a layer and BEFORE the final norm, also for the last layer (the `hidden_states` that transformers returns hold
the normed one there). Every layer's cache keeps the whole text, sliding layers included, and is cropped back to where
a pass begins: what was rejected, or rewound, goes.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dflash_core.errors import CheckpointError
from dflash_core.specs import LayerSpec, RotarySpec, TargetSpec
from dflash_core.target import Target

_CHECKED_TOKENS = 12
_CHECKED_TOLERANCE = 0.05
"""Of the largest logit: far above what the order of sums does in bf16, far below what a wrong rule does."""


class GenericCache:
    """The keys and values of one session in transformers' own cache; also the `attend` that a pass is given."""

    def __init__(self, spec: TargetSpec, capacity: int, dtype: torch.dtype) -> None:
        self.cache = _new_cache()
        layer = spec.layers[0]
        # What a full session will take: the cache grows with the text, but room must be there for all of it.
        self.nbytes = 2 * len(spec.layers) * capacity * layer.num_kv_heads * layer.head_dim * dtype.itemsize

    def crop(self, length: int) -> None:
        """Forgets what lies at `length` and beyond."""
        if (beyond := self.cache.get_seq_length() - length) > 0:
            self.cache.crop(-beyond)

    def copy_prefix(self, source: GenericCache, length: int) -> None:
        """Takes over the first `length` positions of another cache of the same model."""
        self.cache = _new_cache()
        for index, layer in enumerate(source.cache.layers):
            keys, values = layer.keys, layer.values
            if keys is not None and values is not None:
                self.cache.update(keys[..., :length, :].clone(), values[..., :length, :].clone(), index)


class GenericTarget(Target):
    """transformers' model behind the interface of `Target`. `attend` of a pass is a session's `GenericCache`."""

    def __init__(self, model: Any) -> None:
        """model: a causal language model of transformers in eval mode. Raises CheckpointError when it cannot serve."""
        nn.Module.__init__(self)
        config = model.config.get_text_config(decoder=True)
        self.model = model
        self.base = model.base_model
        self.spec = _spec(config)
        self.stages = (range(len(self.spec.layers)),)
        self.blocks = _decoder_layers(self.base, len(self.spec.layers))
        names = inspect.signature(self.base.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        # How known families turn the head's product into logits; `check` finds those that do otherwise.
        self._cap = getattr(config, "final_logit_softcapping", None)
        self._scale = float(getattr(config, "logit_scale", None) or 1.0)
        self._scale /= float(getattr(config, "logits_scaling", None) or 1.0)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def new_cache(self, capacity: int) -> GenericCache:
        return GenericCache(self.spec, capacity, self.dtype)

    def embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.model.get_input_embeddings()(tokens)
        return embedded

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Any, tapped: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """As `Target.forward`, for one session: tokens, positions [1, T]."""
        attend.crop(int(positions[0, 0]))
        outputs: dict[int, Tensor] = {}

        def keep(index: int) -> Any:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                outputs[index] = output[0] if isinstance(output, tuple) else output

            return hook

        hooks = [self.blocks[index].register_forward_hook(keep(index)) for index in tapped]
        try:
            done = self.base(input_ids=tokens, use_cache=True, **{self._cache_name: attend.cache})
        finally:
            for hook in hooks:
                hook.remove()
        features = torch.cat([outputs[i] for i in tapped], dim=-1) if tapped else None
        return done.last_hidden_state, features

    def logits(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.model.get_output_embeddings()(hidden) * self._scale
        return found if self._cap is None else torch.tanh(found / self._cap) * self._cap

    @torch.inference_mode()
    def check(self) -> None:
        """Compares with transformers' own forward pass: logits, and that a rewound cache is as good as a new one.

        Raises CheckpointError for a family whose logits or whose cache are of a kind that is not known here.
        """
        ids = torch.arange(1, _CHECKED_TOKENS + 1, device=self.device)[None] % self.spec.vocab_size
        positions = torch.arange(_CHECKED_TOKENS, device=self.device)[None]
        whole = self.model(input_ids=ids, use_cache=False).logits
        cache, half = self.new_cache(_CHECKED_TOKENS), _CHECKED_TOKENS // 2
        self(ids.flip(-1), positions, cache)
        self(ids[:, :half], positions[:, :half], cache)
        hidden, _ = self(ids[:, half:], positions[:, half:], cache)
        found = self.logits(hidden)
        if not torch.isfinite(whole).all():
            raise CheckpointError("target: the weights give values that are not finite")
        if (found - whole[:, half:]).abs().max() > _CHECKED_TOLERANCE * whole.abs().max():
            raise CheckpointError(
                f"target: model_type {self.spec.family!r} is not supported: its logits or its cache differ"
            )


def _new_cache() -> Any:
    # On first use: sessions know this class, and most targets do without transformers.
    from transformers import DynamicCache

    # Without the config: with it sliding layers would drop what a rewind needs again.
    return DynamicCache()


def _decoder_layers(base: nn.Module, count: int) -> list[nn.Module]:
    for module in base.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    raise CheckpointError("target: its decoder layers cannot be found in transformers' model")


def _spec(config: Any) -> TargetSpec:
    """What the rest of the core asks about a target. The layers are told from one another by nothing here."""
    heads = int(config.num_attention_heads)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    layer = LayerSpec(
        hidden_size=int(config.hidden_size),
        intermediate_size=int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size),
        num_heads=heads,
        num_kv_heads=int(kv_heads),
        head_dim=int(head_dim),
        rms_norm_eps=0.0,
    )
    eos = getattr(config, "eos_token_id", None)
    longest = int(getattr(config, "max_position_embeddings", None) or 1 << 20)
    return TargetSpec(
        family=str(config.model_type),
        vocab_size=int(config.vocab_size),
        layers=(layer,) * int(config.num_hidden_layers),
        rotary=RotarySpec(dim=int(head_dim), base=10000.0),
        tied_embeddings=bool(getattr(config, "tie_word_embeddings", False)),
        max_positions=longest,
        eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
    )
