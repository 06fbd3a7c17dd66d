"""The numbers of one request: when it saw text, and what its generation cost."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace

from server.completion.generation import Generation
from server.completion.result import Source, Stats
from server.engine.protocol import EngineHealth

RECENT = 20  # generations whose numbers the status shows


class Stopwatch:
    """Started by a request."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._first: float | None = None

    def text_came(self) -> None:
        """Something could be shown; only the first time counts."""
        if self._first is None:
            self._first = time.monotonic()

    def stats(self, health: EngineHealth, source: Source, generation: Generation | None = None) -> Stats:
        """Numbers up to now, without a generation those of an answer that needed none."""
        total_s = time.monotonic() - self._begun
        first_s = total_s if self._first is None else self._first - self._begun
        stats = Stats(
            engine=health.kind or "remote",
            device=health.device,
            first_ms=round(first_s * 1000, 1),
            total_ms=round(total_s * 1000, 1),
            source=source,
        )
        return stats if generation is None else _with_cost(stats, generation, total_s - first_s)


def _with_cost(stats: Stats, generation: Generation, decode_s: float) -> Stats:
    ids = generation.prompt.content if generation.prompt is not None else ""
    tokens, rounds = generation.tokens, len(generation.rounds)
    prompt_tokens, reused = len(ids) if isinstance(ids, list) else 0, 0
    acceptance_length = tokens / rounds if rounds else 0.0
    summary = generation.summary
    if summary is not None:
        tokens, rounds, decode_s = summary.completion_tokens, summary.rounds, summary.decode_ms / 1000
        prompt_tokens, reused = summary.prompt_tokens, summary.reused_tokens
        acceptance_length = summary.acceptance_length
    return replace(
        stats,
        prompt_tokens=prompt_tokens,
        reused_tokens=reused,
        tokens=tokens,
        rounds=rounds,
        acceptance_length=round(acceptance_length, 2),
        tokens_per_s=round(tokens / decode_s, 1) if decode_s > 0 else 0.0,
    )


@dataclass(frozen=True)
class Pace:
    """How fast the last generations were; 0.0 before the first."""

    acceptance_length: float = 0.0
    tokens_per_s: float = 0.0


class Recent:
    """The engine's own numbers of the last generations."""

    def __init__(self) -> None:
        self._runs: deque[tuple[int, int, float]] = deque(maxlen=RECENT)

    def note(self, generation: Generation) -> bool:
        """Count a generation that has ended; False when it has no numbers."""
        summary = generation.summary
        if summary is None or not summary.rounds:
            return False
        # Without an acceptance length the engine has not told its rounds.
        rounds = summary.rounds if summary.acceptance_length else 0
        self._runs.append((summary.completion_tokens, rounds, summary.decode_ms / 1000))
        return True

    @property
    def pace(self) -> Pace:
        tokens, rounds, seconds = (sum(run[column] for run in self._runs) for column in range(3))
        return Pace(round(tokens / rounds, 2) if rounds else 0.0, round(tokens / seconds, 1) if seconds else 0.0)
