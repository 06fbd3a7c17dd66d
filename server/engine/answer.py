"""One completion as a client sees it: rounds of a backend in, chunks of certain text out, then an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from server.engine.backend import Ending, Handle, Statistics
from server.engine.protocol import CompletionChunk, CompletionSummary
from server.engine.text_assembly import TextAssembly


class Answer:
    """Reads a handle to its end, or to the first stop string.

    After `chunks()`: `tail` is the text that was held back to the end, `finish` how it ended, and
    `reason` one line when that is "error".
    """

    def __init__(self, handle: Handle, stop: tuple[str, ...], units_done: Callable[[], int]) -> None:
        self._handle = handle
        self._units_done = units_done
        self._assembly = TextAssembly(stop)
        self._statistics = Statistics()
        self.tail = ""
        self.finish = "cancelled"  # what it is for a client that leaves before the end
        self.reason = ""

    async def chunks(self, alive_every_s: float) -> AsyncIterator[CompletionChunk | None]:
        """One chunk a round, and None after each `alive_every_s` without one in which the engine worked."""
        units = self._units_done()
        while True:
            try:
                async with asyncio.timeout(alive_every_s):
                    event = await self._handle.next_event()
            except TimeoutError:
                # A stuck engine must look stuck: no sign of life unless work was done for somebody.
                before, units = units, self._units_done()
                if units != before:
                    yield None
                continue
            self._statistics = event.statistics
            if isinstance(event, Ending):
                self.finish, self.reason = event.finish, event.reason
                self.tail = self._assembly.finish()
                return
            text = self._assembly.add(event.data)
            if self._assembly.stopped:
                self.finish = "stop"
                self._handle.cancel()
            yield CompletionChunk(text, event.accepted, event.drafted, event.token_ids)
            if self._assembly.stopped:
                return

    def summary(self) -> CompletionSummary:
        """The numbers up to the last chunk, also when a stop string ended it before its backend did."""
        done = self._statistics
        return CompletionSummary(
            finish=self.finish,
            rounds=done.rounds,
            acceptance_length=done.acceptance_length,
            prompt_tokens=done.prompt_tokens,
            completion_tokens=done.completion_tokens,
            prefill_tokens=done.prefill_tokens,
            reused_tokens=done.reused_tokens,
            prefill_ms=done.prefill_ms,
            decode_ms=done.decode_ms,
        )
