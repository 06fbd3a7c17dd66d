"""Simulates a team on shared engines: latency by the number of developers, and where another replica is due."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import simpy

from server.benchmarks.keystrokes.traces import Trace
from server.benchmarks.load.cost import EngineCost
from server.benchmarks.load.developer import Developer, Seen
from server.benchmarks.load.engine import SimulatedEngine

TARGET_MS = 300.0  # of the 95th percentile from a key to all of its text: what a typist still waits for
MOST_REPLICAS = 64


def simulate(
    traces: Sequence[Trace],
    cost: EngineCost,
    developers: int,
    *,
    replicas: int = 1,
    minutes: float = 10.0,
    right: float = 0.35,
    typing_share: float = 0.15,
    seed: int = 1,
) -> dict[str, Any]:
    """One run. Each developer stays with one replica, since a prompt's prefix is in one cache only."""
    env = simpy.Environment()
    engines = [SimulatedEngine(env, cost) for _ in range(replicas)]
    seen = Seen()
    for number in range(developers):
        dice = random.Random(seed * 1_000_003 + number)
        engine = engines[number % replicas]
        Developer(env, engine, traces, seen, dice, right=right, typing_share=typing_share)
    env.run(until=60 * minutes)
    rounds = sum(engine.rounds for engine in engines)
    return {
        "developers": developers,
        "replicas": replicas,
        "requests_per_s": round(seen.requests / (60 * minutes), 2),
        "keys": seen.keys,
        "requests": seen.requests,
        "shown": len(seen.whole_s),
        "accepted": seen.accepted,
        "overtaken": round(seen.overtaken / seen.requests, 3) if seen.requests else 0.0,
        "first_ms": _quantiles(seen.first_s),
        "whole_ms": _quantiles(seen.whole_s),
        "busy": round(sum(engine.busy_s for engine in engines) / (60 * minutes * replicas), 3),
        "requests_per_round": round(sum(engine.batches for engine in engines) / rounds, 2) if rounds else 0.0,
    }


def replicas_due(traces: Sequence[Trace], cost: EngineCost, developers: int, **more: Any) -> dict[str, Any] | None:
    """The run with the fewest replicas that hold the target; None when not even the most do."""
    replicas = 1
    while replicas <= MOST_REPLICAS:
        run = simulate(traces, cost, developers, replicas=replicas, **more)
        if _holds(run):
            return _fewest(traces, cost, developers, replicas // 2 + 1, replicas, run, **more)
        replicas *= 2
    return None


def _fewest(
    traces: Sequence[Trace], cost: EngineCost, developers: int, low: int, high: int, best: dict[str, Any], **more: Any
) -> dict[str, Any]:
    while low < high:
        middle = (low + high) // 2
        run = simulate(traces, cost, developers, replicas=middle, **more)
        if _holds(run):
            high, best = middle, run
        else:
            low = middle + 1
    return best


def _holds(run: dict[str, Any]) -> bool:
    return bool(run["whole_ms"]) and run["whole_ms"]["p95"] <= TARGET_MS and run["overtaken"] <= 0.5


def _quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    if not ordered:
        return {}
    return {
        name: round(1000 * ordered[int(share * (len(ordered) - 1))], 1) for name, share in (("p50", 0.5), ("p95", 0.95))
    }
