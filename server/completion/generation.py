"""One generation: the engine's stream, cut by the boundary, until the answer is complete."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from server.completion.boundaries.boundary import Decision
from server.completion.cut import Cut
from server.completion.result import Finish, Stats
from server.completion.surroundings import Surroundings
from server.context.prompt import Prompt, PromptBuilder
from server.engine.client import CompletionStream
from server.engine.protocol import CompletionChunk, CompletionSummary, EngineHealth

# How an engine's stream ends, in the words of a result.
NOT_RETYPED = "the answer does not go on with what was typed"
_FINISHES: dict[str, Finish] = {"eos": "eos", "stop": "eos", "length": "length", "cancelled": "cancelled"}


@dataclass(frozen=True)
class RoundText:
    """What one round added to the generated text: `text`, of which the last part is the bonus token's."""

    text: str
    bonus: str


@dataclass(frozen=True)
class Growth:
    """A completion so far: its rounds, and how many characters of them will be shown, come what may."""

    rounds: tuple[RoundText, ...]
    settled: int


@dataclass(frozen=True)
class Outcome:
    """The text that a generation leaves, with `\\n` line ends, and why it ended."""

    text: str
    finish: Finish
    reason: str


class Generation:
    """Reads one stream of an engine. `read` may be cancelled; the caller leaves the stream."""

    def __init__(
        self,
        site: Surroundings,
        prompt: Prompt,
        prompts: PromptBuilder,
        on_growth: Callable[[Growth], None] | None = None,
        *,
        single_line: bool = False,
    ) -> None:
        """single_line: the completion ends with the cursor's line, whatever the syntax would allow."""
        self._cut = Cut(site, single_line=single_line)
        self._retyped = prompt.retyped
        self._prompt = prompt
        self._prompts = prompts
        self._on_growth = on_growth
        self._rounds: list[RoundText] = []
        self._begun = time.monotonic()
        self._first: float | None = None
        self._ended: float | None = None
        self._tokens = 0
        self._round_count = 0

    async def read(self, stream: CompletionStream) -> Outcome:
        """Read until the boundary is found or the stream ends."""
        async for chunk in stream:
            decision = self._add(chunk)
            if decision.end is not None:
                return self._outcome(decision, "boundary")
        decision = self._cut.finish()
        finish = "eos" if stream.summary is None else _FINISHES.get(stream.summary.finish, "eos")
        return self._outcome(decision, finish)

    def stats(self, health: EngineHealth, summary: CompletionSummary | None) -> Stats:
        """Numbers so far; exact once the engine's summary is there."""
        total_s = (self._ended or time.monotonic()) - self._begun
        first_s = total_s if self._first is None else self._first - self._begun
        ids = self._prompt.content
        tokens, rounds, decode_s = self._tokens, self._round_count, total_s - first_s
        prompt_tokens, reused = len(ids) if isinstance(ids, list) else 0, 0
        acceptance_length = tokens / rounds if rounds else 0.0
        if summary is not None:
            tokens, rounds, decode_s = summary.completion_tokens, summary.rounds, summary.decode_ms / 1000
            prompt_tokens, reused = summary.prompt_tokens, summary.reused_tokens
            acceptance_length = summary.acceptance_length
        return Stats(
            engine=health.kind or "remote",
            device=health.device,
            prompt_tokens=prompt_tokens,
            reused_tokens=reused,
            tokens=tokens,
            rounds=rounds,
            acceptance_length=round(acceptance_length, 2),
            first_ms=round(first_s * 1000, 1),
            total_ms=round(total_s * 1000, 1),
            tokens_per_s=round(tokens / decode_s, 1) if decode_s > 0 else 0.0,
        )

    def _add(self, chunk: CompletionChunk) -> Decision:
        if chunk.token_ids or chunk.text:
            self._round_count += 1
            # The replay engine has no tokens: each of its rounds counts as one.
            self._tokens += len(chunk.token_ids) or 1
        fresh = self._without_retyped(chunk.text)
        if fresh is None:
            return self._cut.refuse(NOT_RETYPED)
        text = self._cut.add(fresh)
        bonus = self._prompts.text_of(chunk.token_ids[chunk.accepted :]) if chunk.accepted else text
        self._rounds.append(RoundText(text, text[-len(bonus) :] if bonus else ""))
        decision = self._cut.decision
        if decision.settled and self._first is None:
            self._first = time.monotonic()
        if self._on_growth is not None:
            self._on_growth(Growth(tuple(self._rounds), decision.settled))
        return decision

    def _without_retyped(self, text: str) -> str | None:
        """The text without what an engine that knows no healing must begin with; None when it does not."""
        if not self._retyped:
            return text
        common = min(len(text), len(self._retyped))
        if text[:common] != self._retyped[:common]:
            return None
        self._retyped = self._retyped[common:]
        return text[common:]

    def _outcome(self, decision: Decision, finish: Finish) -> Outcome:
        assert decision.end is not None
        self._ended = time.monotonic()
        if self._on_growth is not None:
            self._on_growth(Growth(tuple(self._rounds), decision.end))
        text = self._cut.kept()
        if not text:
            return Outcome(text, "empty", decision.reason)
        return Outcome(text, finish, decision.reason if finish == "boundary" else finish)
