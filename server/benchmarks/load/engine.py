"""A shared engine in simulated time: requests join a batch between rounds, and each round brings all of them on."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from server.benchmarks.load.cost import EngineCost


@dataclass(eq=False)
class SimulatedRequest:
    """Times in simulated seconds. prefill: prompt tokens that no cache holds. wanted: tokens until it has its unit."""

    sent: float
    prefill: int
    wanted: float
    ended: simpy.Event
    cancelled: bool = False
    tokens: float = 0.0
    first: float | None = None


@dataclass
class SimulatedEngine:
    """One replica. busy_s, rounds and batches tell what it did."""

    env: simpy.Environment
    cost: EngineCost
    busy_s: float = 0.0
    rounds: int = 0
    batches: int = 0
    _waiting: deque[SimulatedRequest] = field(default_factory=deque)
    _running: list[SimulatedRequest] = field(default_factory=list)
    _arrived: simpy.Event | None = None

    def __post_init__(self) -> None:
        self._arrived = self.env.event()
        self.env.process(self._run())

    def submit(self, request: SimulatedRequest) -> None:
        self._waiting.append(request)
        if self._arrived is not None and not self._arrived.triggered:
            self._arrived.succeed()

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while True:
            admitted = self._admit()
            if not self._running:
                self._arrived = self.env.event()
                yield self._arrived
                continue
            seconds = sum(each.prefill for each in admitted) / self.cost.prefill_tokens_per_s
            seconds += self.cost.round_s(len(self._running))
            yield self.env.timeout(seconds)
            self.busy_s += seconds
            self.rounds += 1
            self.batches += len(self._running)
            self._running = [each for each in self._running if self._goes_on(each)]

    def _admit(self) -> list[SimulatedRequest]:
        admitted = []
        while self._waiting and len(self._running) < self.cost.most_running:
            request = self._waiting.popleft()
            if not request.cancelled:
                self._running.append(request)
                admitted.append(request)
        return admitted

    def _goes_on(self, request: SimulatedRequest) -> bool:
        request.tokens += self.cost.tokens_per_round
        if request.first is None:
            request.first = self.env.now
        if request.cancelled:  # noticed after the round that was running
            return False
        if request.tokens < request.wanted:
            return True
        request.ended.succeed()
        return False
