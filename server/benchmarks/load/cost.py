"""What a round and a prefill cost on an engine: measured by `bench load --measure`, or derived from publications."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from server.errors import DflashError


@dataclass(frozen=True)
class EngineCost:
    """One engine. round_ms: time of a round by the number of requests in it, between them linear.

    prefill_tokens_per_s: of prompt tokens that no cache holds. tokens_per_round: the acceptance length.
    source: where the numbers are from, in one line.
    """

    name: str
    source: str
    round_ms: Mapping[int, float]
    prefill_tokens_per_s: float
    tokens_per_round: float
    most_running: int = 48  # SGLang's default with a draft

    def round_s(self, requests: int) -> float:
        """Time of a round with so many requests, in seconds."""
        known = sorted(self.round_ms)
        at = max(1, min(len(known) - 1, bisect_right(known, requests)))
        if len(known) == 1 or requests <= known[0]:
            return self.round_ms[known[0]] / 1000
        low, high = known[at - 1], known[at]
        slope = (self.round_ms[high] - self.round_ms[low]) / (high - low)
        return (self.round_ms[low] + slope * (requests - low)) / 1000


# DFlash paper (arXiv 2602.06036), Table 3: Qwen3-8B on one B200 in SGLang, tokens/s on Math500 at 1 and 32 requests,
# acceptance length 8.01: 8.01 / 1175 s, and 32 * 8.01 / 16076 s a round. For code (HumanEval) it is 6.50.
QWEN3_8B_B200 = EngineCost(
    name="qwen3-8b-b200",
    source="derived from the DFlash paper's Table 3 (one B200, SGLang); prefill rate assumed",
    round_ms={1: 6.8, 32: 15.9},
    prefill_tokens_per_s=40_000,
    tokens_per_round=6.5,
)
# Reported (not by us) for MiMo-V2.6-Flash with its draft on two DGX Spark: 70.6 tokens/s in code, 5.1 of 7 accepted.
MIMO_V26_FLASH_SPARKS = EngineCost(
    name="mimo-v2.6-flash-2-sparks",
    source="derived from reports of users (two DGX Spark, one request at a time); scaling and prefill rate assumed",
    round_ms={1: 86.0, 16: 300.0},
    prefill_tokens_per_s=2_000,
    tokens_per_round=6.1,
    most_running=16,
)
PUBLISHED = {cost.name: cost for cost in (QWEN3_8B_B200, MIMO_V26_FLASH_SPARKS)}


def read_cost(name_or_path: str) -> EngineCost:
    """A published cost by its name, or the one in a file that `--measure --json` has printed. DflashError otherwise."""
    if name_or_path in PUBLISHED:
        return PUBLISHED[name_or_path]
    path = Path(name_or_path)
    if not path.is_file():
        raise DflashError(f"{name_or_path} is no file and none of {', '.join(PUBLISHED)}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["cost"]
        cost = EngineCost(
            name=str(found["name"]),
            source=str(found["source"]),
            round_ms={int(requests): float(ms) for requests, ms in found["round_ms"].items()},
            prefill_tokens_per_s=float(found["prefill_tokens_per_s"]),
            tokens_per_round=float(found["tokens_per_round"]),
            most_running=int(found["most_running"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DflashError(f"{path} holds no cost of an engine") from error
    positive = (*cost.round_ms.values(), cost.prefill_tokens_per_s, cost.most_running, *cost.round_ms)
    if not cost.round_ms or min(positive) <= 0 or cost.tokens_per_round < 1:
        raise DflashError(f"{path} holds a cost that no engine has")
    return cost
