"""The engine: requests in, accepted blocks out, one unit of work at a time.

`step` runs one unit (a prefill chunk or a round) of the most urgent generation, so a request of higher priority, or a
cancellation, waits for one unit at most, and equals take turns round by round.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.draft import Draft
from dflash_core.errors import DFlashError, RequestError
from dflash_core.generation import Block, Generation, GenerationRequest
from dflash_core.policy import DraftPolicy, clock_for
from dflash_core.runtime import decoder_for
from dflash_core.sessions import Session, SessionPool
from dflash_core.target import Target
from dflash_core.vocabulary import Vocabulary

LoadProgress = Callable[[float, str], None]
"""progress(share 0 to 1, what is being done)"""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """device "auto": CUDA where there is one, else the CPU. dtype "auto": see `serving_dtype`. context: positions of
    one session. sessions: how many documents keep their keys and values, fewer where `memory_limit` (bytes, weights
    and sessions together) does not hold so many. rotary_base: overrides the draft's own."""

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    context: int = 2048
    sessions: int = 4
    rotary_base: float | None = None
    memory_limit: int | None = None


@dataclass(frozen=True)
class Step:
    """One unit that ran: whose it was, and the block it gave, if any."""

    generation: Generation
    block: Block | None


class Engine:
    def __init__(
        self,
        target: Target,
        draft: Draft | None,
        vocabulary: Vocabulary,
        *,
        context: int = 2048,
        sessions: int = 4,
    ) -> None:
        context = min(context, target.spec.max_positions)
        self.decoder = decoder_for(target, draft, context)
        self.policy = DraftPolicy(self.decoder.block_size, clock_for(target.device))
        self.vocabulary = vocabulary
        self.sessions = SessionPool(target, draft, context=context, sessions=sessions)
        self._generations: list[Generation] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._clock = itertools.count(1)

    @classmethod
    def load(
        cls,
        target_path: Path,
        draft_path: Path | None,
        token_bytes: Sequence[bytes],
        options: EngineOptions,
        progress: LoadProgress = lambda share, what: None,
    ) -> Engine:
        """Loads a pair and measures its round costs. Raises DFlashError with one line on any misfit."""
        device = torch.device(
            ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
        )
        dtype = serving_dtype(device) if options.dtype == "auto" else getattr(torch, options.dtype)
        target = load_target(
            target_path, device=device, dtype=dtype, progress=lambda share: progress(share * 0.8, "target")
        )
        progress(0.8, "draft")
        draft = load_draft(draft_path, target, rotary_base=options.rotary_base) if draft_path else None
        progress(0.9, "measuring")
        sessions = _sessions_within(options, target, draft)
        engine = cls(target, draft, Vocabulary(token_bytes), context=options.context, sessions=sessions)
        engine.calibrate()
        progress(1.0, "ready")
        return engine

    def submit(self, request: GenerationRequest) -> Generation:
        """Queues a request; from any thread. Raises RequestError when it cannot be served."""
        self.sessions.check(len(request.prompt))
        vocab_size = self.decoder.target.spec.vocab_size
        if not all(0 <= token < vocab_size for token in request.prompt):
            raise RequestError(f"the prompt holds a token outside the vocabulary of {vocab_size}")
        if request.heal and not self.vocabulary.spells(request.heal):
            raise RequestError("the text to heal cannot be spelled with this tokenizer")
        generation = Generation(request, next(self._numbers), priority=request.priority)
        with self._lock:
            self._generations.append(generation)
        return generation

    def step(self) -> Step | None:
        """Runs one unit of the most urgent generation; None when there is nothing to do. Engine thread only."""
        generation = self._next()
        if generation is None:
            return None
        block = None
        if generation.cancelled:
            generation.finish = "cancelled"
        else:
            generation.last_run = next(self._clock)
            try:
                if generation.session is None:
                    session = self.sessions.acquire(generation.request.session, generation.tokens)
                    generation.begin(session, self.vocabulary)
                block = generation.run_unit(self.decoder, self.policy, self.vocabulary)
            except Exception as error:  # one request's failure must not end the engine
                generation.error = str(error).splitlines()[0] if str(error) else type(error).__name__
                generation.finish = "error"
        if generation.finish is not None:
            self._end(generation)
        return Step(generation, block)

    def calibrate(self) -> None:
        """Measures a round at every width, which also warms the kernels up."""
        session = self.sessions.acquire(None, [0])
        self.decoder.prepare(session, self.policy.widths)
        self.decoder.prefill(session, [0] * 64)
        for _ in range(3):
            for width in self.policy.widths:
                self.policy.measure(width, lambda w: self.decoder.round(session, 0, w))
        session.rewind(0)
        self.sessions.release(session)

    def describe(self) -> dict[str, Any]:
        """What is loaded and where, for health reports. memory_bytes: weights and sessions."""
        target, draft = self.decoder.target, self.decoder.draft
        return {
            "target": f"{target.spec.family}, {len(target.spec.layers)} layers",
            "draft": f"DFlash, {len(draft.spec.layers)} layers, block {draft.spec.block_size}" if draft else None,
            "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
            "dtype": str(target.dtype).removeprefix("torch."),
            "runtime": self.decoder.runtime,
            "context": self.sessions.context,
            "memory_bytes": _weight_bytes(target, draft) + self.sessions.nbytes,
            "round_ms": {width: round(ms, 2) for width, ms in self.policy.round_ms.items()},
        }

    def _next(self) -> Generation | None:
        """The most urgent generation that can run: cancelled ones first, then priority, then whoever waited longest.

        When all sessions are taken, a more urgent request gets that of the least urgent one; equals wait for theirs.
        """
        with self._lock:
            waiting = sorted(self._generations, key=lambda g: (not g.cancelled, g.priority, g.last_run, g.number))
        room = self.sessions.has_free()
        for generation in waiting:
            if generation.cancelled or generation.session is not None or room:
                return generation
            least = max((g for g in waiting if g.session is not None), key=lambda g: (g.priority, g.last_run))
            if least.priority > generation.priority:
                self.sessions.release(least.suspend())
                return generation
        return None

    def _end(self, generation: Generation) -> None:
        if generation.session is not None:
            self.sessions.release(generation.session)
        with self._lock:
            self._generations.remove(generation)


def serving_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the processor computes in it; elsewhere fp32, since emulated bf16 is many times slower."""
    if device.type != "cpu":
        return torch.bfloat16
    able = torch.cpu.get_capabilities()
    return torch.bfloat16 if able.get("avx512_bf16") or able.get("amx_bf16") else torch.float32


def _weight_bytes(target: Target, draft: Draft | None) -> int:
    return sum(p.nbytes for module in (target, draft) if module for p in module.parameters())


def _sessions_within(options: EngineOptions, target: Target, draft: Draft | None) -> int:
    """How many sessions the memory limit holds beside the weights, at most the number asked for."""
    if options.memory_limit is None:
        return options.sessions
    weights = _weight_bytes(target, draft)
    one = Session(target, draft, options.context).nbytes
    fitting = (options.memory_limit - weights) // one
    if fitting < 1:
        raise DFlashError(
            f"memory_limit of {options.memory_limit >> 20} MB does not hold the weights ({weights >> 20} MB) "
            f"and one session of {options.context} tokens ({one >> 20} MB)"
        )
    return min(options.sessions, fitting)
