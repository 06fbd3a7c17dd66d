"""`dflash/inlineCompletion`: a completion that grows in front of the user's eyes, told by `$/progress`.

Each progress value holds the whole completion so far, so that a client may drop any of them but the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from asyncio_throttle import Throttler

if TYPE_CHECKING:
    from server.completion.request import Growth

ENOUGH_CHARACTERS = 12  # of a line that is not whole yet: fewer would only flicker


class GrowthStream:
    """Tells the growth of one completion: at most ten times a second, never less of it, and only what is worth it.

    What cannot be kept, should nothing more come, waits for what comes: the final result never takes text back.
    """

    def __init__(self, tell: Callable[[Growth], None]) -> None:
        self._tell = tell
        self._latest: Growth | None = None
        self._told = 0
        self._throttler = Throttler(1, 0.1)
        self._telling: asyncio.Task[None] | None = None

    def grow(self, growth: Growth) -> None:
        """The completion has grown; tell it when it is its turn, unless its answer is about to come."""
        if growth.answered:
            self.end()
        elif len(growth.text) > self._told and is_displayable(growth):
            self._latest = growth
            if self._telling is None:
                self._telling = asyncio.get_running_loop().create_task(self._run(), name="growth")

    def end(self) -> None:
        """The final result is on its way, and needs no turn."""
        if self._telling is not None:
            self._telling.cancel()

    async def _run(self) -> None:
        while self._latest is not None:
            growth, self._latest = self._latest, None
            if not await growth.may_be_kept():
                continue
            async with self._throttler:
                newer, self._latest = self._latest, None
                if newer is not None and await newer.may_be_kept():
                    growth = newer
                self._told = len(growth.text)
                self._tell(growth)
        self._telling = None


def is_displayable(growth: Growth) -> bool:
    """Whether a growing text is worth showing: its first line is whole, or long enough."""
    first, newline, _ = growth.text.strip("\n").partition("\n")
    return bool(first.strip()) and (bool(newline) or growth.ends_line or len(first) >= ENOUGH_CHARACTERS)
