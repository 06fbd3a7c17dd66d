"""Fills a module built on `meta` from a folder of tensors; anything odd is one clear line that names the tensor.

First everything is checked that the files' headers tell (names, types, shapes), in a second or two also for hundreds of
gigabytes. Then one published tensor after the other goes to the device, so that the host never holds more than one.
What is loaded stays in the module when a tensor cannot be read: called again, loading goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dflash_core.checkpoints.pieces import Piece, Pieces, whole_tensors
from dflash_core.checkpoints.reading import SCALE, Progress, TensorFolder
from dflash_core.errors import CheckpointError
from dflash_core.layers.stored_weights import loaded_types

_FLOATS = ("F32", "F16", "BF16")
_STORED = {torch.float8_e4m3fn: ("F8_E4M3",), torch.uint8: ("U8",)}
"""Types that are kept as they are, whatever the module's own is."""


def load_module(
    module: nn.Module,
    tensors: TensorFolder,
    *,
    device: torch.device | Callable[[str], torch.device],
    dtype: torch.dtype,
    pieces: Pieces | None = None,
    skip: frozenset[str] = frozenset(),
    ignored: Callable[[str], bool] = lambda name: False,
    progress: Progress = lambda share: None,
) -> None:
    """Gives every parameter its tensor, joined from published pieces, checked and cast.

    device: of all parameters, or by their names: each goes straight to its own.
    Parameters that a submodule lists as `wide` stay fp32; what is stored as FP8 or MXFP4 stays so. skip: parameters
    the caller fills himself. ignored: published names that are knowingly left unread; any other unread tensor is an
    error, because it means the module computes something else than the checkpoint's model.
    """
    made_of = pieces or whole_tensors(tensors)
    parameters = {name: p for name, p in module.named_parameters() if name not in skip}
    plan = {name: made_of(name, parameter) for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        _check(tensors, name, parameter, plan[name])
    read = {piece.name for found in plan.values() for piece in found}
    extra = sorted(name for name in tensors.names() - read if not ignored(name))
    if extra:
        raise CheckpointError(f"{tensors.folder}: tensor {extra[0]} is not part of this model ({len(extra)} such)")
    types = loaded_types(module, dtype)
    total, done = sum(p.numel() for p in parameters.values()), 0
    for name, parameter in parameters.items():
        progress(done / total)
        if parameter.is_meta:
            owner, _, leaf = name.rpartition(".")
            place = device if isinstance(device, torch.device) else device(name)
            loaded = _joined(tensors, parameter, plan[name], place, types[name])
            setattr(module.get_submodule(owner), leaf, nn.Parameter(loaded, requires_grad=False))
        done += parameter.numel()
    progress(1.0)


def _joined(
    tensors: TensorFolder, parameter: Tensor, pieces: list[Piece], device: torch.device, dtype: torch.dtype
) -> Tensor:
    """The parameter on its device, filled piece by piece: neither host nor device holds it a second time."""
    whole = torch.empty(parameter.shape, dtype=dtype, device=device)
    rows = whole.view(-1, *whole.shape[-1:]) if whole.dim() > 1 else whole
    start = 0
    for piece in pieces:
        part = tensors.read(piece.name, piece.rows)
        into = rows[start : start + part.shape[0]] if part.dim() < 3 else whole
        into.copy_(part)
        # After the cast: what float32 holds may be beyond float16. Piece by piece: the check takes room of its own.
        if not _finite(into):
            raise CheckpointError(f"{tensors.folder}: tensor {piece.name} holds values that are not finite")
        start += part.shape[0]
    return whole


def _finite(tensor: Tensor) -> bool:
    if tensor.dtype == torch.uint8:
        return True
    if tensor.dtype == torch.float8_e4m3fn:  # its one NaN has all bits but the sign set
        return not bool(((tensor.view(torch.uint8) & 0x7F) == 0x7F).any())
    return bool(torch.isfinite(tensor).all())


def _check(tensors: TensorFolder, name: str, parameter: Tensor, pieces: list[Piece]) -> None:
    """Whether the pieces, one below the other, are the parameter; the error names what is not as it should be."""
    shapes = []
    for piece in pieces:
        found, kind = tensors.shape(piece.name), tensors.stored_type(piece.name)
        own_int8 = kind == "I8" and f"{piece.name}{SCALE}" in tensors
        allowed = _STORED.get(parameter.dtype, _FLOATS)
        if kind not in allowed and not own_int8:
            words = "float32, float16 or bfloat16" if allowed is _FLOATS else " or ".join(allowed)
            raise CheckpointError(f"{tensors.folder}: tensor {piece.name} has type {_plain(kind)}, not {words}")
        shapes.append(found)
    wanted = list(parameter.shape)
    if parameter.dim() == 3 and len(pieces) > 1:
        # A stack of experts, [experts, rows, columns], in pieces that are all alike.
        rows = wanted[0] * wanted[1] // len(pieces)
        wanted = [rows, wanted[2]]
        odd = [(p, s) for p, s in zip(pieces, shapes, strict=True) if _taken(p, s) != rows or s[1:] != wanted[1:]][:1]
    else:
        fits = (
            all(shapes)
            and sum(_taken(p, s) for p, s in zip(pieces, shapes, strict=True)) == wanted[0]
            and all(shape[1:] == wanted[1:] for shape in shapes)
            and all(_takes_all(p.name, s[0], pieces) for p, s in zip(pieces, shapes, strict=True))
        )
        odd = [] if fits else list(zip(pieces, shapes, strict=True))
    if odd:
        unique = {piece.name: shape for piece, shape in odd}
        got = " + ".join(map(str, unique.values()))
        raise CheckpointError(
            f"{tensors.folder}: tensor {' + '.join(unique)} has shape {got}, config.json makes it {wanted}"
        )


def _taken(piece: Piece, shape: list[int]) -> int:
    """Rows of the parameter that this piece gives."""
    return (shape[0] if shape else 0) if piece.rows is None else len(piece.rows)


def _takes_all(name: str, stored: int, pieces: list[Piece]) -> bool:
    """Whether the pieces together reach every row that is stored of a tensor, and none beyond."""
    reached = [range(stored) if piece.rows is None else piece.rows for piece in pieces if piece.name == name]
    return {row for rows in reached for row in rows} == set(range(stored))


def _plain(kind: str) -> str:
    names = {"I8": "int8", "I64": "int64", "I32": "int32", "F64": "float64", "U8": "uint8", "F8_E4M3": "float8_e4m3fn"}
    return names.get(kind, kind)
