"""Mixture of experts: a router picks a few of many small gated MLPs for every row, and their outputs are weighed.

The experts of a layer are two stacks, so that one kernel can address any of them by number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dflash_core.configs import MixtureSpec
from dflash_core.layers.linear import Linear, linear


class Mixture(nn.Module):
    """Sum over the picked experts e of weight_e * down_e(silu(gate_e(x)) * up_e(x))."""

    def __init__(self, hidden_size: int, spec: MixtureSpec) -> None:
        super().__init__()
        self.spec = spec
        self.gate = Linear(hidden_size, spec.num_experts)
        self.experts = Experts(hidden_size, spec)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., hidden] -> [..., hidden]."""
        rows = x.reshape(-1, x.shape[-1])
        ids, weights = route(self.gate(rows), self.spec)
        return mix(rows, self.experts.gate_up_proj, self.experts.down_proj, ids, weights).view(x.shape)


class Experts(nn.Module):
    """The stacked weights of a layer's experts."""

    def __init__(self, hidden_size: int, spec: MixtureSpec) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(spec.num_experts, 2 * spec.intermediate_size, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(spec.num_experts, hidden_size, spec.intermediate_size))


def route(logits: Tensor, spec: MixtureSpec) -> tuple[Tensor, Tensor]:
    """Which experts a row takes, and how much of each.

    logits: [R, num_experts] of the router. Returns ids [R, k] and weights [R, k] in the logits' type; the softmax is
    over all experts and in fp32 (Qwen3-MoE's rule).
    """
    weights, ids = logits.softmax(dim=-1, dtype=torch.float32).topk(spec.experts_per_row, dim=-1)
    if spec.normalized:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return ids, weights.to(logits.dtype)


def mix(rows: Tensor, gate_up: Tensor, down: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of the picked experts.

    rows: [R, hidden]; gate_up: [experts, 2 * ffn, hidden]; down: [experts, hidden, ffn]; ids, weights: [R, k].
    Returns [R, hidden]. Each expert's weights are read once for all rows that picked it; which experts those are is
    asked by the host, so this form cannot be captured in a graph.
    """
    mixed = torch.zeros_like(rows)
    for expert in ids.unique().tolist():
        row, place = (ids == expert).nonzero(as_tuple=True)
        gate, up = linear(rows[row], gate_up[expert]).chunk(2, dim=-1)
        out = linear(nn.functional.silu(gate) * up, down[expert])
        mixed.index_add_(0, row, out * weights[row, place, None])
    return mixed
