"""How a target is tuned and a draft is trained: sizes and numbers of the runs, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from dflash_core.errors import DFlashError
from dflash_core.specs import TargetSpec


def rate(step: int, warm_up_steps: int, share: float) -> float:
    """Of the learning rate: a linear warm-up, then a cosine over the schedule down to a fiftieth."""
    return min(1.0, (step + 1) / max(1, warm_up_steps)) * (
        0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    )


@dataclass(frozen=True, kw_only=True)
class TargetRecipe:
    """Defaults are those of the embedded target's tuning."""

    rank: int = 64
    """Of the change of each projection; 0 tunes everything."""
    minutes: float = 20.0
    """Length of the whole run by the clock, over all its pieces and without compilation; the schedule follows it."""
    max_steps: int = 1_000_000
    row_tokens: int = 2048
    rows: int = 24
    """Rows a step."""
    head_rows: int = 4
    """Rows whose logits are held at once."""
    learning_rate: float = 1e-3
    warm_up_steps: int = 50
    long_due: int = 48
    """Tokens. Examples of which at least so many are due come `long_times` times a pass."""
    long_times: int = 1
    rest_weight: float = 0.25
    """Weight of a token that is not due, next to one that is: there are many more of them."""
    clip: float = 1.0
    seed: int = 0
    report_steps: int = 50
    held_steps: int = 500
    held_rows: int = 24
    """Rows of each held-out split that are read for the curve."""
    save_minutes: float = 2.0

    def __post_init__(self) -> None:
        if self.rank < 0 or self.rows < 1 or self.row_tokens < 2 or self.minutes <= 0 or self.long_times < 1:
            raise DFlashError("rank must be 0 or more, rows, row tokens, long times and minutes above 0")


@dataclass(frozen=True, kw_only=True)
class DraftRecipe:
    """Defaults follow the published recipe where a small target allows it (DFlash paper, A.1: random anchors, AdamW,
    cosine schedule, clip at 1.0, decay 4 for a block of 8)."""

    layers: int = 4
    block_size: int = 8
    mask_token_id: int = 16
    target_layer_ids: tuple[int, ...] | None = None
    """None: five layers, evenly spaced from the first to the last."""
    minutes: float = 10.0
    """Length of the run by the clock, without compilation; the schedule follows it."""
    max_steps: int = 1_000_000
    row_tokens: int = 1024
    rows: int = 48
    """Sequences a step."""
    anchors: int = 128
    """Blocks a sequence."""
    learning_rate: float = 1.5e-3
    warm_up_steps: int = 100
    weighting: Literal["decay", "acceptance"] = "decay"
    """How rows weigh, since a wrong row makes all behind it worthless. "decay": row k exp(-(k - 1) / decay).
    "acceptance": with the draft's own chance that verification comes so far, the product of what it gives the labels
    of rows 1 .. k - 1."""
    decay: float = 4.0
    variation: float = 0.0
    """Share of a term beside the cross-entropy: the total variation between the draft's distribution and the target's,
    which is how often a sampled row is refused. 0 reads no distribution of the target."""
    due_weight: float = 4.0
    """How much more often a block stands where something is due (in a middle) than elsewhere."""
    own_share: float = 0.0
    """Of the batches: rows of the target's own continuations, where such shards are given."""
    off_path_weight: float = 0.25
    """Weight of rows behind a text token that greedy decoding would not have chosen; see `blocks.labels`."""
    clip: float = 1.0
    seed: int = 0

    def layer_ids(self, target: TargetSpec) -> tuple[int, ...]:
        if self.target_layer_ids is not None:
            return self.target_layer_ids
        last = len(target.layers) - 1
        return tuple(round(i * last / 4) for i in range(5))

    def config(self, target: TargetSpec) -> dict[str, Any]:
        """The draft's config.json: layers shaped like the target's, with the q and k norms that DFlash has."""
        layer = target.layers[0]
        if target.rotary.scaling:
            raise DFlashError("training a draft for a target with scaled rotary embedding is not supported yet")
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "vocab_size": target.vocab_size,
            "hidden_size": layer.hidden_size,
            "intermediate_size": layer.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": layer.num_heads,
            "num_key_value_heads": layer.num_kv_heads,
            "head_dim": layer.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": layer.rms_norm_eps,
            "rope_theta": target.rotary.base,
            "max_position_embeddings": target.max_positions,
            "attention_bias": False,
            "tie_word_embeddings": False,
            "block_size": self.block_size,
            "num_target_layers": len(target.layers),
            "layer_types": ["full_attention"] * self.layers,
            "dtype": "bfloat16",
            "dflash_config": {
                "target_layer_ids": list(self.layer_ids(target)),
                "mask_token_id": self.mask_token_id,
            },
        }
