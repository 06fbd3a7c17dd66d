"""The engine bench runs what serves, says whether the texts are equal, and counts the bytes of its floor rightly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from dflash_core import Engine, EngineOptions
from dflash_core.benchmarks.bandwidth import read_bandwidth, step_ms
from dflash_core.benchmarks.side_by_side import gap_at_first_difference, measure
from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.vocabulary import Vocabulary
from tests.core import tiny
from tests.core.test_decoding import generate, prompts


def test_every_width_is_measured_on_the_same_text_beside_its_floor(tmp_path: Path) -> None:
    target = load_target(tiny.write_target(tmp_path / "target"))
    draft = load_draft(tiny.write_draft(tmp_path / "draft"), target)
    texts = [prompt[:40] for prompt in prompts(2)]
    found = measure(
        target, draft, Vocabulary(tiny.token_bytes()), texts, blocks=(4, 8, 0), bandwidth=1e9, max_tokens=20, repeats=2
    )
    assert found.texts_equal and found.largest_gap == 0 and found.dtype == "float32"
    assert (found.prefill_tokens, [run.block for run in found.runs]) == (39, [4, 8, 0])
    assert found.autoregressive.rounds == 2 * 2 * 20 and found.autoregressive.acceptance_length == 1
    for run in (found.autoregressive, *found.runs):
        assert run.round_ms > 0 and run.tokens_per_s > 0 and run.acceptance_length >= 1
    assert found.best.tokens_per_s == max(run.tokens_per_s for run in found.runs)
    # By hand, in fp32: all but the embedding, and keys and values of 40 + 10 positions in 6 layers.
    qkv, o, mlp, norms = 10 * 8 * 48, 48 * 48, 3 * 64 * 48, 2 * 48
    weights = 6 * (qkv + o + mlp + norms) + 48 + 96 * 48
    keys = 50 * 6 * 2 * 2 * 8
    assert found.autoregressive.floor_round_ms == pytest.approx(4 * (weights + keys) / 1e9 * 1000)
    assert all(run.floor_round_ms > found.autoregressive.floor_round_ms for run in found.runs)


def test_texts_that_differ_are_told_by_how_much_the_target_prefers_one_to_the_other(tmp_path: Path) -> None:
    folder = tiny.write_target(tmp_path / "target")
    engine = Engine.load(folder, None, tiny.token_bytes(), EngineOptions(device="cpu", dtype="float32", context=128))
    prompt = prompts(1)[0][:20]
    text = prompt + generate(engine, prompt, 12, session="s")
    assert gap_at_first_difference(engine, text, list(text)) is None
    other = [*text[:25], (text[25] + 1) % 90, *text[26:]]
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = whole(torch.tensor([text[:25]])).logits[0, -1]
    expected = float(logits[text[25]] - logits[other[25]])
    assert gap_at_first_difference(engine, text, other) == pytest.approx(expected, abs=1e-4)
    assert gap_at_first_difference(engine, other, text) == pytest.approx(expected, abs=1e-4)
    assert gap_at_first_difference(engine, text, text[:-1]) == float("inf")


def test_a_bandwidth_is_that_of_reading_and_not_of_what_stands_beside_it() -> None:
    device = torch.device("cpu")
    found = read_bandwidth(device, repeats=3)
    assert 1e8 < found < 1e13
    data = torch.ones(1 << 26)  # as many bytes, read for another purpose
    assert found == pytest.approx(data.nbytes / (step_ms(data.max, device, 3) / 1000), rel=0.9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_timed_by_its_own_events() -> None:
    assert read_bandwidth(torch.device("cuda")) > 2e11
