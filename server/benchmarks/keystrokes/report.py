"""What traces add up to with one profile: latencies by stage, work without the engine, characters and waste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.benchmarks.keystrokes.driver import driver
from server.benchmarks.keystrokes.player import Play, play
from server.benchmarks.keystrokes.quantiles import p50_p95
from server.benchmarks.keystrokes.traces import Trace
from server.engine.launcher import running_engine
from server.profiles import load_profile

SOURCES = ("shown", "cache", "running", "new")
TOKENS = "dflash_tokens_total"


async def summed(traces: Sequence[Trace], profile: str, draft: str, speed: float) -> dict[str, Any]:
    """Play all traces in one window, with the draft on, off, or as pays."""
    async with driver(profile, draft=draft) as window:
        before = await _tokens(profile)
        plays = [await play(trace, window, speed) for trace in traces]
        generated = await _tokens(profile) - before
    return _report(plays, generated)


def _report(plays: Sequence[Play], tokens: float) -> dict[str, Any]:
    asked = [each for one in plays for each in one.asked]
    answered = [each for each in asked if each.text]
    without = [each for each in answered if each.source in ("shown", "cache")]
    return {
        "requests": len(asked),
        "answered": len(answered),
        "first_visible_ms": p50_p95([each.first_ms for each in answered if each.first_ms is not None]),
        "full_ms": p50_p95([each.total_ms for each in answered]),
        "by_source": {
            source: p50_p95([each.total_ms for each in answered if each.source == source]) for source in SOURCES
        },
        "share_without_engine": round(len(without) / len(answered), 3) if answered else 0.0,
        "generated_tokens": tokens,
        "shown": sum(each.shown for each in plays),
        "shown_characters": sum(each.shown_characters for each in plays),
        "accepted": sum(each.accepted for each in plays),
        "accepted_characters": sum(each.accepted_characters for each in plays),
        "keys": sum(each.keys for each in plays),
        "keys_spared": sum(each.keys_spared for each in plays),
    }


async def _tokens(profile: str) -> float:
    """Tokens that the profile's engine has generated so far; 0.0 where it does not tell."""
    client = await running_engine(load_profile(profile))
    if client is None:
        return 0.0
    try:
        lines = (await client.metrics()).splitlines()
    finally:
        await client.aclose()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(TOKENS))
