"""A pair with real weights: autoregression and DFlash at several widths, in turns over the same prompts.

The floor of a step is what must be read for it (weights, keys and values) over the bandwidth measured in the same run.
Rates are of the median generation of each kind, so that one slow moment of the machine decides nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dflash_core.draft import Draft
from dflash_core.engine import Engine
from dflash_core.errors import DFlashError
from dflash_core.generation import Generation, GenerationRequest
from dflash_core.layers.packed_linear import precision
from dflash_core.target import Target
from dflash_core.vocabulary import Vocabulary

NEAR_TIE = 0.5
"""Logits: below fp32 kernels differ by width, and with them which of two such tokens is the greedy one."""


@dataclass(frozen=True)
class Run:
    """One kind of decoding. block: rows verified, 1 without the draft, 0 where the policy chose. Times in ms."""

    block: int
    draft_ms: float
    verify_ms: float
    round_ms: float
    floor_round_ms: float
    rounds: int
    acceptance_length: float
    tokens_per_s: float


@dataclass(frozen=True)
class SideBySide:
    """autoregressive: with no draft loaded. prefill_ms: of the first prompt, in chunks as served, nothing reused.

    texts_equal: at every width, and with the draft off. largest_gap: where they are not, how far apart the target's
    logits of the two tokens are at a first difference; up to NEAR_TIE it is a near tie (decoding rule 2).
    """

    dtype: str
    autoregressive: Run
    runs: list[Run]
    prefill_tokens: int
    prefill_ms: float
    texts_equal: bool
    largest_gap: float

    @property
    def best(self) -> Run:
        return max(self.runs, key=lambda run: run.tokens_per_s, default=self.autoregressive)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    target: Target,
    draft: Draft,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    *,
    blocks: Sequence[int],
    bandwidth: float,
    max_tokens: int = 64,
    repeats: int = 2,
    progress: Callable[[str], None] = lambda what: None,
) -> SideBySide:
    """blocks: widths to verify, 0 for the policy's own choice. bandwidth: bytes a second, as `read_bandwidth`."""
    context = max(map(len, prompts)) + max_tokens + 1
    progress("loading and calibrating")
    plain = Engine(target, None, vocabulary, context=context, sessions=1)
    drafting = Engine(target, draft, vocabulary, context=context, sessions=1)
    prefill = []
    for _ in range(3):
        _generate(plain, [1, 0], 0)  # the session forgets the prompt
        prefill.append(_generate(plain, prompts[0], 0).stats)
    drafting.calibrate()
    done: dict[int, list[Generation]] = {block: [] for block in (1, *blocks)}
    texts_equal, largest_gap = True, 0.0
    for repeat in range(repeats):
        for number, prompt in enumerate(prompts):
            progress(f"repeat {repeat + 1} of {repeats}, prompt {number + 1} of {len(prompts)}")
            texts = []
            for block, generations in done.items():
                generation = _generate(plain if block == 1 else drafting, prompt, max_tokens, block)
                generations.append(generation)
                texts.append(list(generation.tokens))
            # The first is of another engine, whose attention has shapes of its own: it is not held to be equal.
            texts[0] = list(_generate(drafting, prompt, max_tokens).tokens) if repeat == 0 else texts[1]
            for text in texts[1:]:
                # The last round may commit more than was asked for.
                gap = gap_at_first_difference(drafting, *(t[: len(prompt) + max_tokens] for t in (texts[0], text)))
                if gap is not None:
                    texts_equal, largest_gap = False, max(largest_gap, gap)
    live = statistics.mean(map(len, prompts)) + max_tokens / 2
    draft_ms = _draft_ms(drafting, prompts[0])
    read = {"target": _bytes(target), "draft": _bytes(draft), "head": _head_bytes(target)}
    per_position = 2 * target.dtype.itemsize

    def run(block: int) -> Run:
        stats = [generation.stats for generation in done[block]]
        rounds = sum(s.rounds for s in stats)
        round_ms = statistics.median(s.decode_ms / s.rounds for s in stats)
        keys = live * per_position * sum(s.num_kv_heads * s.head_dim for s in target.spec.layers)
        floor = read["target"] + keys
        if block != 1:
            floor += read["draft"] + read["head"]
            floor += live * per_position * sum(s.num_kv_heads * s.head_dim for s in draft.spec.layers)
        return Run(
            block=block,
            draft_ms=0.0 if block == 1 else draft_ms,
            verify_ms=round_ms if block == 1 else max(0.0, round_ms - draft_ms),
            round_ms=round_ms,
            floor_round_ms=floor / bandwidth * 1000,
            rounds=rounds,
            acceptance_length=(sum(s.accepted for s in stats) + rounds) / rounds,
            tokens_per_s=statistics.median(s.completion_tokens / s.decode_ms * 1000 for s in stats),
        )

    return SideBySide(
        dtype=precision(target),
        autoregressive=run(1),
        runs=[run(block) for block in blocks],
        prefill_tokens=prefill[0].prefill_tokens,
        prefill_ms=min(stats.prefill_ms for stats in prefill),
        texts_equal=texts_equal,
        largest_gap=largest_gap,
    )


def gap_at_first_difference(engine: Engine, first: Sequence[int], second: Sequence[int]) -> float | None:
    """How far the worse of two texts' tokens lies below the target's best where they part; None for equal texts.

    Teacher-forced, by a step without the draft behind what they share. In logits; infinite for a text that is merely
    cut short.
    """
    shared = next((n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if shared is None:
        return None if len(first) == len(second) else float("inf")
    session = engine.sessions.acquire("s", first[:shared])
    missing = first[session.length : shared - 1]
    if missing:
        engine.decoder.prefill(session, missing)
    seen: list[Tensor] = []

    def keep(logits: Tensor, positions: Tensor) -> Tensor:
        seen.append(logits[0, -1].float())
        return logits.argmax(dim=-1)

    engine.decoder.round(session, first[shared - 1], 1, keep)
    engine.sessions.release(session)
    return float(seen[0].max() - seen[0][[first[shared], second[shared]]].min())


def _generate(engine: Engine, prompt: Sequence[int], max_tokens: int, block: int = 1) -> Generation:
    request = GenerationRequest(
        prompt=prompt,
        max_tokens=max_tokens,
        session="s",
        draft="off" if block == 1 else "on" if block else "auto",
        block_size=block or None,
    )
    generation = engine.submit(request)
    while generation.finish is None:
        engine.step()
    if generation.error:
        raise DFlashError(generation.error)
    return generation


@torch.inference_mode()
def _draft_ms(engine: Engine, prompt: Sequence[int]) -> float:
    """Milliseconds of one drafted block with its head, behind a prompt that is already read; the median of some."""
    _generate(engine, prompt, 0)
    session = engine.sessions.acquire("s", prompt)
    times = []
    for _ in range(9):
        started = time.perf_counter()
        engine.decoder._draft_block(session, prompt[-1]).tolist()
        times.append((time.perf_counter() - started) * 1000)
    engine.sessions.release(session)
    return statistics.median(times)


def _bytes(module: nn.Module) -> int:
    """Weights that one pass of few rows reads: all of them, but of an embedding that is no head only a row."""
    unread = ("embed_tokens", "lm_head.whole", ".numbers", ".offsets")  # but the first: beside packed weights
    return sum(p.nbytes for name, p in module.named_parameters() if not name.endswith(unread)) + (
        module.embed_tokens.nbytes if isinstance(module, Target) and module.lm_head is None else 0
    )


def _head_bytes(target: Target) -> int:
    return (
        target.embed_tokens.nbytes
        if target.lm_head is None
        else _bytes(getattr(target.lm_head, "packed", target.lm_head))
    )
