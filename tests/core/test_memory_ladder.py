"""Short of memory, the engine gives up one thing after the other, says so, and goes on answering."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_core import Engine, EngineOptions
from dflash_core.errors import DFlashError
from dflash_core.memory_ladder import LEAST_CONTEXT, Provision, is_out_of_memory
from tests.core import tiny
from tests.core.short_of_memory import CONTEXT, PROMPT
from tests.core.test_decoding import generate, load, prompts

limited = pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair whose sessions are large (75 MB), one whose weights are (70 MB), and one where neither is."""
    root = tmp_path_factory.mktemp("pairs")
    long = {"max_position_embeddings": 2 * CONTEXT}
    for name, options in {".": long, "wide": {"intermediate_size": 20000}, "small": {}}.items():
        tiny.write_target(root / name / "target", **options)
        tiny.write_draft(root / name / "draft", tiny.draft_config(**(long if name == "." else {})))
    return root


@pytest.fixture(scope="module")
def texts(folder: Path) -> dict[int, list[int]]:
    """What the prompts are answered with where memory suffices, by the prompt's length."""
    engine = load((folder / "target", folder / "draft"), sessions=1)
    return {40: generate(engine, PROMPT[:40], 12)} | {len(PROMPT): _alone(folder)[0]["tokens"]}


def _alone(folder: Path, phase: str = "load", megabytes: float = 2000) -> list[dict[str, Any]]:
    # Every buffer a mapping of its own, so that what is freed is really given back to the limit.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", "tests.core.short_of_memory", str(folder), phase, str(megabytes)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@limited
@pytest.mark.parametrize(
    ("megabytes", "given_up"),
    [
        (110, ["1 of 4 sessions kept"]),
        (20, ["1 of 4 sessions kept", "draft dropped", "context shrunk from 65536 to"]),
    ],
)
def test_what_does_not_fit_at_the_start_is_left_out_and_named(
    megabytes: int, given_up: list[str], folder: Path, texts: dict[int, list[int]]
) -> None:
    (answer,) = _alone(folder, "load", megabytes)
    assert answer["tokens"] == texts[len(PROMPT)] and answer["finish"] == "length"
    assert answer["degraded"].startswith("out of memory: ")
    told = answer["degraded"].removeprefix("out of memory: ").split(", ")
    assert len(told) == len(given_up)
    assert all(words.startswith(expected) for words, expected in zip(told, given_up, strict=True))
    assert (answer["draft"] is None) == ("draft dropped" in told)


@limited
def test_weights_that_do_not_fit_are_refused_in_one_line(folder: Path) -> None:
    (answer,) = _alone(folder, "weights", 30)
    assert answer == {"refused": "out of memory: the target and one short session do not fit"}


@limited
def test_memory_that_runs_short_while_serving_costs_speed_then_length_and_never_the_engine(
    folder: Path, texts: dict[int, list[int]]
) -> None:
    whole, *tighter, short = _alone(folder, "run", -12)
    assert whole["degraded"] == "" and whole["tokens"] == texts[len(PROMPT)]
    for answer in tighter:
        error = answer.get("refused") or answer["error"]
        assert answer.get("tokens") == texts[len(PROMPT)] or "out of memory" in error
    for words in ("1 of 4 sessions kept", "draft dropped", "context shrunk from 65536 to"):
        assert words in tighter[-1]["degraded"]
    assert short["tokens"] == texts[40] and short["degraded"] == tighter[-1]["degraded"]


def test_the_ladder_frees_sessions_then_the_draft_then_context() -> None:
    wanted = Provision(sessions=4, context=1000, draft=True)
    held: Provision | None = wanted
    told = []
    while (held := held.smaller() if held else None) is not None:
        told.append(wanted.shortfall(held).removeprefix("out of memory: ").split(", ")[-1])
    assert told == [
        "1 of 4 sessions kept",
        "draft dropped",
        "context shrunk from 1000 to 500 tokens",
        f"context shrunk from 1000 to {LEAST_CONTEXT} tokens",
    ]
    assert wanted.shortfall(wanted) == ""


def test_a_failed_allocation_is_told_from_other_failures() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 46)
    assert is_out_of_memory(caught.value) and is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_memory_limit_without_room_for_the_draft_means_no_draft_and_says_so(folder: Path) -> None:
    pair = (folder / "small" / "target", folder / "small" / "draft")
    one, alone = load(pair, sessions=1).describe(), load(pair, draft=False, sessions=1).describe()
    engine = load(pair, memory_limit=one["memory_bytes"] - 1)
    described = engine.describe()
    assert described["draft"] is None and described["degraded"] == "out of memory: draft dropped"
    assert described["memory_bytes"] <= one["memory_bytes"] - 1
    assert generate(engine, prompts(1)[0], 8) == generate(load(pair), prompts(1)[0], 8)
    with pytest.raises(DFlashError, match="does not hold the weights"):
        load(pair, memory_limit=alone["memory_bytes"] - 1)


def test_a_generation_whose_unit_did_not_fit_goes_on_with_the_same_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = (folder / "small" / "target", folder / "small" / "draft")
    expected = [generate(load(pair), prompt, 24) for prompt in prompts(2)]
    engine = load(pair)
    first, second = (engine.submit(_request(prompt)) for prompt in prompts(2))
    texts: dict[int, list[int]] = {}

    def fail(*args: Any) -> Any:  # the real failure is in the tests above; here it is put at a chosen place
        raise torch.OutOfMemoryError("no room")

    for unit in range(200):
        if unit in (1, 9):  # in a prefill, and in a round of either
            monkeypatch.setattr(engine.decoder, "prefill" if unit == 1 else "round", fail)
        step = engine.step()
        if step is None:
            break
        texts.setdefault(step.generation.number, []).extend(step.block.tokens if step.block else [])
    assert first.finish == second.finish == "length"
    assert [texts[first.number], texts[second.number]] == expected
    assert engine.shortfall == "out of memory: 1 of 4 sessions kept, draft dropped"


def _request(prompt: list[int]) -> Any:
    from dflash_core import GenerationRequest

    return GenerationRequest(prompt=prompt, max_tokens=24, draft="on")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_short_of_gpu_memory_the_engine_gives_up_sessions_and_goes_on(tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target", max_position_embeddings=1 << 20)
    draft = tiny.write_draft(tmp_path / "draft", tiny.draft_config(max_position_embeddings=1 << 20))
    options = EngineOptions(device="cuda", dtype="float32", context=1 << 19)
    one_session = 1 << 29  # bytes, about: 18 layers' worth of keys and values at 1,152 bytes a position
    room = torch.cuda.memory_allocated() + 2.5 * one_session
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
    try:
        engine = Engine.load(target, draft, tiny.token_bytes(), options)
        assert engine.describe()["degraded"].startswith("out of memory: 1 of 4 sessions kept")
        text = generate(engine, prompts(1)[0], 24)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    plain = Engine.load(target, None, tiny.token_bytes(), EngineOptions(device="cpu", dtype="float32", context=256))
    assert text == generate(plain, prompts(1)[0], 24)
