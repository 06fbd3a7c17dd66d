"""What is computed, as data: a layer, a rotary embedding, a target, a draft. `configs.py` reads it from config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class MixtureSpec:
    """Many small gated MLPs in the place of one; a router picks a few of them for every row."""

    num_experts: int
    experts_per_row: int
    intermediate_size: int
    """Of one expert."""
    normalized: bool
    """Whether the picked experts' probabilities are scaled to sum to one."""
    router: Literal["softmax", "sigmoid"] = "softmax"
    """sigmoid: every expert is scored by itself, in fp32, and a learned bias on the scores joins the choice, never the
    weights (`noaux_tc` of DeepSeek-V3 and MiMo-V2)."""
    scale: float = 1.0
    """Factor on all weights, after they are normalized."""


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
    value_head_dim: int | None = None
    """Of values and of what a head gives to the output projection; None is `head_dim`."""

    @property
    def value_dim(self) -> int:
        return self.value_head_dim or self.head_dim

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def k_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def v_size(self) -> int:
        return self.num_kv_heads * self.value_dim

    @property
    def qkv_size(self) -> int:
        """Rows of the fused projection: queries, keys, values."""
        return self.q_size + self.k_size + self.v_size

    @property
    def seen_size(self) -> int:
        """What all heads together give to the output projection."""
        return self.num_heads * self.value_dim


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
    window_rotary: RotarySpec | None = None
    """Of layers with a window, where it is another than that of the others."""

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
