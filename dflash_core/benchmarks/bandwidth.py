"""How fast a device reads its memory: the floor of every step that is bound by its weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

_CPU_BYTES = 1 << 28
_DEVICE_BYTES = 8 << 30
"""Far beyond any cache; on a device so much that starting the kernel is nothing beside it."""


def read_bandwidth(device: torch.device, repeats: int = 10) -> float:
    """Bytes a second that a plain reduction reads from the device's memory."""
    wanted = _CPU_BYTES
    if device.type == "cuda":
        wanted = min(_DEVICE_BYTES, torch.cuda.mem_get_info(device)[0] // 2)
    data = torch.ones(wanted // 4, dtype=torch.float32, device=device)
    return data.nbytes / (step_ms(data.sum, device, repeats) / 1000)


def step_ms(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Milliseconds of one call, after a warm-up.

    On a CUDA device the median by its own events, which leave out what the host does meanwhile; elsewhere the
    quickest by the clock, since what else a processor does only ever makes a call slower.
    """
    work()
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            started = time.perf_counter()
            work()
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times) if device.type == "cuda" else min(times)
