"""Reads a folder of safetensors into a module; anything odd is one clear line and nothing is half loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from dflash_core.checkpoints.names import checkpoint_names, expert_names
from dflash_core.errors import CheckpointError

FLOAT_TYPES = (torch.float32, torch.float16, torch.bfloat16)

SCALE = ".int8_scale"
"""Behind the name of an int8 tensor: its scales, fp32, one a row."""

Progress = Callable[[float], None]
"""Called with the share done, 0 to 1."""


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder."""
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {folder}: config.json is missing")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return config


class TensorFolder:
    """The tensors of a checkpoint folder by name, over one or several safetensors files; read only when asked for."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        """`prefix` is put before every name asked for when the checkpoint has it ("model.")."""
        self.folder = folder
        self._files: dict[str, Any] = {}
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise CheckpointError(f"no checkpoint at {folder}: no .safetensors file")
        for path in paths:
            try:
                reader = safe_open(path, framework="pt")
                found = dict.fromkeys(reader.keys(), reader)
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{path} is damaged: {error}") from error
            twice = sorted(found.keys() & self._files.keys())
            if twice:
                raise CheckpointError(f"{path}: tensor {twice[0]} stands in two files of this checkpoint")
            self._files |= found
        self._prefix = prefix if any(name.startswith(prefix) for name in self._files) else ""

    def names(self) -> set[str]:
        """Names of the tensors; a scale belongs to its tensor."""
        return {name.removeprefix(self._prefix) for name in self._files if not self._is_scale(name)}

    def __contains__(self, name: str) -> bool:
        return self._key(name) in self._files

    def read(self, name: str) -> Tensor:
        key = self._key(name)
        if key not in self._files:
            raise CheckpointError(f"{self.folder}: tensor {name} is missing")
        tensor: Tensor = self._files[key].get_tensor(key)
        scale = key + SCALE
        if tensor.dtype == torch.int8 and scale in self._files:
            return tensor.float() * self._files[scale].get_tensor(scale)  # one a row
        return tensor

    def _is_scale(self, name: str) -> bool:
        return name.endswith(SCALE) and name.removesuffix(SCALE) in self._files

    def _key(self, name: str) -> str:
        prefixed = self._prefix + name
        return prefixed if prefixed in self._files else name


def load_module(
    module: nn.Module,
    tensors: TensorFolder,
    *,
    device: torch.device,
    dtype: torch.dtype,
    skip: frozenset[str] = frozenset(),
    ignored: Callable[[str], bool] = lambda name: False,
    progress: Progress = lambda share: None,
) -> None:
    """Gives every parameter of a module built on `meta` its tensor, joined from published parts, checked and cast.

    skip: parameters the caller fills himself. ignored: published names that are knowingly left unread; any other
    unread tensor is an error, because it means the module computes something else than the checkpoint's model.
    """
    loaded: dict[str, Tensor] = {}
    unread = tensors.names()
    parameters = dict(module.named_parameters())
    for done, (name, parameter) in enumerate(parameters.items()):
        progress(done / len(parameters))
        if name in skip:
            continue
        names = checkpoint_names(name)
        if names[0] not in tensors:
            names = expert_names(name, parameter.shape[0]) or names
        parts = [tensors.read(part) for part in names]
        unread -= set(names)
        for part_name, part in zip(names, parts, strict=True):
            if part.dtype not in FLOAT_TYPES:
                raise CheckpointError(
                    f"{tensors.folder}: tensor {part_name} has type {str(part.dtype).removeprefix('torch.')}, "
                    "not float32, float16 or bfloat16"
                )
        _check_shapes(tensors.folder, parameter, names, parts)
        # Joined on the device: the host never holds a parameter a second time.
        moved = [part.to(device) for part in parts]
        whole = (torch.cat(moved) if len(moved) > 1 else moved[0]).view(parameter.shape)
        # After the cast: what float32 holds may be beyond float16.
        loaded[name] = whole.to(dtype)
        if not torch.isfinite(loaded[name]).all():
            odd = next(n for n, part in zip(names, parts, strict=True) if not torch.isfinite(part.to(dtype)).all())
            raise CheckpointError(f"{tensors.folder}: tensor {odd} holds values that are not finite")
    extra = sorted(name for name in unread if not ignored(name))
    if extra:
        raise CheckpointError(f"{tensors.folder}: tensor {extra[0]} is not part of this model ({len(extra)} such)")
    for name, tensor in loaded.items():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))
    progress(1.0)


def _check_shapes(folder: Path, parameter: Tensor, names: list[str], parts: list[Tensor]) -> None:
    """Whether the parts, joined along their rows, are the parameter; the error names what is not as it should be."""
    wanted = list(parameter.shape)
    if parameter.dim() == 3 and len(parts) > 1:
        # A stack of experts, [experts, rows, columns], in parts that are all alike.
        wanted = [wanted[0] * wanted[1] // len(parts), wanted[2]]
        odd = [(name, part) for name, part in zip(names, parts, strict=True) if list(part.shape) != wanted][:1]
    else:
        fits = (
            all(part.dim() for part in parts)
            and sum(part.shape[0] for part in parts) == wanted[0]
            and all(list(part.shape[1:]) == wanted[1:] for part in parts)
        )
        odd = [] if fits else list(zip(names, parts, strict=True))
    if odd:
        got = " + ".join(str(list(part.shape)) for _, part in odd)
        raise CheckpointError(
            f"{folder}: tensor {' + '.join(name for name, _ in odd)} has shape {got}, config.json makes it {wanted}"
        )
