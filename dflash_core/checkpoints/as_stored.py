"""Gives a target the weights in the form its checkpoint stores them in: FP8 in blocks, MXFP4 experts, or plain.

What is stored how is read from the tensors themselves, layer by layer: published checkpoints mix forms (MiMo's output
projections stay bf16 beside FP8, V2.6 has MXFP4 experts beside FP8 projections).
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from dflash_core.checkpoints.names import checkpoint_names, expert_names, part_rows
from dflash_core.checkpoints.pieces import FusedQkv, Piece, Pieces, whole_tensors
from dflash_core.checkpoints.reading import TensorFolder
from dflash_core.errors import CheckpointError
from dflash_core.layers.decoder_layer import DecoderLayer
from dflash_core.layers.linear import Linear
from dflash_core.layers.moe import Mixture
from dflash_core.layers.stored_weights import MXFP4_GROUP, Fp8Experts, Fp8Linear, Mxfp4Experts
from dflash_core.target import Target

FP8_SCALE, MXFP4_SCALE = "_scale_inv", "_scale"
"""Behind the name of a tensor: that of its scales."""

_FP8, _BYTES = "F8_E4M3", "U8"


def store_as_published(target: Target, tensors: TensorFolder, config: dict[str, Any], shards: int) -> Pieces:
    """Replaces what is not stored plainly in a target built on `meta`, and says what its parameters are made of.

    shards: those of a fused qkv tensor. Raises CheckpointError, naming the tensor.
    """
    block = _block(config)
    fused: dict[str, FusedQkv] = {}
    scale_units: dict[str, int] = {}
    for layer in target.layers:
        stem = f"layers.{layer.index}."
        whole = f"{stem}self_attn.qkv_proj.weight"
        if whole in tensors:
            fused[whole] = FusedQkv(layer.spec, shards)
            fused[whole].check(whole)
        for path, linear in _linears(layer):
            name = f"{stem}{path}.weight"
            parts = [name] if name in fused else checkpoint_names(name)
            if not _all_in(tensors, parts, _FP8):
                continue
            out, columns = linear.weight.shape
            sizes = [out] if len(parts) == 1 else part_rows(name, layer.spec)
            rows = fused[name].unit(block[0]) if name in fused else math.gcd(block[0], *sizes)
            if isinstance(linear, Linear):
                owner, _, leaf = path.rpartition(".")
                setattr(layer.get_submodule(owner), leaf, Fp8Linear(columns, out, (rows, block[1])).to("meta"))
            scale_units[f"{stem}{path}.scales"] = rows
        if isinstance(layer.mlp, Mixture):
            _store_experts(layer, layer.mlp, tensors, block, scale_units)
    plain = whole_tensors(tensors)

    def pieces(name: str, parameter: Tensor) -> list[Piece]:
        weight = name.removesuffix("scales") + "weight" if name.endswith(".scales") else name
        if weight in fused:
            if weight == name:
                return [Piece(name, rows) for rows in fused[name].stretches()]
            return [Piece(weight + FP8_SCALE, fused[weight].scale_rows(block[0]))]
        if name.endswith(".scales"):
            return [
                _spread(part + FP8_SCALE, tensors, block[0], scale_units[name]) for part in checkpoint_names(weight)
            ]
        if name.endswith("_scales"):  # of experts
            weights = expert_names(name.removesuffix("_scales") + "_proj", parameter.shape[0])
            if name in scale_units:
                return [_spread(part + FP8_SCALE, tensors, block[0], scale_units[name]) for part in weights]
            return [Piece(part + MXFP4_SCALE) for part in weights]
        return plain(name, parameter)

    return pieces


def _store_experts(
    layer: DecoderLayer, mixture: Mixture, tensors: TensorFolder, block: tuple[int, int], units: dict[str, int]
) -> None:
    stem = f"layers.{layer.index}.mlp.experts."
    spec, hidden = mixture.spec, layer.spec.hidden_size
    parts = [
        *expert_names(f"{stem}gate_up_proj", spec.num_experts),
        *expert_names(f"{stem}down_proj", spec.num_experts),
    ]
    if _all_in(tensors, parts, _FP8):
        rows = math.gcd(block[0], spec.intermediate_size, hidden)
        if not isinstance(mixture.experts, Fp8Experts):
            mixture.experts = Fp8Experts(hidden, spec, (rows, block[1])).to("meta")
        units |= {f"{stem}gate_up_scales": rows, f"{stem}down_scales": rows}
    elif _all_in(tensors, parts, _BYTES):
        if hidden % MXFP4_GROUP or spec.intermediate_size % MXFP4_GROUP:
            raise CheckpointError(f"tensor {parts[0]}: MXFP4 comes in groups of {MXFP4_GROUP}, config.json has others")
        if not isinstance(mixture.experts, Mxfp4Experts):
            mixture.experts = Mxfp4Experts(hidden, spec).to("meta")


def _linears(layer: DecoderLayer) -> list[tuple[str, Linear | Fp8Linear]]:
    """Where the layer's linear maps are; after a load that was interrupted some are in FP8 already."""
    found = [(path, module) for path, module in layer.named_modules() if isinstance(module, Linear | Fp8Linear)]
    return [(path, module) for path, module in found if module.bias is None]


def _all_in(tensors: TensorFolder, parts: list[str], kind: str) -> bool:
    """Whether these tensors are all stored in a type; a mixture of types is no form that is published."""
    return all(part in tensors and tensors.stored_type(part) == kind for part in parts)


def _spread(name: str, tensors: TensorFolder, block_rows: int, unit: int) -> Piece:
    """Scales of a part whose rows need not be a multiple of a block: one for each `unit` of them."""
    if unit == block_rows:
        return Piece(name)
    rows = tensors.shape(name.removesuffix(FP8_SCALE))[0]
    return Piece(name, [start // block_rows for start in range(0, rows, unit)])


def _block(config: dict[str, Any]) -> tuple[int, int]:
    """Rows and columns of one block of FP8 scales."""
    found = (config.get("quantization_config") or {}).get("weight_block_size") or [128, 128]
    if not isinstance(found, list) or len(found) != 2 or not all(type(n) is int and n > 0 for n in found):
        raise CheckpointError(f"config.json: weight_block_size must be two whole numbers, got {found!r}")
    return found[0], found[1]
