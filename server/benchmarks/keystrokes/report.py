"""What traces add up to with one profile: latencies by stage, work without the engine, characters and waste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.benchmarks.keystrokes.driver import Asked, driver
from server.benchmarks.keystrokes.player import Play, play
from server.benchmarks.keystrokes.quantiles import p50_p95
from server.benchmarks.keystrokes.traces import Trace
from server.context.tokenizer import PromptTokenizer
from server.engine.launcher import running_engine
from server.profiles import load_profile

STAGES = ("shown", "cache", "running", "new")  # in the order in which they are asked
TOKENS = "dflash_tokens_total"


async def summed(traces: Sequence[Trace], profile: str, draft: str, speed: float) -> dict[str, Any]:
    """Play all traces in one window, with the draft on, off, or as pays."""
    async with driver(profile, draft=draft) as window:
        before = await _tokens(profile)
        plays = [await play(trace, window, speed) for trace in traces]
        generated = await _tokens(profile) - before
    settings = load_profile(profile).prompt
    tokenizer = None if settings is None else PromptTokenizer.from_file(settings.tokenizer)
    return _report(plays, generated, tokenizer)


def _report(plays: Sequence[Play], generated: float, tokenizer: PromptTokenizer | None) -> dict[str, Any]:
    asked = [each for one in plays for each in one.asked]
    answered = [each for each in asked if each.text]
    without = [each for each in answered if each.source in ("shown", "cache")]
    shown = [text for one in plays for text in one.shown]
    accepted = [text for one in plays for text in one.accepted]
    return {
        "requests": len(asked),
        "answered": len(answered),
        "stages": {stage: _times(answered, stage) for stage in STAGES} | {"all": _times(answered)},
        "share_without_engine": round(len(without) / len(answered), 3) if answered else 0.0,
        "shown": len(shown),
        "shown_characters": sum(map(len, shown)),
        "accepted": len(accepted),
        "accepted_characters": sum(map(len, accepted)),
        "keys": sum(each.keys for each in plays),
        "keys_spared": sum(each.keys_spared for each in plays),
        "tokens": _waste(generated, shown, accepted, tokenizer),
    }


def _times(answered: Sequence[Asked], stage: str | None = None) -> dict[str, Any]:
    """Milliseconds until the first text and until all of it, of the answers that came from one stage, or of all."""
    of_stage = [each for each in answered if stage in (None, each.source)]
    return {
        "first_visible_ms": p50_p95([each.first_ms for each in of_stage if each.first_ms is not None]),
        "full_ms": p50_p95([each.total_ms for each in of_stage]),
    }


def _waste(
    generated: float, shown: Sequence[str], accepted: Sequence[str], tokenizer: PromptTokenizer | None
) -> dict[str, float | None]:
    """Tokens that the engine generated, and those of them that nobody saw; None where a profile sends text."""
    seen, kept = (
        None if tokenizer is None else sum(len(tokenizer.encode(text)) for text in texts) for texts in (shown, accepted)
    )
    wasted = None if seen is None else max(0.0, generated - seen)
    return {"generated": generated, "shown": seen, "accepted": kept, "wasted": wasted}


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
