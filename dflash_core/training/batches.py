"""Prepares batches in a thread of their own, so that the device does not wait for the disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import torch

from dflash_core.training.shards import Rows


def ahead(batches: Iterator[Rows], depth: int = 8) -> Iterator[Rows]:
    ready: queue.Queue[Rows | Exception] = queue.Queue(depth)

    def fill() -> None:
        try:
            for batch in batches:
                ready.put(batch.pin_memory() if torch.cuda.is_available() else batch)
        except Exception as error:  # handed to the loop, which raises it
            ready.put(error)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        batch = ready.get()
        if isinstance(batch, Exception):
            raise batch
        yield batch
