"""Gated MLP."""

from __future__ import annotations

from torch import Tensor, nn

from dflash_core.layers.linear import Linear


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x)), with gate and up fused into one product."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, 2 * intermediate_size)
        self.down_proj = Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(nn.functional.silu(gate) * up)
