"""The resident backend: one thread that loads a model and runs its engine, one unit of work at a time."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_core.errors import CheckpointError
from server.context.tokenizer import PromptTokenizer
from server.engine import protocol
from server.engine.backend import Ending, QueuedHandle, Round, Statistics
from server.engine.kept_precision import KeptPrecision, keep_precision, kept_precision
from server.engine.protocol import BadRequest, CompletionRequest, EngineError, EngineHealth
from server.engine.rotary_bases import bases_to_try, keep_base, kept_base, trial_prompts
from server.errors import DflashError
from server.monitoring.metrics import Metrics
from server.paths import cache_dir
from server.profiles import ModelSource, Profile
from server.profiles.pair import compare_profile

if TYPE_CHECKING:
    from dflash_core import Engine, Generation, Step

log = logging.getLogger(__name__)

SAMPLE = Path(protocol.__file__)
SAMPLE_TOKENS = 320
"""Code that no target was trained on, to try precisions with: our own."""
REPAIR_POLL_S = 1.0


class ResidentHandle(QueuedHandle):
    """One generation of the core; its events are put by the event loop on the engine thread's behalf."""

    def __init__(self, generation: Generation) -> None:
        super().__init__()
        self.generation = generation
        self.counted = Statistics()  # what metrics have seen of it; engine thread only

    def cancel(self) -> None:
        self.generation.cancel()

    def set_priority(self, priority: int) -> None:
        self.generation.priority = priority


@dataclass(frozen=True)
class Loaded:
    """What loading a profile gives. precision: which one was picked and why, "" where nothing was to be picked."""

    engine: Engine
    tokenizer: PromptTokenizer
    precision: str = ""


class ResidentBackend:
    """A model of ours behind the backend contract.

    All of the engine's work is done in one thread, from loading on, so the event loop answers health and
    takes cancellations meanwhile. Loading that fails leaves a process that says why.
    """

    def __init__(self, profile: Profile, metrics: Metrics) -> None:
        self.name = profile.name
        self._profile = profile
        self._metrics = metrics
        self._health = EngineHealth(
            state="loading", progress=0.0, reason="starting", profile=profile.name, kind="resident"
        )
        self._loaded: Loaded | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Held while a generation is queued and its handle noted, so that no step of it goes unheard.
        self._lock = threading.Lock()
        self._handles: dict[int, ResidentHandle] = {}
        self._wake = threading.Event()
        self._stopping = False
        self._units = 0

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A daemon: a load that is under way cannot be interrupted and must not hold up the end.
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def stop(self) -> None:
        self._stopping = True
        with self._lock:
            for handle in self._handles.values():
                handle.cancel()
        self._wake.set()

    def health(self) -> EngineHealth:
        return self._health

    def units_done(self) -> int:
        return self._units

    def submit(self, request: CompletionRequest) -> ResidentHandle:
        from dflash_core import DFlashError, GenerationRequest

        assert self._loaded is not None, "the app submits only while the state is ready"
        engine, tokenizer = self._loaded.engine, self._loaded.tokenizer
        prompt = request.prompt
        if isinstance(prompt, str):
            # This is the event loop: a text that cannot fit must not be tokenised here for a minute first.
            if len(prompt.encode()) > engine.sessions.context * tokenizer.longest_token:
                raise BadRequest(f"the prompt is longer than the {engine.sessions.context} tokens the context holds")
            prompt = tokenizer.encode(prompt)
        stop_ids = self._profile.prompt.stop_ids if self._profile.prompt else ()
        try:
            wanted = GenerationRequest(
                prompt=prompt,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                top_p=request.top_p,
                # Without a seed two samples differ, as OpenAI's do.
                seed=secrets.randbits(31) if request.seed is None else request.seed,
                stop_ids=frozenset(stop_ids) | frozenset(request.stop_token_ids),
                draft=request.draft,
                block_size=request.block_size,
                session=request.session,
                heal=request.heal.encode(),
                priority=request.priority,
            )
            with self._lock:
                generation = engine.submit(wanted)
                handle = self._handles[generation.number] = ResidentHandle(generation)
        except DFlashError as error:
            raise BadRequest(str(error)) from error
        self._metrics.running.inc()
        self._wake.set()
        return handle

    def _run(self) -> None:
        """The engine thread: load, then work while there is work."""
        try:
            self._loaded = self._load()
            self._say_ready(self._loaded.engine.describe())
            self._work(self._loaded.engine)
        except Exception as error:
            reason = _reason(error)
            # Our own errors say all there is to say; of others the log keeps where they came from.
            log.error("the engine failed: %s", reason, exc_info=None if _is_ours(error) else error)
            self._health = replace(self._health, state="failed", progress=None, reason=reason)

    def _work(self, engine: Engine) -> None:
        while not (self._stopping and not self._handles):
            # Cleared before the look, so that a request that comes in between is seen next time.
            self._wake.clear()
            if not self._step(engine):
                self._wake.wait()

    def _load(self) -> Loaded:
        profile = self._profile
        if profile.target is None or profile.prompt is None:
            raise EngineError(f"profile {profile.name} lacks a target or a prompt section")
        if not profile.target.path.exists():
            raise EngineError(_missing_target(profile))
        _compare(profile)
        tokenizer = PromptTokenizer.from_file(profile.prompt.tokenizer)
        self._progress(0.0, "importing torch")
        from dflash_core import Engine, EngineOptions
        from dflash_core.rotary_trial import try_rotary_bases

        bases = bases_to_try(profile)
        kept = kept_base(profile) if bases else None
        base = kept["base"] if kept else profile.draft.rotary_base if profile.draft else None
        draft = profile.draft.path if profile.draft else None
        picked = self._precision_when_readable(profile, tokenizer)
        options = EngineOptions(
            device=profile.engine.device,
            dtype=picked.picked if picked else profile.engine.dtype,
            context=profile.engine.context,
            rotary_base=base,
            memory_limit=profile.engine.memory_limit,
            devices=tuple(f"cuda:{number}" for number in profile.engine.devices),
        )
        engine = Engine.load(
            profile.target.path, draft, tokenizer.token_bytes, options, self._progress, self._wait_for_repair
        )
        if kept:
            log.info("%s", kept["words"])
        elif bases and engine.has_draft:
            self._progress(1.0, "trying the draft's rotary bases, on first use")
            trial = try_rotary_bases(
                engine, bases, trial_prompts(tokenizer, engine.sessions.context), lambda: self._stopping
            )
            if trial:
                log.info("%s", trial.words())
                keep_base(profile, trial)
        return Loaded(engine, tokenizer, f"{picked.picked}: {picked.reason}" if picked else "")

    def _precision_when_readable(self, profile: Profile, tokenizer: PromptTokenizer) -> KeptPrecision | None:
        while True:
            try:
                return self._precision(profile, tokenizer)
            except CheckpointError as error:
                if not self._wait_for_repair(error):
                    raise

    def _precision(self, profile: Profile, tokenizer: PromptTokenizer) -> KeptPrecision | None:
        """What serves under "auto" on a CPU, measured when nothing is kept; None where it is not to be measured."""
        import torch

        device = profile.engine.device
        on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
        if profile.engine.dtype != "auto" or not on_cpu:
            return None
        if kept := kept_precision(profile):
            return kept
        from dflash_core.precision import choose_precision

        assert profile.target is not None and profile.prompt is not None
        start = [profile.prompt.marker_ids["bos"]] if "bos" in profile.prompt.marker_ids else []
        choice = choose_precision(
            profile.target.path,
            profile.draft.path if profile.draft else None,
            [*start, *tokenizer.encode(SAMPLE.read_text(encoding="utf-8"))][:SAMPLE_TOKENS],
            rotary_base=profile.draft.rotary_base if profile.draft else None,
            progress=lambda what: self._progress(0.0, f"measuring {what}, once for this machine"),
        )
        keep_precision(profile, choice.to_json())
        return KeptPrecision(choice.picked, choice.reason)

    def _wait_for_repair(self, error: Exception) -> bool:
        """Says what is wrong with the target's files and waits until they change; what is loaded by then stays."""
        assert self._profile.target is not None
        folder = self._profile.target.path
        reason = _reason(error)
        log.error("loading stopped: %s; it goes on when the file is another", reason)
        self._health = replace(self._health, state="failed", progress=None, reason=reason)
        before = _files(folder)
        while not self._stopping and _files(folder) == before:
            self._wake.wait(REPAIR_POLL_S)
        self._health = replace(self._health, state="loading", progress=0.0, reason="loading: target")
        return not self._stopping

    def _progress(self, share: float, what: str) -> None:
        self._health = replace(self._health, progress=share, reason=f"loading: {what}")

    def _say_ready(self, described: dict[str, Any]) -> None:
        self._health = replace(
            self._health,
            state="degraded" if described.get("degraded") else "ready",
            progress=None,
            reason=described.get("degraded", ""),
            target=_name(self._profile.target) or described["target"],
            draft=(_name(self._profile.draft) or described["draft"]) if described["draft"] else "",
            device=described["device"],
            dtype=described["dtype"],
            precision=self._loaded.precision if self._loaded else "",
            memory=described["memory_bytes"],
            context=described["context"],
        )
        log.info("%s: %s", self._health.state, described)
        if self._health.precision:
            log.info("precision %s", self._health.precision)

    def _step(self, engine: Engine) -> bool:
        """Run one unit and hand on what came of it; False when there was nothing to do."""
        begun = time.monotonic()
        try:
            step = engine.step()
        except Exception as error:
            self._end_all(error)
            return True
        if step is None:
            return False
        self._units += 1
        if engine.shortfall != self._health.reason:
            self._say_ready(engine.describe())
        with self._lock:
            handle = self._handles.get(step.generation.number)
        # None for one that was ended with an error before, and that the core now lets go of.
        if handle is not None:
            self._report(handle, step, time.monotonic() - begun)
        return True

    def _report(self, handle: ResidentHandle, step: Step, seconds: float) -> None:
        generation = step.generation
        now = _statistics(generation)
        before, handle.counted = handle.counted, now
        self._metrics.prefill.inc(now.prefill_tokens - before.prefill_tokens)
        self._metrics.reused.inc(now.reused_tokens - before.reused_tokens)
        if now.rounds > before.rounds:
            self._metrics.count_round(
                tokens=now.completion_tokens - before.completion_tokens,
                drafted=step.block.drafted if step.block else 0,
                accepted=step.block.accepted if step.block else 0,
                seconds=seconds,
            )
        if step.block is not None:
            block = step.block
            self._put(handle, Round(block.text, now, block.accepted, block.drafted, tuple(block.tokens)))
        if generation.finish is not None:
            if generation.finish == "error":
                log.error("a generation failed: %s", generation.error)
            self._end(handle, Ending(generation.finish, now, generation.error))

    def _end_all(self, error: Exception) -> None:
        """The engine itself failed, whose fault is unknown: all that wait end, and it goes on.

        When it fails again with nobody waiting, it cannot go on: the error is raised.
        """
        with self._lock:
            waiting = list(self._handles.values())
        if not waiting:
            raise error
        log.error("a step failed: %s", _reason(error), exc_info=error)
        for handle in waiting:
            # Cancelled, so that the core lets go of it too.
            handle.generation.cancel()
            self._end(handle, Ending("error", handle.counted, _reason(error)))

    def _end(self, handle: ResidentHandle, ending: Ending) -> None:
        with self._lock:
            self._handles.pop(handle.generation.number, None)
        self._metrics.running.dec()
        self._put(handle, ending)

    def _put(self, handle: ResidentHandle, event: Round | Ending) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(handle.put, event)
        except RuntimeError:
            log.debug("the event loop has ended before the engine thread")


def _statistics(generation: Generation) -> Statistics:
    found = generation.stats
    return Statistics(
        rounds=found.rounds,
        acceptance_length=found.acceptance_length,
        prompt_tokens=found.prompt_tokens,
        completion_tokens=found.completion_tokens,
        prefill_tokens=found.prefill_tokens,
        reused_tokens=found.reused_tokens,
        prefill_ms=found.prefill_ms,
        decode_ms=found.decode_ms,
    )


def _name(source: ModelSource | None) -> str | None:
    return None if source is None else source.name


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """What tells a checkpoint's files from those that were there before."""
    try:
        found = [(each.name, each.stat()) for each in sorted(folder.iterdir()) if each.is_file()]
    except OSError:  # a file that is being replaced
        return []
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]


def _compare(profile: Profile) -> None:
    """Says in the log why the draft may accept little; raises EngineError when it does not fit its target at all."""
    report = compare_profile(profile)
    if report is None:
        return
    if report.refusals:
        raise EngineError(report.refusals[0])
    for words in report.warnings:
        log.warning("profile %s: %s", profile.name, words)


def _missing_target(profile: Profile) -> str:
    from server.profiles.fetch import PINS

    assert profile.target is not None
    text = f"the target of profile {profile.name} is not at {profile.target.path}"
    if any(profile.target.path == cache_dir() / place for place in PINS):
        return f"{text}: run `dflash-lsp fetch {profile.name}`"
    return text


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    text = lines[0] if lines else ""
    return text if _is_ours(error) and text else f"{type(error).__name__}: {text}".removesuffix(": ")


def _is_ours(error: Any) -> bool:
    return isinstance(error, DflashError) or any(kind.__name__ == "DFlashError" for kind in type(error).__mro__)
