"""Prefills the prompt of a document that is likely to be completed next, at the lowest priority.

A cold prefill is most of what a first completion costs; what was prefilled is found again by its session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from server.engine.client import EngineClient
from server.engine.protocol import WARM_UP, CompletionRequest, EngineError

PAUSE_S = 0.3  # without a key


class WarmUp:
    """One window's: only the newest is of use, so it ends the one before."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(
        self, client: EngineClient, request: Callable[[], Awaitable[CompletionRequest | None]], after_s: float = 0.0
    ) -> None:
        """Prefill a request's prompt, if there is one by then, unless the engine is needed within `after_s`."""
        self.end()
        loop = asyncio.get_running_loop()

        def start() -> None:
            self._task = loop.create_task(_warm_up(client, request), name="warm-up")

        self._timer = loop.call_later(after_s, start)

    def end(self) -> None:
        """Leave the engine to others."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._timer = self._task = None


async def _warm_up(client: EngineClient, request: Callable[[], Awaitable[CompletionRequest | None]]) -> None:
    asked = await request()
    if asked is None:
        return
    wanted = replace(asked, max_tokens=0, priority=WARM_UP)
    with contextlib.suppress(EngineError):  # whoever asks for text will hear of it
        async with client.stream(wanted) as stream:
            async for _ in stream:
                pass
