"""The engine: requests in, accepted blocks out, one unit of work at a time.

`step` runs one unit (a prefill chunk or a round) of the most urgent generation, so a request of higher priority, or a
cancellation, waits for one unit at most, and equals take turns round by round.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from dflash_core.block_decoder import BlockDecoder
from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import TargetLoading
from dflash_core.config_values import read_config
from dflash_core.configs import draft_spec
from dflash_core.draft import Draft
from dflash_core.errors import CheckpointError, DFlashError, RequestError
from dflash_core.generation import Block, Generation, GenerationRequest
from dflash_core.generic_target import GenericTarget
from dflash_core.layers.packed_linear import pack_target, precision
from dflash_core.memory_ladder import LEAST_CONTEXT, Provision, is_out_of_memory, release_memory
from dflash_core.placement import Place, candidate_devices, free_bytes, shared_out
from dflash_core.policy import DraftPolicy, clock_for
from dflash_core.runtime import decoder_for
from dflash_core.sessions import Session, SessionPool
from dflash_core.sizes import draft_bytes, kv_bytes
from dflash_core.target import Target
from dflash_core.vocabulary import Vocabulary

PATIENCE = 32  # units of others for which a request waits for a session that an equal has

Precision = Literal["auto", "float32", "bfloat16", "int8", "int4"]

LoadProgress = Callable[[float, str], None]
"""progress(share 0 to 1, what is being done)"""

Repaired = Callable[[CheckpointError], bool]
"""Waits until a checkpoint that could not be read is another, and says whether it is."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """device "auto": CUDA where there is one, else the CPU. dtype "auto": see `serving_dtype`. context: positions of
    one session. sessions: how many documents keep their keys and values, fewer where `memory_limit` (bytes, weights
    and sessions together) does not hold so many; below one session the ladder of `memory_ladder` is taken.
    rotary_base: overrides the draft's own. dtype "int8" and "int4": the target's weights packed, on a CPU.
    devices: those that the target's layers are split over, by name; () is as few of this host's GPUs as hold it, where
    `device` leaves open which."""

    device: str = "auto"
    dtype: Precision = "auto"
    context: int = 2048
    sessions: int = 4
    rotary_base: float | None = None
    memory_limit: int | None = None
    devices: tuple[str, ...] = ()


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
        memory_limit: int | None = None,
        draft_lost: bool = False,
    ) -> None:
        """Raises DFlashError when not even the foot of the memory ladder can be held.

        draft_lost: there is a draft, but memory did not suffice to load it.
        """
        self.vocabulary = vocabulary
        self._generations: list[Generation] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._units = 0  # that have run
        self._wanted = Provision(
            sessions=sessions,
            context=min(context, target.spec.max_positions),
            draft=draft is not None or draft_lost,
        )
        held = replace(self._wanted, draft=draft is not None)
        if memory_limit is not None:
            held = _within(memory_limit, target, draft, held)
            # Fewer sessions than asked for are what a limit is there for, and no trouble worth telling.
            self._wanted = replace(self._wanted, sessions=held.sessions)
        self._target, self._draft = target, draft
        self._hold(held)

    @classmethod
    def load(
        cls,
        target_path: Path,
        draft_path: Path | None,
        token_bytes: Sequence[bytes],
        options: EngineOptions,
        progress: LoadProgress = lambda share, what: None,
        repaired: Repaired = lambda error: False,
    ) -> Engine:
        """Loads a pair and measures its round costs. Raises DFlashError with one line on any misfit.

        repaired: asked when the target's checkpoint cannot be read; True goes on at the tensor where it stopped.
        """
        try:
            return cls._load(target_path, draft_path, token_bytes, options, progress, repaired)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        raise DFlashError("out of memory: the target and one short session do not fit")

    @classmethod
    def _load(
        cls,
        target_path: Path,
        draft_path: Path | None,
        token_bytes: Sequence[bytes],
        options: EngineOptions,
        progress: LoadProgress,
        repaired: Repaired,
    ) -> Engine:
        devices = candidate_devices(options.device, options.devices)
        device = devices[0]
        if device.type == "cuda":
            torch.cuda.set_device(device)  # of this thread, which is the engine's: kernels go to the current one
        place = None
        if len(devices) > 1:
            spec = draft_spec(read_config(draft_path)) if draft_path else None
            positions = options.context * options.sessions
            place = shared_out(
                devices,
                exactly=bool(options.devices),
                positions=positions,
                beside=draft_bytes(spec) + kv_bytes(spec.layers, positions) if spec else 0,
                free=free_bytes,
            )
        target = load_in_precision(
            target_path, options.dtype, device, lambda share: progress(share * 0.8, "target"), repaired, place
        )
        progress(0.8, "draft")
        draft = None
        if draft_path is not None:
            try:
                draft = load_draft(draft_path, target, rotary_base=options.rotary_base)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
        progress(0.9, "measuring")
        engine = cls(
            target,
            draft,
            Vocabulary(token_bytes),
            context=options.context,
            sessions=options.sessions,
            memory_limit=options.memory_limit,
            draft_lost=draft is None and draft_path is not None,
        )
        engine.calibrate()
        progress(1.0, "ready")
        return engine

    def submit(self, request: GenerationRequest) -> Generation:
        """Queues a request; from any thread. Raises RequestError when it cannot be served."""
        self.sessions.check(len(request.prompt), self.shortfall)
        vocab_size = self.decoder.target.spec.vocab_size
        if not all(0 <= token < vocab_size for token in request.prompt):
            raise RequestError(f"the prompt holds a token outside the vocabulary of {vocab_size}")
        if request.heal and not self.vocabulary.spells(request.heal):
            raise RequestError("the text to heal cannot be spelled with this tokenizer")
        generation = Generation(request, next(self._numbers), priority=request.priority)
        generation.waits_since = self._units
        with self._lock:
            self._generations.append(generation)
        return generation

    def step(self) -> Step | None:
        """Runs one unit of the most urgent generation; None when there is nothing to do. Engine thread only."""
        generation = self._next()
        if generation is None:
            return None
        block, short_of_memory = None, False
        if generation.cancelled:
            generation.finish = "cancelled"
        else:
            self._units += 1
            generation.last_run = self._units
            try:
                if generation.session is None:
                    generation.held_since = self._units
                    if not self.sessions.count:
                        self._hold(self._held)
                    # Again: the context may have been shrunk since it was submitted.
                    self.sessions.check(len(generation.tokens) - 1, self.shortfall)
                    session = self.sessions.acquire(generation.request.session, generation.tokens)
                    generation.begin(session, self.vocabulary)
                block = generation.run_unit(self.decoder, self.policy, self.vocabulary)
            except Exception as error:  # one request's failure must not end the engine
                short_of_memory = is_out_of_memory(error)
                if not short_of_memory:
                    generation.error = str(error).splitlines()[0] if str(error) else type(error).__name__
                    generation.finish = "error"
        if short_of_memory:
            self._step_down(generation)
        if generation.finish is not None:
            self._end(generation)
        return Step(generation, block)

    @property
    def has_draft(self) -> bool:
        """Whether a draft is held, and was not given up for want of memory."""
        return self._draft is not None

    def use_rotary_base(self, base: float) -> None:
        """Turns the draft's queries and keys by another base. Engine thread only; all sessions begin anew."""
        if self._draft is None or self._draft.spec.rotary.base == base:
            return
        self._draft.turn_by(base)
        self._hold(self._held)

    @property
    def shortfall(self) -> str:
        """What was given up for want of memory, in one line; "" when nothing was."""
        return self._wanted.shortfall(self._held)

    def calibrate(self) -> None:
        """Measures a round at every width, which also warms the kernels up. Takes the memory ladder where it must."""
        while True:
            try:
                return self._calibrate()
            except (MemoryError, RuntimeError) as error:
                smaller = self._held.smaller()
                if not is_out_of_memory(error) or smaller is None:
                    raise
            self._hold(smaller)

    def _calibrate(self) -> None:
        session = self.sessions.acquire(None, [0])
        self.decoder.prepare(session, self.policy.widths)
        live = min(64, max(1, self.sessions.context - 1))
        # Different tokens: rows that are all alike would all pick the same experts of a mixture, and cost too little.
        vocab_size = self.decoder.target.spec.vocab_size
        self.decoder.prefill(session, [i * 37 % vocab_size for i in range(live)])
        for _ in range(3):
            for width in self.policy.widths:
                session.rewind(live)  # or the rounds of a long block would run out of a short context
                self.policy.measure(width, lambda w: self.decoder.round(session, 0, w))
        session.rewind(0)
        self.sessions.release(session)

    def describe(self) -> dict[str, Any]:
        """What is loaded and where, for health reports. memory_bytes: weights and sessions. degraded: `shortfall`."""
        target, draft = self.decoder.target, self.decoder.draft
        slower = ", computed by transformers (the slower path)" if isinstance(target, GenericTarget) else ""
        return {
            "target": f"{target.spec.family}, {len(target.spec.layers)} layers{slower}",
            "draft": f"DFlash, {len(draft.spec.layers)} layers, block {draft.spec.block_size}" if draft else None,
            "device": _device_words(target),
            "dtype": precision(target),
            "runtime": self.decoder.runtime,
            "context": self.sessions.context,
            "sessions": self._held.sessions,
            "degraded": self.shortfall,
            "memory_bytes": _weight_bytes(target, draft) + self.sessions.nbytes,
            "round_ms": {width: round(ms, 2) for width, ms in self.policy.round_ms.items()},
        }

    def _hold(self, held: Provision | None) -> None:
        """Makes decoder and sessions anew, one rung lower for each time that memory does not suffice.

        Whoever had a session is suspended: what it held is read again. Raises DFlashError at the ladder's foot; the
        engine then has no session, and tries again when one is wanted.
        """
        while held is not None:
            self._let_go()
            self._held = held
            self._draft = self._draft if held.draft else None
            try:
                self.decoder = decoder_for(self._target, self._draft, held.context)
                self.policy = DraftPolicy(self.decoder.block_size, clock_for(self._target.device))
                self.sessions = SessionPool(self._target, self._draft, context=held.context, sessions=held.sessions)
                return
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
            held = held.smaller()
        raise DFlashError(f"out of memory: not even one session of {self._held.context} tokens fits")

    def _let_go(self) -> None:
        """Frees all sessions."""
        with self._lock:
            holders = [generation for generation in self._generations if generation.session is not None]
        for generation in holders:
            generation.suspend()
        if hasattr(self, "sessions"):
            self.sessions.clear()
        self.decoder = BlockDecoder(self._target, None)  # its predecessor may hold buffers and graphs
        release_memory()

    def _step_down(self, generation: Generation) -> None:
        """A unit of this generation failed for want of memory: gives up one thing, or else the request.

        The unit runs again with the next step: nothing of it was committed.
        """
        smaller = self._held.smaller()
        if smaller is None:
            generation.error = f"out of memory, and nothing is left to give up; context is {self._held.context} tokens"
            generation.finish = "error"
        try:
            # Also at the foot: what the failed unit left behind is freed with the old sessions.
            self._hold(smaller or self._held)
        except DFlashError as error:
            generation.error = str(error)
            generation.finish = "error"

    def _next(self) -> Generation | None:
        """The most urgent generation that can run: cancelled ones first, then priority, then whoever waited longest.

        When all sessions are taken, a more urgent request gets that of the least urgent one at once. An equal gets
        it after a while, from whoever has had one for longest: a change costs a prefill, but nobody must starve.
        """
        with self._lock:
            waiting = sorted(self._generations, key=lambda g: (not g.cancelled, g.priority, g.last_run, g.number))
        room = self.sessions.has_free() or not self.sessions.count
        for generation in waiting:
            if generation.cancelled or generation.session is not None or room:
                return generation
            least = max((g for g in waiting if g.session is not None), key=lambda g: (g.priority, g.last_run))
            if least.priority == generation.priority and self._units - generation.waits_since >= PATIENCE:
                equals = [g for g in waiting if g.session is not None and g.priority == generation.priority]
                least = min(equals, key=lambda g: g.held_since)
            elif least.priority <= generation.priority:
                continue
            self.sessions.release(least.suspend())
            least.waits_since = self._units
            return generation
        return None

    def _end(self, generation: Generation) -> None:
        if generation.session is not None:
            self.sessions.release(generation.session)
        with self._lock:
            self._generations.remove(generation)


def load_in_precision(
    path: Path,
    dtype: Precision,
    device: torch.device,
    progress: Callable[[float], None] = lambda share: None,
    repaired: Repaired = lambda error: False,
    place: Place | None = None,
) -> Target:
    """A target in a type, or on a CPU with its linear maps packed; what is not packed then is fp32."""
    packed = dtype in ("int8", "int4")
    if packed and device.type != "cpu":
        raise DFlashError(f"dtype {dtype} is for CPUs; this engine runs on {device.type}")
    kind = torch.float32 if packed else serving_dtype(device) if dtype == "auto" else getattr(torch, dtype)
    loading = TargetLoading(path, device=device, dtype=kind, place=place)
    target = None
    while target is None:
        try:
            target = loading.run(progress)
        except CheckpointError as error:
            if not repaired(error):
                raise
    if packed:
        refuse_packing(target, dtype)
        pack_target(target, "int4" if dtype == "int4" else "int8")
    return target


def _device_words(target: Target) -> str:
    if target.device.type != "cuda":
        return "cpu"
    name = torch.cuda.get_device_name(target.device)
    return name if len(target.stages) == 1 else f"{len(target.stages)} x {name}"


def refuse_packing(target: Target, dtype: Precision) -> None:
    """Raises DFlashError where this target cannot be packed."""
    if isinstance(target, GenericTarget):
        raise DFlashError(f"dtype {dtype} is not possible for a target that transformers computes")


def serving_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the processor computes in it; elsewhere fp32, since emulated bf16 is many times slower."""
    if device.type != "cpu":
        return torch.bfloat16
    able = torch.cpu.get_capabilities()
    return torch.bfloat16 if able.get("avx512_bf16") or able.get("amx_bf16") else torch.float32


def _weight_bytes(target: Target, draft: Draft | None) -> int:
    return sum(p.nbytes for module in (target, draft) if module for p in module.parameters())


def _within(limit: int, target: Target, draft: Draft | None, wanted: Provision) -> Provision:
    """As much of what is wanted as the memory limit (bytes) holds beside the weights."""
    held: Provision | None = wanted
    while held is not None:
        weights = _weight_bytes(target, draft if held.draft else None)
        one = Session(target, draft if held.draft else None, held.context).nbytes
        if (fitting := (limit - weights) // one) >= 1:
            return replace(held, sessions=min(held.sessions, fitting))
        held = replace(held, sessions=1).smaller()
    raise DFlashError(
        f"memory_limit of {limit >> 20} MB does not hold the weights ({weights >> 20} MB) "
        f"and one session of {LEAST_CONTEXT} tokens ({one >> 20} MB)"
    )
