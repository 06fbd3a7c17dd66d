"""Which layers of a target lie on which device: contiguous stretches, shared out by the bytes they take.

The first device also holds embedding, head, final norm and the whole draft; it is given fewer layers for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dflash_core.errors import DFlashError
from dflash_core.layers.stored_weights import loaded_types
from dflash_core.sharing import RESERVED, share_out
from dflash_core.target import Target


@dataclass(frozen=True)
class Placement:
    """stages: the layers of each device, in order. devices: as many."""

    stages: tuple[range, ...]
    devices: tuple[torch.device, ...]

    def device_of(self, parameter: str) -> torch.device:
        """Where a parameter of the target belongs, by its name."""
        if not parameter.startswith("layers."):
            return self.devices[0]
        layer = int(parameter.split(".")[1])
        return next(device for stage, device in zip(self.stages, self.devices, strict=True) if layer in stage)


Place = Callable[[Target, torch.dtype], Placement]
"""place(a target on `meta` in the form that it is stored in, the type of what is stored plainly)."""


def candidate_devices(device: str, devices: Sequence[str]) -> list[torch.device]:
    """Devices that are named, or may be used where `device` leaves open which."""
    if devices:
        return [torch.device(name) for name in devices]
    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if name == "cuda" and torch.cuda.is_available():
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [torch.device(name)]


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had of a device."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 62


def on_one(device: torch.device) -> Place:
    """All of a target on one device."""
    return lambda target, dtype: Placement((range(len(target.layers)),), (device,))


def shared_out(
    devices: Sequence[torch.device], *, exactly: bool, positions: int, beside: int, free: Callable[[torch.device], int]
) -> Place:
    """Over these devices, all of them (`exactly`) or as few of the first as hold it.

    positions: of keys and values, all sessions together. beside: bytes that the first device holds besides the target.
    free: bytes that a device has left. Where even all do not hold it all are taken, each as full as the others: the
    memory ladder then gives up what it must.
    """

    def place(target: Target, dtype: torch.dtype) -> Placement:
        sizes = bytes_by_parameter(target, dtype)
        layers = [
            sum(size for name, size in sizes.items() if name.startswith(f"layers.{layer.index}."))
            + (layer.spec.k_size + layer.spec.v_size) * positions * dtype.itemsize
            for layer in target.layers
        ]
        first = beside + sum(size for name, size in sizes.items() if not name.startswith("layers."))
        room = [max(free(device) - RESERVED, 1) for device in devices]
        if len(devices) > len(layers) and exactly:
            raise DFlashError(f"{len(devices)} devices are more than the target's {len(layers)} layers")
        counts = [len(devices)] if exactly else range(1, min(len(devices), len(layers)) + 1)
        for count in counts:
            stages, fullest = share_out(layers, first, room[:count])
            if fullest <= 1:
                break
        return Placement(stages, tuple(devices[: len(stages)]))

    return place


def bytes_by_parameter(model: nn.Module, dtype: torch.dtype) -> dict[str, int]:
    """What each parameter will take once it is loaded; of a model on `meta`, some of it loaded perhaps."""
    types = loaded_types(model, dtype)
    return {name: parameter.numel() * types[name].itemsize for name, parameter in model.named_parameters()}
