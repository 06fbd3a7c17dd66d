"""A developer in simulated time: types recorded traces, and asks as our server does on a shared engine.

A key that goes on with the text that is shown or generated asks for nothing. Any other key gives up what runs and asks
anew, after the pause that `completion.pacing` makes. How often the text is what the user goes on to type is no property
of the engine's speed: `right` is the share of lines that are, drawn for each.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from server.benchmarks.keystrokes.traces import Event, Trace
from server.benchmarks.load.engine import SimulatedEngine, SimulatedRequest
from server.completion.pacing import Pacing

CHARACTERS_PER_TOKEN = 3.3  # of code
MOST_TOKENS = 64
FRESH_TOKENS = 24  # prompt tokens that a key changes: the healed word, the line, what stands behind the text
COLD_TOKENS = 2048  # of a document's first request


@dataclass
class Seen:
    """What all developers saw. Seconds from the key to the first and to all of the text, of those that were shown.

    overtaken: requests that a key ended before anything could be shown. keys, requests, accepted: counts.
    """

    first_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    keys: int = 0
    requests: int = 0
    overtaken: int = 0
    accepted: int = 0
    typing_s: float = 0.0


class Developer:
    """One person with one window; `typing_share` of the time is spent at the keys."""

    def __init__(
        self,
        env: simpy.Environment,
        engine: SimulatedEngine,
        traces: Sequence[Trace],
        seen: Seen,
        dice: random.Random,
        *,
        right: float,
        typing_share: float,
    ) -> None:
        self._env = env
        self._engine = engine
        self._traces = traces
        self._seen = seen
        self._dice = dice
        self._right = right
        self._typing_share = typing_share
        self._pacing = Pacing()
        self._request: SimulatedRequest | None = None
        self._asking: simpy.Process | None = None
        self._text = ""  # what is shown or will be, as far as it is what the user goes on to type
        self._key_at = 0.0
        env.process(self._work())

    def _work(self) -> Generator[simpy.Event, Any, None]:
        yield self._env.timeout(self._dice.uniform(0, 60))
        while True:
            trace = self._dice.choice(self._traces)
            begun = self._env.now
            yield from self._type(trace)
            typed_s = self._env.now - begun
            self._seen.typing_s += typed_s
            rest_s = typed_s * (1 - self._typing_share) / self._typing_share
            yield self._env.timeout(self._dice.expovariate(1 / rest_s) if rest_s else 0.0)

    def _type(self, trace: Trace) -> Generator[simpy.Event, Any, None]:
        begun, spared_ms, spare = self._env.now, 0.0, 0
        is_cold = True
        goes_on = _goes_on(trace.events)
        for number, event in enumerate(trace.events):
            if spare > 0:
                spared_ms = event.at_ms - (self._env.now - begun) * 1000
                spare -= len(event.type)
                continue
            yield self._env.timeout(max(0.0, begun + (event.at_ms - spared_ms) / 1000 - self._env.now))
            if event.goes_on:
                spare = self._accept()
                continue
            self._seen.keys += 1
            self._pacing.key(self._env.now)
            if event.type and self._text.startswith(event.type):
                self._text = self._text[len(event.type) :]
                if self._text:
                    continue
            self._give_up()
            if not event.erase:
                self._begin(goes_on[number], is_cold)
                is_cold = False
        self._give_up()

    def _accept(self) -> int:
        """Accept what is shown if it is whole and right; how many characters it spares."""
        request = self._request
        if request is None or not request.ended.triggered or not self._text:
            return 0
        self._seen.accepted += 1
        spared, self._text = len(self._text), ""
        return spared

    def _give_up(self) -> None:
        if self._asking is not None and self._asking.is_alive:
            self._asking.interrupt()
        request, self._request = self._request, None
        if request is not None and not request.ended.triggered:
            request.cancelled = True
            self._seen.overtaken += request.first is None
        self._text = ""

    def _begin(self, goes_on: str, is_cold: bool) -> None:
        """Ask for the unit that the text to come begins with: the line, at its beginning some lines."""
        lines = goes_on.split("\n")
        unit = lines[:1] if goes_on[:1] not in (" ", "\t", "\n") else lines[: self._dice.randint(1, 6)]
        wanted = min(MOST_TOKENS, max(1.0, sum(len(line) + 1 for line in unit) / CHARACTERS_PER_TOKEN))
        right = []
        for line in unit:
            if self._dice.random() >= self._right:
                break
            right.append(line)
        self._text = "\n".join(right)
        self._key_at = self._env.now
        self._asking = self._env.process(self._ask(wanted, COLD_TOKENS if is_cold else FRESH_TOKENS))

    def _ask(self, wanted: float, prefill: int) -> Generator[simpy.Event, Any, None]:
        key_at = self._env.now
        try:
            delay_s = self._pacing.delay("", 0)
            if delay_s:
                yield self._env.timeout(delay_s)
            request = SimulatedRequest(self._env.now, prefill, wanted, self._env.event())
            self._request = request
            self._seen.requests += 1
            self._engine.submit(request)
            yield request.ended
        except simpy.Interrupt:
            return
        assert request.first is not None
        self._pacing.first_text(request.first - request.sent)
        self._seen.first_s.append(request.first - key_at)
        self._seen.whole_s.append(self._env.now - key_at)


def _goes_on(events: Sequence[Event]) -> list[str]:
    """For each event, the text that is typed after it, mistakes that are taken back left out."""
    after = [""] * len(events)
    text, erased = "", 0
    for number in range(len(events) - 1, -1, -1):
        after[number] = text
        event = events[number]
        erased += event.erase
        if event.type:
            taken = min(erased, len(event.type))
            erased -= taken
            text = event.type[: len(event.type) - taken] + text
    return after
