"""Contiguous layers for each of several devices, by the bytes they take; arithmetic alone, without torch."""

from __future__ import annotations

from collections.abc import Sequence

RESERVED = 2 << 30
"""Bytes of every device that are left to buffers, captured graphs and compiled kernels."""


def share_out(layers: Sequence[int], first: int, room: Sequence[int]) -> tuple[tuple[range, ...], float]:
    """Contiguous layers for each device, so that the fullest is as little full as can be, and how full that is.

    layers: bytes of each. first: bytes that the first device holds besides. room: bytes that each device has.
    """
    count = len(layers)
    up_to = [0]
    for size in layers:
        up_to.append(up_to[-1] + size)

    # fullest[end]: of the devices so far, with the layers before `end` on them; cuts[device][end]: where its own begin.
    fullest = [(first + up_to[end]) / room[0] if end else float("inf") for end in range(count + 1)]
    cuts: list[list[int]] = [[0] * (count + 1)]
    for each in room[1:]:
        shares, begins = [float("inf")] * (count + 1), [0] * (count + 1)
        for end in range(1, count + 1):
            for begin in range(1, end):
                share = max(fullest[begin], (up_to[end] - up_to[begin]) / each)
                if share < shares[end]:
                    shares[end], begins[end] = share, begin
        fullest = shares
        cuts.append(begins)
    stages, end = [], count
    for begins in reversed(cuts):
        stages.append(range(begins[end], end))
        end = begins[end]
    return tuple(reversed(stages)), fullest[count]
