"""What a checkpoint's config.json means: a target spec, a draft spec.

A model family is a spec plus a name map (`checkpoints/names.py`), never a class of its own. The keys read here are
those of published Hugging Face configs and of the DFlash drafts (z-lab and Xiaomi); MiMo-V2's own are read by
`mimo_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dflash_core import mimo_config
from dflash_core.config_values import Config, eos_ids, positive, size, whole
from dflash_core.errors import CheckpointError, IncompatiblePairError, UnsupportedModelError
from dflash_core.specs import DraftSpec, LayerSpec, MixtureSpec, RotarySpec, TargetSpec

_LARGEST_BLOCK = 256

_TARGET_FAMILIES: dict[str, dict[str, bool]] = {
    "llama": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "qwen3_moe": {"qk_norm": True},
    "mimo": {"qkv_bias": True},  # MiMo-7B: a Qwen2 with layers for multi-token prediction, which are not computed here
}


def target_spec(config: Config) -> TargetSpec:
    """Reads a target's config.json. Raises UnsupportedModelError for a family or option that the
    stack does not compute, else CheckpointError."""
    family = str(config.get("model_type", "?"))
    if family in mimo_config.FAMILIES:
        return mimo_config.target_spec(config, family)
    if family not in _TARGET_FAMILIES:
        known = ", ".join((*_TARGET_FAMILIES, *mimo_config.FAMILIES))
        raise UnsupportedModelError(f"target: model_type {family!r} is not supported (supported: {known})")
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModelError(f"target: hidden_act {config['hidden_act']!r} is not supported (only silu)")
    if config.get("mlp_bias"):
        raise UnsupportedModelError("target: mlp_bias is not supported")
    if config.get("attention_bias") and not _TARGET_FAMILIES[family].get("qkv_bias"):
        raise UnsupportedModelError(f"target: attention_bias is not supported for {family}")
    if config.get("use_sliding_window"):
        raise UnsupportedModelError("target: sliding-window layers are not supported for this family")
    layer = _layer(config, **_TARGET_FAMILIES[family])
    return TargetSpec(
        family=family,
        vocab_size=size(config, "vocab_size"),
        layers=_with_mixtures(config, layer) if family == "qwen3_moe" else (layer,) * size(config, "num_hidden_layers"),
        rotary=_rotary(config, layer.head_dim),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_positions=size(config, "max_position_embeddings"),
        eos_token_ids=eos_ids(config),
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
    num_layers = size(config, "num_hidden_layers")
    base = _layer(
        config,
        qk_norm=True,
        sinks=bool(value("attention_sink_bias") or value("add_swa_attention_sink_bias") or False),
        value_scale=positive("attention_value_scale", value("attention_value_scale"), 1.0),
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
                    "window": whole("sliding_window", window) if sliding else None,
                    "causal": bool(causal) if causal is not None else sliding and implied_causal,
                }
            )
        )
    num_target_layers = whole("num_target_layers", value("num_target_layers") or 0, low=0)
    ids = value("target_layer_ids")
    if ids is None and num_target_layers:
        ids = default_target_layer_ids(num_layers, num_target_layers)
    if not ids:
        raise CheckpointError("draft: config.json names neither target_layer_ids nor num_target_layers")
    if not isinstance(ids, list) or not all(type(i) is int for i in ids) or len(set(ids)) != len(ids):
        raise CheckpointError(f"config.json: target_layer_ids must be different whole numbers, got {ids!r}")
    if value("mask_token_id") is None:
        raise CheckpointError("draft: config.json has no mask_token_id")
    mask = whole("mask_token_id", value("mask_token_id"), low=0, high=1 << 31)
    block_size = whole("block_size", value("block_size") or 16, low=2, high=_LARGEST_BLOCK)
    return DraftSpec(
        vocab_size=size(config, "vocab_size"),
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
    found = misfits(draft, target.hidden_size, target.vocab_size, len(target.layers))
    if found:
        raise IncompatiblePairError(f"draft does not fit its target: {found[0]}")


def misfits(draft: DraftSpec, hidden_size: int, vocab_size: int, layers: int) -> list[str]:
    """Why a draft cannot run over a target of these sizes, in plain words; [] when it can."""
    found = []
    if draft.hidden_size != hidden_size:
        found.append(f"hidden size {draft.hidden_size}, target has {hidden_size}")
    if draft.vocab_size != vocab_size:
        found.append(f"vocabulary of {draft.vocab_size}, target has {vocab_size}")
    if draft.num_target_layers and draft.num_target_layers != layers:
        found.append(f"made for {draft.num_target_layers} layers, target has {layers}")
    outside = [i for i in draft.target_layer_ids if not 0 <= i < layers]
    if outside:
        found.append(f"target_layer_ids {outside} are not in 0..{layers - 1} of the target")
    if not 0 <= draft.mask_token_id < vocab_size:
        found.append(f"mask_token_id {draft.mask_token_id} is outside the vocabulary of {vocab_size}")
    return found


def _layer(config: Config, **options: Any) -> LayerSpec:
    heads = size(config, "num_attention_heads")
    hidden = size(config, "hidden_size")
    return LayerSpec(
        hidden_size=hidden,
        intermediate_size=size(config, "intermediate_size"),
        num_heads=heads,
        num_kv_heads=whole("num_key_value_heads", config.get("num_key_value_heads") or heads),
        head_dim=whole("head_dim", config.get("head_dim") or hidden // heads),
        rms_norm_eps=positive("rms_norm_eps", config.get("rms_norm_eps"), 1e-6),
        **options,
    )


def _with_mixtures(config: Config, layer: LayerSpec) -> tuple[LayerSpec, ...]:
    """The stack of a Qwen3-MoE: every `decoder_sparse_step`-th layer is a mixture, `mlp_only_layers` excepted."""
    # Published configs say num_experts; transformers 5 writes num_local_experts.
    experts = whole("num_experts", config.get("num_experts", config.get("num_local_experts")), high=1 << 16)
    mixture = MixtureSpec(
        num_experts=experts,
        experts_per_row=whole("num_experts_per_tok", config.get("num_experts_per_tok"), high=experts),
        intermediate_size=size(config, "moe_intermediate_size"),
        normalized=bool(config.get("norm_topk_prob", False)),
    )
    step = whole("decoder_sparse_step", config.get("decoder_sparse_step", 1))
    dense = config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(i) is int for i in dense):
        raise CheckpointError(f"config.json: mlp_only_layers must be a list of whole numbers, got {dense!r}")
    return tuple(
        replace(layer, mixture=mixture) if index not in dense and (index + 1) % step == 0 else layer
        for index in range(size(config, "num_hidden_layers"))
    )


def _rotary(config: Config, head_dim: int, base_override: float | None = None) -> RotarySpec:
    # transformers 5 writes `rope_parameters`; older configs have `rope_theta` and `rope_scaling`.
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise CheckpointError(f"config.json: rope_parameters must be an object, got {found!r}")
    base = positive("rope_theta", base_override or found.get("rope_theta") or config.get("rope_theta"), 10000.0)
    factor = found.get("partial_rotary_factor") or config.get("partial_rotary_factor")
    kind = found.get("rope_type") or found.get("type") or "default"
    scaling = None if kind == "default" else {**found, "rope_type": kind, "rope_theta": base}
    return RotarySpec(
        dim=int(head_dim * positive("partial_rotary_factor", factor, 1.0)),
        base=base,
        scaling=scaling,
        max_positions=size(config, "max_position_embeddings") if "max_position_embeddings" in config else 0,
    )
