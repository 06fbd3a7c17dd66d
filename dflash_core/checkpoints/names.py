"""How parameters of our fused modules are called in published checkpoints."""

from __future__ import annotations

from dflash_core.specs import LayerSpec

_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_RENAMED = {
    "self_attn.sinks": "self_attn.attention_sink_bias",
    "embed_tokens": "embed_tokens.weight",
    "mlp.choice_bias": "mlp.gate.e_score_correction_bias",
}


def checkpoint_names(parameter: str) -> list[str]:
    """The published names whose tensors, joined along rows, make up a parameter of ours (without a prefix)."""
    for ours, theirs in _RENAMED.items():
        if parameter.endswith(ours):
            return [parameter.removesuffix(ours) + theirs]
    for fused, parts in _FUSED.items():
        if f".{fused}." in parameter:
            return [parameter.replace(fused, part) for part in parts]
    return [parameter]


def expert_names(parameter: str, num_experts: int) -> list[str]:
    """The published names, expert by expert, of the tensors whose rows make up a stack of experts; [] for no stack.

    transformers 5 can also store the stack whole, under the name of our own parameter.
    """
    stem, dot, leaf = parameter.rpartition(".experts.")
    if not dot:
        return []
    return [f"{stem}.experts.{e}.{part}.weight" for e in range(num_experts) for part in _FUSED.get(leaf, (leaf,))]


def part_rows(parameter: str, spec: LayerSpec) -> list[int]:
    """Rows of each tensor that `checkpoint_names` lists for a fused parameter of a layer."""
    if ".qkv_proj." in parameter:
        return [spec.q_size, spec.k_size, spec.v_size]
    return [spec.intermediate_size] * 2
