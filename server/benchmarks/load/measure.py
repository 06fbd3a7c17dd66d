"""Measures what a round and a prefill cost on an engine that runs, ours or another's."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from server.benchmarks.load.cost import EngineCost
from server.engine.client import CompletionRequest, CompletionSummary, EngineClient
from server.engine.protocol import EngineError

TOKENS = 48
PREFILLS = 3
CHARACTERS_PER_TOKEN = 3.3


async def measure_cost(client: EngineClient, text: str, at_once: Sequence[int], name: str) -> dict[str, Any]:
    """An EngineCost as JSON-ready data, from requests with prompts cut out of a text, so many of them at once.

    Prompts begin with random words, so that no cache holds them. The engine should serve nobody else meanwhile.
    """
    prefills = [await _prefill(client, text) for _ in range(PREFILLS)]
    round_ms: dict[int, float] = {}
    tokens = rounds = 0
    for requests in at_once:
        runs = await asyncio.gather(*(_decode(client, text, number) for number in range(requests)))
        round_ms[requests] = round(statistics.median(run.decode_ms / run.rounds for run in runs), 2)
        tokens += sum(run.completion_tokens for run in runs)
        rounds += sum(run.rounds for run in runs)
    cost = EngineCost(
        name=name,
        source=f"measured with {', '.join(map(str, at_once))} requests at once, {TOKENS} tokens each",
        round_ms=round_ms,
        prefill_tokens_per_s=round(statistics.median(prefills), 1),
        tokens_per_round=round(tokens / rounds, 2),
        most_running=max(at_once),
    )
    return asdict(cost)


async def _prefill(client: EngineClient, text: str) -> float:
    """Prompt tokens a second, of a prompt that is new."""
    prompt = f"# {secrets.token_hex(8)}\n{text}"
    begun = time.monotonic()
    summary = await _read(client, CompletionRequest(prompt=prompt, max_tokens=1))
    tokens = summary.prefill_tokens or len(prompt) / CHARACTERS_PER_TOKEN
    return tokens / (summary.prefill_ms / 1000 or time.monotonic() - begun)


async def _decode(client: EngineClient, text: str, number: int) -> CompletionSummary:
    prompt = f"# {secrets.token_hex(8)}\n{text[number:]}"
    summary = await _read(client, CompletionRequest(prompt=prompt, max_tokens=TOKENS, draft="on"))
    if not summary.rounds or not summary.decode_ms:
        raise EngineError("the engine's answers show no rounds to measure")
    return summary


async def _read(client: EngineClient, request: CompletionRequest) -> CompletionSummary:
    async with client.stream(request) as stream:
        async for _ in stream:
            pass
    assert stream.summary is not None
    return stream.summary
