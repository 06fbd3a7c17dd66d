"""What tuning changes of a target: low-rank factors of its projections and whole norms, or all of it.

The model computes with its own parameters, in its own dtype; a delta takes the gradients that a backward pass leaves
on them, and writes the changed weights back (`pull`, `push`). So training runs the modules that serve, unchanged, and
in exactly the rounded weights that will be served.

A saved delta is one safetensors file: `NAME.left` [out, rank] and `NAME.right` [rank, in] of a projection, whose
product is added to its weight, or `NAME.added`, the change itself. Names are those of our modules. Tensors are bf16,
or int8 with `NAME.scale` beside them: one fp32 a column of `left`, a row of `right`.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dflash_core.errors import CheckpointError, DFlashError
from dflash_core.target import Target

FORMAT = "dflash target delta 1"
_GAIN = 2.0
"""On the left factor, which starts at zero: it learns as if its rate were so much larger."""


class Delta(nn.Module):
    """Learned changes of one target, fp32. rank 0: every parameter of its own, embedding included."""

    def __init__(self, target: Target, rank: int, seed: int = 0) -> None:
        super().__init__()
        self.rank = rank
        self.identity = fingerprint(target)
        generator = torch.Generator().manual_seed(seed)
        self.learned = nn.ParameterDict()
        self._base: dict[str, Tensor] = {}
        for name, parameter in target.named_parameters():
            if rank and (name == "embed_tokens" or name.startswith("lm_head")):
                continue
            self._base[name] = parameter.detach().clone()
            key = name.replace(".", "/")
            if not rank or parameter.dim() == 1:
                self.learned[f"{key}/added"] = nn.Parameter(torch.zeros(parameter.shape))
                continue
            if rank > min(parameter.shape):
                raise DFlashError(f"rank {rank} is larger than {name}, which is {list(parameter.shape)}")
            right = torch.randn(rank, parameter.shape[1], generator=generator) / math.sqrt(parameter.shape[1])
            self.learned[f"{key}/left"] = nn.Parameter(torch.zeros(parameter.shape[0], rank))
            self.learned[f"{key}/right"] = nn.Parameter(right)
        self.to(target.device)

    @property
    def names(self) -> list[str]:
        """Of the target's parameters that change."""
        return list(self._base)

    @torch.no_grad()
    def pull(self, target: Target) -> None:
        """Takes the gradients of the target's parameters, and clears them there."""
        for name, base in self._base.items():
            parameter = target.get_parameter(name)
            gradient = parameter.grad
            parameter.grad = None
            if gradient is None:
                gradient = torch.zeros_like(base)
            key, wide = name.replace(".", "/"), gradient.float()
            if f"{key}/added" in self.learned:
                self.learned[f"{key}/added"].grad = wide
                continue
            left, right = self.learned[f"{key}/left"], self.learned[f"{key}/right"]
            left.grad = _GAIN * (wide @ right.T)
            right.grad = _GAIN * (left.T @ wide)

    @torch.no_grad()
    def push(self, target: Target) -> None:
        """Writes the changed weights into the target."""
        for name, base in self._base.items():
            target.get_parameter(name).copy_(base.float() + self.change(name))

    def change(self, name: str) -> Tensor:
        key = name.replace(".", "/")
        if f"{key}/added" in self.learned:
            return self.learned[f"{key}/added"]
        return _GAIN * (self.learned[f"{key}/left"] @ self.learned[f"{key}/right"])

    def save(self, file: Path, *, int8: bool = True, facts: dict[str, Any] | None = None) -> None:
        """Writes the delta, small enough to be sent about; raises DFlashError when it is not finite."""
        tensors: dict[str, Tensor] = {}
        for key, parameter in self.learned.items():
            name = key.replace("/", ".")
            value = parameter.detach().float().cpu()
            if not torch.isfinite(value).all():
                raise DFlashError(f"{name} of the delta is not finite: not saved")
            if name.endswith(".left"):
                value = value * _GAIN
            if int8 and value.dim() > 1:
                scale = value.abs().amax(dim=0 if name.endswith(".left") else 1, keepdim=True).clamp(min=1e-12) / 127
                tensors[f"{name}.scale"] = scale
                tensors[name] = (value / scale).round().to(torch.int8)
            else:
                tensors[name] = value.to(torch.bfloat16)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        about = {"format": FORMAT, "rank": str(self.rank), "target": self.identity, "facts": json.dumps(facts or {})}
        save_file(tensors, partial, metadata=about)
        partial.replace(file)

    @torch.no_grad()
    def load(self, file: Path) -> None:
        """Goes on from a saved delta of the same target and rank. Raises CheckpointError otherwise."""
        found, about = read_delta(file)
        if about["target"] != self.identity:
            raise CheckpointError(f"{file} is a delta of another target")
        expected = {key.replace("/", ".") for key in self.learned}
        if int(about["rank"]) != self.rank or found.keys() != expected:
            raise CheckpointError(f"{file} is a delta of rank {about['rank']}, not {self.rank}")
        for key, parameter in self.learned.items():
            name = key.replace("/", ".")
            value = found[name] / _GAIN if name.endswith(".left") else found[name]
            if value.shape != parameter.shape:
                raise CheckpointError(f"{file}: {name} has shape {list(value.shape)}, not {list(parameter.shape)}")
            parameter.copy_(value)


def fingerprint(target: Target) -> str:
    """Short hash of a target's shape and of some of its weights: enough to tell one from another."""
    digest = hashlib.sha256()
    for name, parameter in target.named_parameters():
        digest.update(f"{name} {list(parameter.shape)} ".encode())
        piece = parameter.detach().flatten()[:: max(1, parameter.numel() // 64)][:64]
        digest.update(piece.to("cpu", torch.bfloat16).view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:16]


def read_delta(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors of a saved delta in fp32 by name, and what it says of itself. Raises CheckpointError."""
    try:
        with safe_open(file, framework="pt") as reader:
            about = dict(reader.metadata() or {})
            stored = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if about.get("format") != FORMAT:
        raise CheckpointError(f"{file} is not a delta of a target")
    found = {}
    for name, value in stored.items():
        if name.endswith(".scale"):
            continue
        scale = stored.get(f"{name}.scale")
        if value.dtype == torch.int8 and scale is None:
            raise CheckpointError(f"{file}: {name} has no scale")
        found[name] = value.float() if scale is None else value.float() * scale
    return found, about


@torch.no_grad()
def merge_delta(target: Target, file: Path) -> None:
    """Adds a saved delta to the target it was made for. Raises CheckpointError, and then changes nothing."""
    found, about = read_delta(file)
    if about["target"] != fingerprint(target):
        raise CheckpointError(f"{file} is a delta of another target")
    merged: dict[str, Tensor] = {}
    parameters = dict(target.named_parameters())
    for name, value in found.items():
        owner, _, part = name.rpartition(".")
        if owner not in parameters:
            raise CheckpointError(f"{file}: {owner} is not part of this target")
        if part == "right":
            continue
        change = value if part == "added" else value @ found[f"{owner}.right"]
        parameter = parameters[owner]
        if change.shape != parameter.shape:
            raise CheckpointError(f"{file}: {owner} has shape {list(change.shape)}, not {list(parameter.shape)}")
        merged[owner] = parameter.float() + change.to(parameter.device)
    for owner, value in merged.items():
        parameters[owner].copy_(value)
