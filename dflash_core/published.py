"""Sizes of the published MiMo models, as their config.json give them: for arithmetic and step costs where the weights
themselves are not at hand. What is loaded is always read from the checkpoint's own config.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["plain", "fp8", "mxfp4"]
"""bf16; FP8 but for output projections, router, embedding and head; the same with MXFP4 experts."""


@dataclass(frozen=True, kw_only=True)
class Published:
    target: dict[str, Any]
    draft: dict[str, Any] | None
    form: Form


_GLOBAL_LAYERS = (0, 5, 11, 17, 23, 29, 35, 41, 47)

_MIMO_V2: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 16384,
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "hybrid_layer_pattern": [int(i not in _GLOBAL_LAYERS) for i in range(48)],
    "moe_layer_freq": [int(i > 0) for i in range(48)],
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": None,
    "partial_rotary_factor": 0.334,
    "swa_rope_theta": 10000,
    "sliding_window_size": 128,
    "attention_value_scale": 0.707,
    "add_swa_attention_sink_bias": True,
    "add_full_attention_sink_bias": False,
    "layernorm_epsilon": 1e-5,
    "vocab_size": 152576,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "hidden_act": "silu",
}
_V2_FLASH = _MIMO_V2 | {"model_type": "mimo_v2_flash", "rope_theta": 5000000, "max_position_embeddings": 262144}
_V2_5 = _MIMO_V2 | {
    "model_type": "mimo_v2",
    "rope_theta": 10000000,
    "max_position_embeddings": 1048576,
    "attention_projection_layout": "fused_qkv",
}

_DRAFT: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 16384,
    "num_hidden_layers": 5,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "partial_rotary_factor": 0.5,
    "block_size": 8,
    "num_target_layers": 48,
    "vocab_size": 152576,
    "max_position_embeddings": 262144,
    "rope_theta": 10000,
    "sliding_window": 1024,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
}
_DRAFT_NESTED: dict[str, Any] = {
    "target_layer_ids": [0, 11, 23, 35, 47],
    "mask_token_id": 151675,
    "block_size": 8,
    "use_swa": True,
    "swa_window_size": 1024,
    "backbone_rotary_base": 5000000,
    "attention_value_scale": 0.612,
    "attention_sink_bias": True,
}
DRAFT_V2_5 = _DRAFT | {"dflash_config": _DRAFT_NESTED}
DRAFT_V2_6 = _DRAFT | {
    "max_position_embeddings": 1048576,
    "layer_types": ["sliding_attention"] * 5,
    "is_causal": False,
    "use_sliding_window": True,
    "v_head_dim": 128,
    "add_swa_attention_sink_bias": True,
    "dflash_config": {
        "target_layer_ids": [0, 11, 23, 35, 47],
        "mask_token_id": 151675,
        "block_size": 8,
        "attention_value_scale": 0.612,
        "num_anchors": 4096,
    },
}
_PRO_GLOBAL_LAYERS = (0, 7, 15, 23, 31, 39, 47, 55, 63, 69)
"""Inferred: the draft taps global layers, and these are every eighth. Sizes do not depend on it, as both kinds have 8
key-value heads and keep all positions."""

_V2_5_PRO = _V2_5 | {
    "hidden_size": 6144,
    "num_hidden_layers": 70,
    "num_attention_heads": 128,
    "swa_num_attention_heads": 128,
    "num_key_value_heads": 8,
    "swa_num_key_value_heads": 8,
    "hybrid_layer_pattern": [int(i not in _PRO_GLOBAL_LAYERS) for i in range(70)],
    "moe_layer_freq": [int(i > 0) for i in range(70)],
    "n_routed_experts": 384,
    "vocab_size": 152064,
}
"""As published: hidden size, layers, heads, experts, vocabulary. The rest as in V2.5, with which it comes to the
published 1.02 T parameters of which a token uses 42 B."""
DRAFT_V2_5_PRO = _DRAFT | {
    "hidden_size": 6144,
    "vocab_size": 152064,
    "num_attention_heads": 128,
    "num_target_layers": 70,
    "dflash_config": _DRAFT_NESTED
    | {"target_layer_ids": [0, 15, 31, 47, 69], "num_anchors": 4096, "loss_decay_gamma": 7.0},
}

_MIMO_7B: dict[str, Any] = {
    "model_type": "mimo",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_bias": True,
    "rms_norm_eps": 1e-5,
    "rope_theta": 640000,
    "max_position_embeddings": 32768,
    "vocab_size": 151680,
    "tie_word_embeddings": False,
}

PUBLISHED: dict[str, Published] = {
    "mimo-v2-flash": Published(target=_V2_FLASH, draft=None, form="fp8"),
    "mimo-v2.5": Published(target=_V2_5, draft=DRAFT_V2_5, form="fp8"),
    "mimo-v2.5-pro": Published(target=_V2_5_PRO, draft=DRAFT_V2_5_PRO, form="fp8"),
    "mimo-v2.5-pro-fp4": Published(target=_V2_5_PRO, draft=DRAFT_V2_5_PRO, form="mxfp4"),
    "mimo-v2.6-flash": Published(target=_V2_5, draft=DRAFT_V2_6, form="mxfp4"),
    "mimo-7b": Published(target=_MIMO_7B, draft=None, form="plain"),
}
