"""Cancelled in whatever phase, a generation ends, and its session gives the next one exactly what a fresh one gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_core import Engine, EngineOptions, Generation, GenerationRequest
from tests.core import tiny
from tests.core.test_decoding import generate, prompts

PROMPT = prompts(1, 600)[0]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    long = {"max_position_embeddings": 1024}
    return tiny.write_target(folder / "target", **long), tiny.write_draft(folder / "draft", tiny.draft_config(**long))


def load(pair: tuple[Path, Path], progress: Callable[[float, str], None] = lambda share, what: None) -> Engine:
    options = EngineOptions(device="cpu", dtype="float32", context=1024)
    return Engine.load(pair[0], pair[1], tiny.token_bytes(), options, progress)


@pytest.fixture(scope="module")
def expected(pair: tuple[Path, Path]) -> list[int]:
    return generate(load(pair), PROMPT, 30, draft="on")


def in_the_draft(engine: Engine, generation: Generation) -> Any:
    assert engine.decoder.draft is not None
    return engine.decoder.draft.register_forward_pre_hook(lambda module, values: generation.cancel())


def in_the_verify(engine: Engine, generation: Generation) -> Any:
    def cancel(module: Any, values: tuple[Any, ...]) -> None:
        if generation.stats.rounds == 2:
            generation.cancel()

    return engine.decoder.target.register_forward_pre_hook(cancel)


def in_a_prefill_chunk(engine: Engine, generation: Generation) -> Any:
    def cancel(module: Any, values: tuple[Any, ...]) -> None:
        if generation.stats.prefill_tokens > 0:
            generation.cancel()

    return engine.decoder.target.register_forward_pre_hook(cancel)


@pytest.mark.parametrize("phase", [in_a_prefill_chunk, in_the_draft, in_the_verify], ids=lambda phase: phase.__name__)
def test_a_generation_cancelled_in_a_phase_leaves_its_session_usable(
    phase: Callable[[Engine, Generation], Any], pair: tuple[Path, Path], expected: list[int]
) -> None:
    engine = load(pair)
    generation = engine.submit(GenerationRequest(prompt=PROMPT, max_tokens=200, session="s", draft="on"))
    hook = phase(engine, generation)
    units = 0
    while generation.finish is None:
        cancelled = generation.cancelled
        engine.step()
        units += 1
        assert not cancelled or generation.finish == "cancelled", "no further unit ran for it"
    hook.remove()
    assert generation.finish == "cancelled" and units < 10
    assert engine.step() is None and engine.sessions.has_free()
    again = engine.submit(GenerationRequest(prompt=PROMPT, max_tokens=30, session="s", draft="on"))
    tokens: list[int] = []
    while again.finish is None:
        step = engine.step()
        tokens += step.block.tokens if step and step.block else []
    assert tokens == expected
    assert again.stats.reused_tokens > 0, "what was read before the end is not read again"


def test_a_generation_cancelled_before_its_first_unit_never_takes_a_session(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    generation = engine.submit(GenerationRequest(prompt=PROMPT, max_tokens=8))
    generation.cancel()
    step = engine.step()
    assert step is not None and step.generation is generation and step.block is None
    assert generation.finish == "cancelled" and generation.session is None and engine.step() is None


class Stopped(Exception):
    pass


@pytest.mark.parametrize("until", ["target", "draft", "measuring"])
def test_a_load_that_is_broken_off_leaves_nothing_behind_and_the_next_one_works(
    until: str, pair: tuple[Path, Path], expected: list[int]
) -> None:
    def stop(share: float, what: str) -> None:
        if what == until and share > 0.2:
            raise Stopped

    with pytest.raises(Stopped):
        load(pair, stop)
    assert generate(load(pair), PROMPT, 30, draft="on") == expected
