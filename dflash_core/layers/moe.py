"""Mixture of experts: a router picks a few of many small gated MLPs for every row, and their outputs are weighed.

The experts of a layer are two stacks, so that one kernel can address any of them by number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dflash_core.layers.linear import Linear, linear
from dflash_core.layers.stored_weights import Fp8Experts, Mxfp4Experts
from dflash_core.specs import MixtureSpec


class Mixture(nn.Module):
    """Sum over the picked experts e of weight_e * down_e(silu(gate_e(x)) * up_e(x))."""

    def __init__(self, hidden_size: int, spec: MixtureSpec) -> None:
        super().__init__()
        self.spec = spec
        self.gate = Linear(hidden_size, spec.num_experts)
        self.choice_bias = nn.Parameter(torch.empty(spec.num_experts)) if spec.router == "sigmoid" else None
        self.experts: Experts | Fp8Experts | Mxfp4Experts = Experts(hidden_size, spec)
        self.wide = ("gate.weight", "choice_bias") if spec.router == "sigmoid" else ()

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., hidden] -> [..., hidden]."""
        rows = x.reshape(-1, x.shape[-1])
        # A router that scores in fp32 keeps its weight in fp32: choices hang on small differences.
        logits = self.gate(rows.to(self.gate.weight.dtype))
        ids, weights = route(logits, self.spec, self.choice_bias)
        return mix(rows, self.experts, ids, weights).view(x.shape)


class Experts(nn.Module):
    """The stacked weights of a layer's experts."""

    def __init__(self, hidden_size: int, spec: MixtureSpec) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(spec.num_experts, 2 * spec.intermediate_size, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(spec.num_experts, hidden_size, spec.intermediate_size))

    def of(self, expert: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """One expert's weights: gate and up [2 * ffn, hidden], down [hidden, ffn]."""
        return self.gate_up_proj[expert], self.down_proj[expert]


def route(logits: Tensor, spec: MixtureSpec, choice_bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Which experts a row takes, and how much of each.

    logits: [R, num_experts] of the router; choice_bias: [num_experts], of a sigmoid router. Returns ids [R, k] and
    weights [R, k] in the logits' type; the softmax is over all experts and in fp32 (Qwen3-MoE's rule).
    """
    if spec.router == "softmax":
        weights, ids = logits.softmax(dim=-1, dtype=torch.float32).topk(spec.experts_per_row, dim=-1)
    else:
        assert choice_bias is not None
        scores = logits.float().sigmoid()
        ids = (scores + choice_bias.float()).topk(spec.experts_per_row, dim=-1).indices
        weights = scores.gather(1, ids)
    if spec.normalized:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return ids, (weights * spec.scale).to(logits.dtype)


def mix(rows: Tensor, experts: Experts | Fp8Experts | Mxfp4Experts, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of the picked experts.

    rows: [R, hidden]; ids, weights: [R, k]. Returns [R, hidden]. Each expert's weights are read once for all
    rows that picked it; which experts those are is asked by the host, so this form cannot be captured in a graph.
    """
    mixed = torch.zeros_like(rows)
    for expert in ids.unique().tolist():
        row, place = (ids == expert).nonzero(as_tuple=True)
        gate_up, down = experts.of(expert, rows.dtype)
        gate, up = linear(rows[row], gate_up).chunk(2, dim=-1)
        out = linear(nn.functional.silu(gate) * up, down)
        mixed.index_add_(0, row, (out * weights[row, place, None]).to(mixed.dtype))
    return mixed
