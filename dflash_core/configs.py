"""What a checkpoint's config.json means: one layer spec, a target spec, a draft spec.

A model family is a spec plus a name map (`checkpoints/names.py`), never a class of its own. The keys read here are
those of published Hugging Face configs and of the DFlash drafts (z-lab and Xiaomi).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dflash_core.errors import CheckpointError, IncompatiblePairError, UnsupportedModelError

Config = Mapping[str, Any]

_LARGEST_BLOCK = 256
_LARGEST_SIZE = 1 << 24
"""Of any dimension: beyond it a config is damaged, and building from it would only exhaust the memory."""


@dataclass(frozen=True, kw_only=True)
class MixtureSpec:
    """Many small gated MLPs in the place of one; a router picks a few of them for every row."""

    num_experts: int
    experts_per_row: int
    intermediate_size: int
    """Of one expert."""
    normalized: bool
    """Whether the picked experts' probabilities are scaled to sum to one."""


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One decoder layer: grouped-query attention and a gated MLP (or a mixture of them), pre-norm."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    qk_norm: bool = False
    qkv_bias: bool = False
    sinks: bool = False
    """A learned logit per head that joins the softmax denominator and is dropped after it."""
    value_scale: float = 1.0
    """Factor on the values, applied after their projection and before they are cached."""
    window: int | None = None
    """Positions a query sees back, itself included; None is full attention."""
    causal: bool = True
    """False: every row of a block also sees the rows after it (a draft's block)."""
    mixture: MixtureSpec | None = None
    """None is one dense MLP of `intermediate_size`."""


@dataclass(frozen=True, kw_only=True)
class RotarySpec:
    """Rotary position embedding of the first `dim` channels of a head, half-split layout."""

    dim: int
    base: float
    scaling: Mapping[str, Any] | None = None
    """`rope_parameters` of a scaled type (llama3, yarn, ...) with the keys transformers documents; None is unscaled."""
    max_positions: int = 0


@dataclass(frozen=True, kw_only=True)
class TargetSpec:
    family: str
    vocab_size: int
    layers: tuple[LayerSpec, ...]
    rotary: RotarySpec
    tied_embeddings: bool
    max_positions: int
    eos_token_ids: tuple[int, ...] = ()

    @property
    def hidden_size(self) -> int:
        return self.layers[0].hidden_size


@dataclass(frozen=True, kw_only=True)
class DraftSpec:
    """A DFlash draft: no embedding and no head of its own, fed by hidden states of its target's layers.

    `target_layer_ids` i is the OUTPUT of target layer i, before the final norm also for the last layer.
    """

    vocab_size: int
    layers: tuple[LayerSpec, ...]
    rotary: RotarySpec
    block_size: int
    """Rows of one block: the anchor and block_size - 1 masks."""
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    mask_token_id: int
    config: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The config.json this spec was read from, kept so that a draft is saved with every key it came with."""

    @property
    def hidden_size(self) -> int:
        return self.layers[0].hidden_size


_TARGET_FAMILIES: dict[str, dict[str, bool]] = {
    "llama": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "qwen3_moe": {"qk_norm": True},
}


def target_spec(config: Config) -> TargetSpec:
    """Reads a target's config.json. Raises UnsupportedModelError for a family or option that the
    stack does not compute, else CheckpointError."""
    family = str(config.get("model_type", "?"))
    if family not in _TARGET_FAMILIES:
        known = ", ".join(_TARGET_FAMILIES)
        raise UnsupportedModelError(f"target: model_type {family!r} is not supported (supported: {known})")
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModelError(f"target: hidden_act {config['hidden_act']!r} is not supported (only silu)")
    if config.get("mlp_bias"):
        raise UnsupportedModelError("target: mlp_bias is not supported")
    if config.get("attention_bias") and family != "qwen2":
        raise UnsupportedModelError(f"target: attention_bias is not supported for {family}")
    if config.get("use_sliding_window"):
        raise UnsupportedModelError("target: sliding-window layers are not supported for this family")
    layer = _layer(config, **_TARGET_FAMILIES[family])
    eos = config.get("eos_token_id")
    return TargetSpec(
        family=family,
        vocab_size=_int(config, "vocab_size"),
        layers=_with_mixtures(config, layer) if family == "qwen3_moe" else (layer,) * _int(config, "num_hidden_layers"),
        rotary=_rotary(config, layer.head_dim),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_positions=_int(config, "max_position_embeddings"),
        eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
    )


def draft_spec(config: Config, *, rotary_base: float | None = None) -> DraftSpec:
    """Reads a draft's config.json (z-lab layout; keys in `dflash_config` win over the top level).

    `rotary_base` overrides the config's own, because published MiMo drafts contradict themselves about it.
    """
    nested = config.get("dflash_config") or {}

    def value(key: str, default: Any = None) -> Any:
        return nested.get(key, config.get(key, default))

    if config.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"draft: hidden_act {config['hidden_act']!r} is not supported (only silu)")
    if config.get("attention_bias"):
        raise CheckpointError("draft: attention_bias is not supported")
    num_layers = _int(config, "num_hidden_layers")
    base = _layer(
        config,
        qk_norm=True,
        sinks=bool(value("attention_sink_bias") or value("add_swa_attention_sink_bias") or False),
        value_scale=_positive("attention_value_scale", value("attention_value_scale"), 1.0),
    )
    layer_types = config.get("layer_types")
    window = value("swa_window_size") or config.get("sliding_window")
    if layer_types is None:
        layer_types = ["sliding_attention" if value("use_swa") else "full_attention"] * num_layers
        implied_causal = False  # use_swa without layer_types is the MiMo case: a window, not causal
    else:
        implied_causal = True  # a layer listed as sliding is causal unless the config says otherwise
    if not isinstance(layer_types, list):
        raise CheckpointError(f"config.json: layer_types must be a list, got {layer_types!r}")
    if len(layer_types) != num_layers:
        raise CheckpointError(
            f"draft: layer_types lists {len(layer_types)} layers, num_hidden_layers says {num_layers}"
        )
    causal = value("is_causal", value("causal"))
    layers = []
    for kind in layer_types:
        if kind not in ("full_attention", "sliding_attention"):
            raise CheckpointError(f"draft: layer type {kind!r} is not supported")
        sliding = kind == "sliding_attention"
        if sliding and not window:
            raise CheckpointError("draft: a sliding_attention layer needs sliding_window or swa_window_size")
        layers.append(
            LayerSpec(
                **{
                    **base.__dict__,
                    "window": _whole("sliding_window", window) if sliding else None,
                    "causal": bool(causal) if causal is not None else sliding and implied_causal,
                }
            )
        )
    num_target_layers = _whole("num_target_layers", value("num_target_layers") or 0, low=0)
    ids = value("target_layer_ids")
    if ids is None and num_target_layers:
        ids = default_target_layer_ids(num_layers, num_target_layers)
    if not ids:
        raise CheckpointError("draft: config.json names neither target_layer_ids nor num_target_layers")
    if not isinstance(ids, list) or not all(type(i) is int for i in ids) or len(set(ids)) != len(ids):
        raise CheckpointError(f"config.json: target_layer_ids must be different whole numbers, got {ids!r}")
    if value("mask_token_id") is None:
        raise CheckpointError("draft: config.json has no mask_token_id")
    mask = _whole("mask_token_id", value("mask_token_id"), low=0, high=1 << 31)
    block_size = _whole("block_size", value("block_size") or 16, low=2, high=_LARGEST_BLOCK)
    return DraftSpec(
        vocab_size=_int(config, "vocab_size"),
        layers=tuple(layers),
        rotary=_rotary(config, base.head_dim, base_override=rotary_base),
        block_size=block_size,
        target_layer_ids=tuple(ids),
        num_target_layers=num_target_layers,
        mask_token_id=mask,
        config=dict(config),
    )


def default_target_layer_ids(num_draft_layers: int, num_target_layers: int) -> list[int]:
    """The published rule for a draft that names no layers: evenly spaced from layer 1 to layer n - 3."""
    if num_draft_layers == 1:
        return [num_target_layers // 2]
    first, last = 1, num_target_layers - 3
    return [round(first + i * (last - first) / (num_draft_layers - 1)) for i in range(num_draft_layers)]


def check_pair(target: TargetSpec, draft: DraftSpec) -> None:
    """Raises IncompatiblePairError, naming the first property in which the draft does not fit the target."""
    if draft.hidden_size != target.hidden_size:
        raise IncompatiblePairError(
            f"draft does not fit its target: hidden size {draft.hidden_size}, target has {target.hidden_size}"
        )
    if draft.vocab_size != target.vocab_size:
        raise IncompatiblePairError(
            f"draft does not fit its target: vocabulary of {draft.vocab_size}, target has {target.vocab_size}"
        )
    n = len(target.layers)
    if draft.num_target_layers and draft.num_target_layers != n:
        raise IncompatiblePairError(
            f"draft does not fit its target: made for {draft.num_target_layers} layers, target has {n}"
        )
    outside = [i for i in draft.target_layer_ids if not 0 <= i < n]
    if outside:
        raise IncompatiblePairError(
            f"draft does not fit its target: target_layer_ids {outside} are not in 0..{n - 1} of the target"
        )
    if not 0 <= draft.mask_token_id < target.vocab_size:
        raise IncompatiblePairError(
            f"draft does not fit its target: mask_token_id {draft.mask_token_id} is outside the vocabulary "
            f"of {target.vocab_size}"
        )


def _layer(config: Config, **options: Any) -> LayerSpec:
    heads = _int(config, "num_attention_heads")
    hidden = _int(config, "hidden_size")
    return LayerSpec(
        hidden_size=hidden,
        intermediate_size=_int(config, "intermediate_size"),
        num_heads=heads,
        num_kv_heads=_whole("num_key_value_heads", config.get("num_key_value_heads") or heads),
        head_dim=_whole("head_dim", config.get("head_dim") or hidden // heads),
        rms_norm_eps=_positive("rms_norm_eps", config.get("rms_norm_eps"), 1e-6),
        **options,
    )


def _with_mixtures(config: Config, layer: LayerSpec) -> tuple[LayerSpec, ...]:
    """The stack of a Qwen3-MoE: every `decoder_sparse_step`-th layer is a mixture, `mlp_only_layers` excepted."""
    # Published configs say num_experts; transformers 5 writes num_local_experts.
    experts = _whole("num_experts", config.get("num_experts", config.get("num_local_experts")), high=1 << 16)
    mixture = MixtureSpec(
        num_experts=experts,
        experts_per_row=_whole("num_experts_per_tok", config.get("num_experts_per_tok"), high=experts),
        intermediate_size=_int(config, "moe_intermediate_size"),
        normalized=bool(config.get("norm_topk_prob", False)),
    )
    step = _whole("decoder_sparse_step", config.get("decoder_sparse_step", 1))
    dense = config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(i) is int for i in dense):
        raise CheckpointError(f"config.json: mlp_only_layers must be a list of whole numbers, got {dense!r}")
    return tuple(
        replace(layer, mixture=mixture) if index not in dense and (index + 1) % step == 0 else layer
        for index in range(_int(config, "num_hidden_layers"))
    )


def _rotary(config: Config, head_dim: int, base_override: float | None = None) -> RotarySpec:
    # transformers 5 writes `rope_parameters`; older configs have `rope_theta` and `rope_scaling`.
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise CheckpointError(f"config.json: rope_parameters must be an object, got {found!r}")
    base = _positive("rope_theta", base_override or found.get("rope_theta") or config.get("rope_theta"), 10000.0)
    factor = found.get("partial_rotary_factor") or config.get("partial_rotary_factor")
    kind = found.get("rope_type") or found.get("type") or "default"
    scaling = None if kind == "default" else {**found, "rope_type": kind, "rope_theta": base}
    return RotarySpec(
        dim=int(head_dim * _positive("partial_rotary_factor", factor, 1.0)),
        base=base,
        scaling=scaling,
        max_positions=_int(config, "max_position_embeddings") if "max_position_embeddings" in config else 0,
    )


def _int(config: Config, key: str) -> int:
    return _whole(key, config.get(key))


def _whole(key: str, value: Any, low: int = 1, high: int = _LARGEST_SIZE) -> int:
    if type(value) is not int or not low <= value <= high:
        raise CheckpointError(f"config.json: {key} must be a whole number from {low} to {high}, got {value!r}")
    return value


def _positive(key: str, value: Any, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CheckpointError(f"config.json: {key} must be a number above 0, got {value!r}")
    return float(value)
