"""Reads the config.json of the MiMo-V2 family: `mimo_v2_flash` (V2-Flash) and `mimo_v2` (V2.5, V2.6, Pro).

Layers alternate between global attention and a window, each kind with its own key-value heads, rotary base and sinks;
all but the first are mixtures. Both spellings are read: the published one (`hybrid_layer_pattern`, `swa_*`,
`moe_layer_freq`, `layernorm_epsilon`) and that of transformers (`layer_types`, `mlp_layer_types`, `rope_parameters` by
kind of layer). Of an omni checkpoint the text part is described; the rest of it is not computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dflash_core.config_values import Config, eos_ids, positive, size, whole
from dflash_core.errors import CheckpointError, UnsupportedModelError
from dflash_core.specs import LayerSpec, MixtureSpec, RotarySpec, TargetSpec

FAMILIES = ("mimo_v2_flash", "mimo_v2")

_GLOBAL_EVERY = 6
"""Where a config lists no kinds: layer 0 and every sixth are global (V2-Flash)."""
_PARTIAL_ROTARY = 0.334
_GLOBAL_BASE, _WINDOW_BASE = 5e6, 1e4
_WINDOW = 128


def target_spec(config: Config, family: str) -> TargetSpec:
    """Raises CheckpointError for a value that cannot be, UnsupportedModelError for what the stack does not compute."""
    # An omni checkpoint may keep the text part's keys in a table of their own.
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = {**config, **text}
    _refuse_unsupported(config)
    count = size(config, "num_hidden_layers")
    windowed, mixed = _windowed(config, count), _mixed(config, count)
    full, window = _attention(config, windowed=False), _attention(config, windowed=True)
    mixture = _mixture(config) if any(mixed) else None
    return TargetSpec(
        family=family,
        vocab_size=size(config, "vocab_size"),
        layers=tuple(
            LayerSpec(**(window if slides else full), mixture=mixture if sparse else None)
            for slides, sparse in zip(windowed, mixed, strict=True)
        ),
        rotary=_rotary(config, full["head_dim"], windowed=False),
        window_rotary=_rotary(config, window["head_dim"], windowed=True),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_positions=size(config, "max_position_embeddings"),
        eos_token_ids=eos_ids(config),
    )


def _refuse_unsupported(config: Config) -> None:
    wanted = {
        "hidden_act": ("silu",),
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        "n_group": (None, 1),
        "topk_group": (None, 1),
        "n_shared_experts": (None, 0),
        "attention_bias": (None, False),
    }
    for key, allowed in wanted.items():
        if key in config and config[key] not in allowed:
            raise UnsupportedModelError(f"target: {key} {config[key]!r} is not supported (only {allowed[-1]!r})")


def _windowed(config: Config, count: int) -> list[bool]:
    """Whether each layer looks through a window."""
    pattern, types = config.get("hybrid_layer_pattern"), config.get("layer_types")
    if pattern is not None:
        return _kinds("hybrid_layer_pattern", pattern, count, {0: False, 1: True})
    if types is not None:
        return _kinds("layer_types", types, count, {"full_attention": False, "sliding_attention": True})
    return [i > 0 and (i + 1) % _GLOBAL_EVERY != 0 for i in range(count)]


def _mixed(config: Config, count: int) -> list[bool]:
    """Whether each layer's MLP is a mixture."""
    frequency, types = config.get("moe_layer_freq"), config.get("mlp_layer_types")
    if frequency is not None:
        return _kinds("moe_layer_freq", frequency, count, {0: False, 1: True})
    if types is not None:
        return _kinds("mlp_layer_types", types, count, {"dense": False, "sparse": True})
    return [i > 0 for i in range(count)]


def _kinds(key: str, values: Any, count: int, meaning: dict[Any, bool]) -> list[bool]:
    if not isinstance(values, list) or len(values) != count or not all(value in meaning for value in values):
        raise CheckpointError(f"config.json: {key} must list one of {list(meaning)} for each of {count} layers")
    return [meaning[value] for value in values]


def _attention(config: Config, *, windowed: bool) -> dict[str, Any]:
    """What one kind of layer is, its MLP aside."""

    def own(key: str, default: Any) -> int:
        """The window layers' own value where there is one."""
        value = config.get(f"swa_{key}") if windowed else None
        return whole(key, default if value is None else value)

    heads = own("num_attention_heads", config.get("num_attention_heads"))
    kv_heads = whole("num_key_value_heads", config.get("num_key_value_heads"))
    head_dim = own("head_dim", config.get("head_dim"))
    found = own("num_key_value_heads", 2 * kv_heads if windowed else kv_heads)
    if heads % found:
        raise CheckpointError(f"config.json: num_key_value_heads {found} must divide {heads} attention heads")
    scale = config.get("attention_value_scale")
    # transformers' own default; a published null is no scale at all.
    scale = 0.707 if "attention_value_scale" not in config else 1.0 if scale is None else scale
    return {
        "hidden_size": size(config, "hidden_size"),
        "intermediate_size": size(config, "intermediate_size"),
        "num_heads": heads,
        "num_kv_heads": found,
        "head_dim": head_dim,
        "value_head_dim": own("v_head_dim", config.get("v_head_dim") or head_dim),
        "rms_norm_eps": positive(
            "layernorm_epsilon", config.get("layernorm_epsilon", config.get("rms_norm_eps")), 1e-5
        ),
        "sinks": bool(config.get("add_swa_attention_sink_bias", True))
        if windowed
        else bool(config.get("add_full_attention_sink_bias", False)),
        "value_scale": positive("attention_value_scale", scale, 1.0),
        "window": _window(config) if windowed else None,
    }


def _window(config: Config) -> int:
    """Positions that a query sees, itself included.

    The published `sliding_window_size` counts those BEFORE the query (SGLang's rule); transformers' `sliding_window`,
    where it stands alone, counts the query too.
    """
    before = config.get("sliding_window_size")
    if before is not None:
        return whole("sliding_window_size", before) + 1
    return whole("sliding_window", config.get("sliding_window", _WINDOW + 1))


def _mixture(config: Config) -> MixtureSpec:
    experts = next((config[k] for k in ("n_routed_experts", "num_local_experts", "num_experts") if k in config), None)
    count = whole("n_routed_experts", experts, high=1 << 16)
    return MixtureSpec(
        num_experts=count,
        experts_per_row=whole("num_experts_per_tok", config.get("num_experts_per_tok"), high=count),
        intermediate_size=size(config, "moe_intermediate_size"),
        normalized=bool(config.get("norm_topk_prob", True)),
        router="sigmoid",
        scale=positive("routed_scaling_factor", config.get("routed_scaling_factor"), 1.0),
    )


def _rotary(config: Config, head_dim: int, *, windowed: bool) -> RotarySpec:
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise CheckpointError(f"config.json: rope_parameters must be an object, got {found!r}")
    kind = "sliding_attention" if windowed else "full_attention"
    by_kind = found.get(kind)
    own = by_kind if isinstance(by_kind, Mapping) else found
    if (own.get("rope_type") or own.get("type") or "default") != "default":
        raise UnsupportedModelError("target: scaled rotary positions are not supported for this family")
    if windowed:
        # The flat table of V2.5 and V2.6 holds the base of global layers alone.
        base = positive(
            "swa_rope_theta", own.get("rope_theta") if by_kind else config.get("swa_rope_theta"), _WINDOW_BASE
        )
    else:
        base = positive("rope_theta", own.get("rope_theta") or config.get("rope_theta"), _GLOBAL_BASE)
    share = own.get("partial_rotary_factor") or config.get("partial_rotary_factor")
    dim = int(head_dim * positive("partial_rotary_factor", share, _PARTIAL_ROTARY))
    if dim % 2 or not 0 < dim <= head_dim:
        raise CheckpointError(f"config.json: partial_rotary_factor {share} turns {dim} of {head_dim} channels")
    return RotarySpec(dim=dim, base=base, max_positions=size(config, "max_position_embeddings"))
