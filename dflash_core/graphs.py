"""Captured CUDA graphs by name: launching a round costs one call instead of some hundred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Graphs:
    """Runs a piece of device work by name: captured at its first use, replayed after that.

    A piece works on static tensors alone, allocates nothing, and never asks the device for a value. `kept`: tensors
    that a piece changes and that the run which compiles its kernels must leave as they were. On a device that is not
    CUDA pieces run as they are, which is how their kernels are tested by Triton's interpreter.
    """

    def __init__(self, device: torch.device, kept: Sequence[Tensor]) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        # Of its own: the library's is made once, on whichever device captures first.
        self._stream = torch.cuda.Stream(device) if self._cuda else None
        self._kept = kept
        self._captured: dict[str, Any] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._cuda else None

    def run(self, name: str, piece: Callable[[], None]) -> None:
        if not self._cuda:
            piece()
            return
        if name not in self._captured:
            with torch.cuda.device(self._device):
                self._captured[name] = self._capture(piece)
        self._captured[name].replay()

    def _capture(self, piece: Callable[[], None]) -> Any:
        before = [tensor.clone() for tensor in self._kept]
        piece()  # compiles what is new, which must not happen under capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            piece()
        for tensor, was in zip(self._kept, before, strict=True):
            tensor.copy_(was)
        torch.cuda.synchronize()
        return graph
