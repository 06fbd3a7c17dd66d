"""Compiles what a training step repeats, on a GPU, where a step launched from Python would wait for the launches.

Layers are compiled one for all: their code is the same, so the first one's compilation serves the others, and the
minutes that compiling a whole model takes are a few seconds. A CPU run (the tests) is small and goes without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from dflash_core.layers.decoder_layer import DecoderLayers

Function = TypeVar("Function", bound=Callable[..., Any])


def compile_layers(layers: DecoderLayers, device: torch.device) -> None:
    if device.type == "cuda":
        for layer in layers:
            layer.compile(dynamic=False)


def compiled(function: Function, device: torch.device) -> Function:
    return cast(Function, torch.compile(function, dynamic=False)) if device.type == "cuda" else function
