"""Plays a trace into a real server, asking after each key, and reads off what the user saw."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from server.benchmarks.keystrokes.driver import Asked, Driver
from server.benchmarks.keystrokes.traces import Event, Trace
from server.documents.common_prefix import common_prefix
from server.documents.document import Place


@dataclass
class Play:
    """What a trace brought: requests, keys typed and keys that acceptances spared, texts shown and accepted.

    A text is in `shown` once, however long it stays and however often it comes back; also one that had only begun to
    grow.
    """

    asked: list[Asked] = field(default_factory=list)
    keys: int = 0
    keys_spared: int = 0
    shown: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)


async def play(trace: Trace, driver: Driver, speed: float = 1.0) -> Play:
    """Type the trace `speed` times as fast as it was; what was accepted is not typed again."""
    driver.open(trace.text, trace.language)
    player = _Player(driver, Place(trace.line, trace.character))
    begun, spared_ms = time.monotonic(), 0.0
    for event in trace.events:
        wait_s = (event.at_ms - spared_ms) / 1000 / speed - (time.monotonic() - begun)
        if player.is_spared(event):
            spared_ms = event.at_ms - (time.monotonic() - begun) * 1000 * speed
            continue
        await asyncio.sleep(max(0.0, wait_s))
        await player.do(event)
    await player.settle()
    return player.play


class _Player:
    def __init__(self, driver: Driver, place: Place) -> None:
        self._driver = driver
        self._place = place
        self._waiting: asyncio.Task[Asked] | None = None
        self._id = ""
        self._spared = 0  # characters of the coming keys that an acceptance has brought already
        self._seen: list[tuple[int, str]] = []  # what was shown, with all before it, and how much that was
        self._before = ""  # the cursor, when it was asked last
        self.play = Play()

    def is_spared(self, event: Event) -> bool:
        """Whether an acceptance has made an event needless; it is counted then."""
        if not self._spared:
            return False
        if event.type and not event.mistake:
            self._spared -= len(event.type)
            self.play.keys_spared += 1
        return True

    async def do(self, event: Event) -> None:
        if event.goes_on:
            await self._consider(event.goes_on)
            return
        self._cancel()
        if event.erase:
            end = self._driver.document.position(self._place)
            self._place = Place(self._place.line, self._place.column - event.erase)
            self._driver.edit(self._driver.document.position(self._place), end, "")
        else:
            self._place = self._driver.type(self._place, event.type)
        self.play.keys += 1
        self._ask()

    async def settle(self) -> None:
        if self._waiting is not None:
            self._note(self._before, await self._waiting)
            self._waiting = None

    def _ask(self) -> None:
        lines, place = self._driver.document.lines, self._place
        self._before = "".join(lines[: place.line]) + lines[place.line][: place.column]
        self._id, self._waiting = self._driver.ask(self._place)

    def _cancel(self) -> None:
        """As VS Code does: the next key cancels what was not answered yet."""
        if self._waiting is None:
            return
        if self._waiting.done():
            self._note(self._before, self._waiting.result())
        else:
            self._driver.cancel(self._id)
            before = self._before
            self._waiting.add_done_callback(lambda task: self._note(before, task.result()))
        self._waiting = None

    async def _consider(self, goes_on: str) -> None:
        """Accept what is shown if it is right."""
        if self._waiting is None:
            self._ask()
            return
        if not self._waiting.done():
            return
        shown = self._waiting.result()
        if not shown.text or not goes_on.startswith(shown.text):
            return
        await self.settle()
        self._place = self._driver.type(self._place, shown.text)
        await self._driver.accepted()
        self.play.accepted.append(shown.text)
        self._spared = len(shown.text)
        self._ask()

    def _note(self, before: str, asked: Asked) -> None:
        self.play.asked.append(asked)
        whole, start = before + (asked.text or asked.grown), len(before)
        # Of a text that has grown, that was typed through or that came back, what is new of it.
        known = [common_prefix(whole, other) for begin, other in self._seen if begin <= start]
        fresh = whole[max([start, *known]) :]
        if fresh:
            self.play.shown.append(fresh)
            self._seen.append((start, whole))
