"""Measures what a round and a prefill cost on an engine that runs, ours or another's."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from server.benchmarks.load.cost import EngineCost
from server.engine.client import CompletionRequest, CompletionSummary, EngineClient
from server.engine.protocol import EngineError

TOKENS = 48
PREFILLS = 3
CHARACTERS_PER_TOKEN = 3.3


@dataclass(frozen=True)
class _Run:
    """One completion that was read. seen: when each chunk came, seconds."""

    seen: list[float]
    summary: CompletionSummary


async def measure_cost(client: EngineClient, text: str, at_once: Sequence[int], name: str) -> EngineCost:
    """What an engine takes, from requests with prompts cut out of a text, so many of them at once.

    Prompts begin with random words, so that no cache holds them. The engine should serve nobody else meanwhile.
    """
    await _prefill(client, text)  # the first one loads what the later ones use
    prefills = [await _prefill(client, text) for _ in range(PREFILLS)]
    round_ms: dict[int, float] = {}
    tokens = rounds = 0
    for requests in at_once:
        runs = await asyncio.gather(*(_decode(client, text, number) for number in range(requests)))
        round_ms[requests] = round(_round_ms(runs), 2)
        tokens += sum(run.summary.completion_tokens for run in runs)
        rounds += sum(run.summary.rounds for run in runs)
    return EngineCost(
        name=name,
        source=f"measured with {', '.join(map(str, at_once))} requests at once, {TOKENS} tokens each",
        round_ms=round_ms,
        prefill_tokens_per_s=round(statistics.median(prefills), 1),
        tokens_per_round=round(tokens / rounds, 2),
        most_running=max(at_once),
    )


def _round_ms(runs: Sequence[_Run]) -> float:
    """From one of a request's rounds to its next while all of the requests run: the round that they share.

    Not what the engine says that it spent on the request: where it takes turns, the others' turns lie between.
    """
    begun, ended = max(run.seen[0] for run in runs), min(run.seen[-1] for run in runs)
    between = [
        (later - earlier) * len(run.seen) / run.summary.rounds  # where a chunk brings several rounds
        for run in runs
        for earlier, later in pairwise(run.seen)
        if begun <= earlier and later <= ended
    ]
    if not between:
        raise EngineError("the requests did not run at once: the engine is too slow, or serves fewer")
    return statistics.median(between) * 1000


async def _prefill(client: EngineClient, text: str) -> float:
    """Prompt tokens a second, of a prompt that is new."""
    prompt = f"# {secrets.token_hex(8)}\n{text}"
    begun = time.monotonic()
    summary = (await _read(client, CompletionRequest(prompt=prompt, max_tokens=1))).summary
    tokens = summary.prefill_tokens or len(prompt) / CHARACTERS_PER_TOKEN
    return tokens / (summary.prefill_ms / 1000 or time.monotonic() - begun)


async def _decode(client: EngineClient, text: str, number: int) -> _Run:
    prompt = f"# {secrets.token_hex(8)}\n{text[number:]}"
    run = await _read(client, CompletionRequest(prompt=prompt, max_tokens=TOKENS, draft="on"))
    if not run.summary.rounds or len(run.seen) < 2:
        raise EngineError("the engine's answers show no rounds to measure")
    return run


async def _read(client: EngineClient, request: CompletionRequest) -> _Run:
    async with client.stream(request) as stream:
        seen = [time.monotonic() async for _ in stream]
    assert stream.summary is not None
    return _Run(seen, stream.summary)
