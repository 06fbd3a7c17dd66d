"""Reads a folder of safetensors into a module; anything odd is one clear line and nothing is half loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dflash_core.errors import CheckpointError

FLOAT_TYPES = (torch.float32, torch.float16, torch.bfloat16)

SCALE = ".int8_scale"
"""Behind the name of an int8 tensor: its scales, fp32, one a row."""

Progress = Callable[[float], None]
"""Called with the share done, 0 to 1."""


class TensorFolder:
    """The tensors of a checkpoint folder by name, over one or several safetensors files; read only when asked for.

    Where the folder has an index, the index says which file a tensor stands in, and a file may be missing as long as
    nobody asks for its tensors.
    """

    def __init__(self, folder: Path, prefix: str = "") -> None:
        """`prefix` is put before every name asked for when the checkpoint has it ("model.")."""
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._absent: dict[str, str] = {}
        """Tensors that the index promises, with the file that is not there."""
        self.metadata: Mapping[str, Any] = {}
        """What the index says besides where tensors are."""
        places = self._places()
        paths = sorted({folder / file for file in places.values()} if places else folder.glob("*.safetensors"))
        if not any(path.is_file() for path in paths):
            raise CheckpointError(f"no checkpoint at {folder}: no .safetensors file")
        for path in paths:
            self._open(path, places)
        self._prefix = prefix if any(name.startswith(prefix) for name in (*self._files, *self._absent)) else ""

    def names(self) -> set[str]:
        """Names of the tensors; a scale belongs to its tensor."""
        return {name.removeprefix(self._prefix) for name in (*self._files, *self._absent) if not self._is_scale(name)}

    def __contains__(self, name: str) -> bool:
        key = self._key(name)
        return key in self._files or key in self._absent

    def shape(self, name: str) -> list[int]:
        return list(self._header(name).get_shape())

    def stored_type(self, name: str) -> str:
        """As safetensors names it: "BF16", "F8_E4M3", "U8", ..."""
        return str(self._header(name).get_dtype())

    def read(self, name: str, rows: range | Sequence[int] | None = None) -> Tensor:
        """A tensor, or some of its rows. Raises CheckpointError, naming the tensor."""
        reader, key = self._reader(name)
        try:
            if isinstance(rows, range):
                part: Tensor = reader.get_slice(key)[rows.start : rows.stop]
                return part
            tensor: Tensor = reader.get_tensor(key)
        except (SafetensorError, OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(f"{self.folder}: tensor {name} cannot be read: {reason}") from error
        scale = key + SCALE
        if tensor.dtype == torch.int8 and scale in self._files:
            tensor = tensor.float() * self._files[scale].get_tensor(scale)  # one a row
        return tensor if rows is None else tensor[list(rows)]

    def _places(self) -> dict[str, str]:
        path = self.folder / "model.safetensors.index.json"
        if not path.is_file():
            return {}
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            places: dict[str, str] = index["weight_map"]
            plain = all(
                isinstance(v, str) and Path(v).name == v and v.endswith(".safetensors") for v in places.values()
            )
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error!r}") from error
        if not plain:
            raise CheckpointError(f"{path} names a file that is not a .safetensors file of its own folder")
        with suppress(AttributeError):
            self.metadata = dict(index.get("metadata") or {})
        return places

    def _open(self, path: Path, places: Mapping[str, str]) -> None:
        wanted = {name for name, file in places.items() if file == path.name}
        if wanted and not path.is_file():
            self._absent |= dict.fromkeys(wanted, path.name)
            return
        try:
            reader = safe_open(path, framework="pt")
            found = dict.fromkeys(reader.keys(), reader)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        if places:
            missing = sorted(wanted - found.keys())
            if missing:
                raise CheckpointError(f"{path}: tensor {missing[0]} is missing, which the index says is there")
            found = dict.fromkeys(wanted, reader)
        twice = sorted(found.keys() & self._files.keys())
        if twice:
            raise CheckpointError(f"{path}: tensor {twice[0]} stands in two files of this checkpoint")
        self._files |= found

    def _header(self, name: str) -> Any:
        reader, key = self._reader(name)
        return reader.get_slice(key)

    def _reader(self, name: str) -> tuple[Any, str]:
        key = self._key(name)
        if key in self._absent:
            others = sum(file == self._absent[key] for file in self._absent.values()) - 1
            raise CheckpointError(
                f"{self.folder}: file {self._absent[key]} is missing; it holds tensor {name} and {others} others"
            )
        if key not in self._files:
            raise CheckpointError(f"{self.folder}: tensor {name} is missing")
        return self._files[key], key

    def _is_scale(self, name: str) -> bool:
        return name.endswith(SCALE) and name.removesuffix(SCALE) in self._files

    def _key(self, name: str) -> str:
        prefixed = self._prefix + name
        return prefixed if prefixed in self._files or prefixed in self._absent else name
