"""Random targets whose weights lie in the forms of MiMo's checkpoints, and routers that favour a few experts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dflash_core.checkpoints.pieces import FusedQkv
from dflash_core.layers.linear import Linear
from dflash_core.layers.mlp import MLP
from dflash_core.layers.moe import Mixture
from dflash_core.layers.stored_weights import Fp8Experts, Fp8Linear, Mxfp4Experts
from dflash_core.published import Form
from dflash_core.target import Target

_BLOCK = 128
_SHARDS = 4
_FP8_SCALE, _MXFP4_SCALE = 2e-4, 120
"""Of random bytes: they make weights of about 0.02."""
_FAVOURED = 16
"""One expert of so many is picked by a skewed router before all others, 16 of 256: near the 19 that were reported to be
touched by a block of 8 of MiMo-V2.5 on text."""


def store_in_form(target: Target, form: Form) -> None:
    """Replaces the weights of a target on `meta` by those of a form, as `checkpoints/as_stored.py` does for a file."""
    if form == "plain":
        return
    for layer in target.layers:
        spec = layer.spec
        rows = FusedQkv(spec, _SHARDS).unit(_BLOCK)
        _replace(layer.self_attn, "qkv_proj", rows)
        if isinstance(layer.mlp, Mixture):
            hidden, mixture = spec.hidden_size, layer.mlp.spec
            layer.mlp.experts = (
                Fp8Experts(hidden, mixture, (_BLOCK, _BLOCK)) if form == "fp8" else Mxfp4Experts(hidden, mixture)
            ).to("meta")
        elif isinstance(layer.mlp, MLP):
            _replace(layer.mlp, "gate_up_proj", _BLOCK)
            _replace(layer.mlp, "down_proj", _BLOCK)


def _replace(owner: nn.Module, leaf: str, rows: int) -> None:
    plain = owner.get_submodule(leaf)
    assert isinstance(plain, Linear)
    out, columns = plain.weight.shape
    setattr(owner, leaf, Fp8Linear(columns, out, (rows, _BLOCK)).to("meta"))


def random_stored(leaf: str, parameter: Tensor, device: torch.device, generator: torch.Generator) -> Tensor:
    """Bytes of a stored weight, or the scales that make small weights of them."""
    if leaf.endswith("scales"):
        small = _MXFP4_SCALE if parameter.dtype == torch.uint8 else _FP8_SCALE
        return torch.full(parameter.shape, small, dtype=parameter.dtype, device=device)
    values = torch.randint(0, 256, parameter.shape, dtype=torch.uint8, device=device, generator=generator)
    if parameter.dtype == torch.uint8:
        return values
    # The two codes that are no number become the ones below them.
    return (values - ((values & 0x7F) == 0x7F).to(torch.uint8)).view(torch.float8_e4m3fn)


def skew(target: Target) -> None:
    """Gives some experts of every mixture a bias that no score of a random router makes up for."""
    for layer in target.layers:
        if isinstance(layer.mlp, Mixture) and layer.mlp.choice_bias is not None:
            with torch.no_grad():
                layer.mlp.choice_bias.zero_()
                layer.mlp.choice_bias[::_FAVOURED] = 2.0
