"""The same promises on a CUDA device; skipped where there is none. Results of a run: benchmarks/results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_core import Engine, EngineOptions, GenerationRequest
from server.context.tokenizer import PromptTokenizer
from server.paths import asset
from tests.core import stored_values, tiny, tiny_mimo
from tests.core.test_decoding import generate, prompts, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_greedy_text_in_fp32_is_the_same_with_and_without_the_draft_and_on_the_cpu(tmp_path: Path) -> None:
    target, draft = tiny.write_target(tmp_path / "target"), tiny.write_draft(tmp_path / "draft", mask=True)
    engines = [
        Engine.load(target, draft, tiny.token_bytes(), EngineOptions(device=device, dtype="float32", context=256))
        for device in ("cuda", "cpu")
    ]
    for prompt in prompts(6):
        texts = [generate(engine, prompt, draft=draft) for engine in engines for draft in ("on", "off")]
        assert all(text == texts[0] for text in texts)


def embedded(embedded_target: Path, **options: Any) -> tuple[Engine, list[list[int]]]:
    """The embedded pair on the device, and the beginnings of real files."""
    tokenizer = PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))
    options = {"device": "cuda", "dtype": "bfloat16", "context": 512} | options
    engine = Engine.load(embedded_target, asset("embedded", "draft"), tokenizer.token_bytes, EngineOptions(**options))
    assert engine.describe()["runtime"] == "captured graphs"
    files = sorted((Path(__file__).parents[2] / "dflash_core").glob("*.py"))
    return engine, [[0, *tokenizer.encode(path.read_text(encoding="utf-8"))[:200]] for path in files]


def test_greedy_text_in_bf16_is_the_same_at_every_width_bit_for_bit(embedded_target: Path) -> None:
    engine, files = embedded(embedded_target)
    for prompt in files:
        off = generate(engine, prompt, 64, draft="off")
        for block_size in (2, 3, 8):
            assert generate(engine, prompt, 64, draft="on", block_size=block_size) == off


def test_the_same_seed_gives_the_same_text_with_and_without_the_draft(embedded_target: Path, tmp_path: Path) -> None:
    engine, files = embedded(embedded_target)
    small = Engine.load(
        tiny.write_target(tmp_path / "target"),
        tiny.write_draft(tmp_path / "draft"),
        tiny.token_bytes(),
        EngineOptions(device="cuda", dtype="float32", context=256),
    )
    for pair, prompt in [*((engine, file) for file in files[:8]), *((small, prompt) for prompt in prompts(4))]:
        sampled = [
            generate(pair, prompt, 48, draft=draft, temperature=0.8, top_p=0.95, seed=11) for draft in ("on", "off")
        ]
        assert sampled[0] == sampled[1]


def test_reused_keys_and_values_give_the_same_text_and_nearly_the_same_acceptance(embedded_target: Path) -> None:
    engine, files = embedded(embedded_target, sessions=1)
    accepted = {"cold": 0, "warm": 0}
    for prompt in files:
        for kind in accepted:
            generate(engine, [9] * 40 if kind == "cold" else prompt[:-3], 4)
            generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=64, draft="on"))
            run(engine, generation)
            assert (generation.stats.reused_tokens > 150) == (kind == "warm")
            accepted[kind] += generation.stats.accepted
    assert accepted["warm"] == pytest.approx(accepted["cold"], rel=0.02)


def test_a_cancelled_generation_leaves_the_session_usable(tmp_path: Path) -> None:
    target, draft = tiny.write_target(tmp_path / "target"), tiny.write_draft(tmp_path / "draft")
    engine = Engine.load(target, draft, tiny.token_bytes(), EngineOptions(device="cuda", dtype="float32", context=256))
    prompt = prompts(1)[0]
    expected = generate(engine, prompt, 40)
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=100, session="s", draft="on"))
    for _ in range(4):
        engine.step()
    generation.cancel()
    engine.step()
    assert generation.finish == "cancelled"
    assert generate(engine, prompt, 40, session="s", draft="on") == expected


def test_ten_thousand_short_requests_leave_the_memory_of_the_device_flat(embedded_target: Path) -> None:
    engine, files = embedded(embedded_target)
    before = 0
    for number in range(10_000):
        if number == 1000:  # every session, width and kind of choice was used by then
            before = torch.cuda.memory_reserved()
        generation = engine.submit(
            GenerationRequest(
                prompt=files[number % len(files)][: 20 + number % 150],
                max_tokens=4,
                session=f"document {number % 13}",
                draft="on" if number % 2 else "off",
                temperature=float(number % 50 == 0),
            )
        )
        while generation.finish is None:
            engine.step()
            if number % 17 == 0:
                generation.cancel()
        assert not generation.error
    assert torch.cuda.memory_reserved() == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_stored_value_comes_out_of_a_product_exactly(dtype: torch.dtype) -> None:
    for found, expected in stored_values.read_by_kernels(torch.device("cuda"), dtype):
        assert torch.equal(found, expected)


MIMO = {
    "FP8": {"fused": True},
    "MXFP4 experts": {"fused": True, "experts": "mxfp4"},
}


@pytest.mark.parametrize("form", MIMO)
def test_a_mimo_as_stored_gives_the_same_text_on_the_device(form: str, tmp_path: Path) -> None:
    stored, _ = tiny_mimo.published(tiny_mimo.tensors(), **MIMO[form])
    target = tiny_mimo.write_published(tmp_path / "target", stored, **tiny_mimo.V2_5)
    draft = tiny.write_draft(tmp_path / "draft", tiny_mimo.draft_config(), mask=True)
    engines = [
        Engine.load(target, draft, tiny.token_bytes(), EngineOptions(device=device, dtype="float32", context=256))
        for device in ("cuda", "cpu")
    ]
    assert engines[0].describe()["runtime"] == "captured graphs"
    for prompt in prompts(4):
        texts = [generate(engine, prompt, draft=draft) for engine in engines for draft in ("on", "off")]
        assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("form", MIMO)
def test_a_mimo_in_bf16_gives_the_same_text_at_every_width_bit_for_bit(form: str, tmp_path: Path) -> None:
    stored, _ = tiny_mimo.published(tiny_mimo.tensors(), **MIMO[form])
    target = tiny_mimo.write_published(tmp_path / "target", stored, **tiny_mimo.V2_5)
    draft = tiny.write_draft(tmp_path / "draft", tiny_mimo.draft_config(), mask=True)
    options = EngineOptions(device="cuda", dtype="bfloat16", context=256)
    engine = Engine.load(target, draft, tiny.token_bytes(), options)
    for prompt in prompts(4):
        off = generate(engine, prompt, 48, draft="off")
        for block_size in (2, 4, 8):
            assert generate(engine, prompt, 48, draft="on", block_size=block_size) == off


PAIRS = [("cuda:0", "cuda:0"), ("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")]
"""Two stages on one device take the steps that they take on two: graphs and buffers of their own, copies between."""


@pytest.mark.parametrize("devices", PAIRS, ids=" ".join)
@pytest.mark.parametrize("form", MIMO)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_split_over_two_devices_give_the_text_of_one_bit_for_bit(
    dtype: Any, form: str, devices: tuple[str, ...], tmp_path: Path
) -> None:
    if any(int(name[-1]) >= torch.cuda.device_count() for name in devices):
        pytest.skip("needs two CUDA devices")
    stored, _ = tiny_mimo.published(tiny_mimo.tensors(), **MIMO[form])
    target = tiny_mimo.write_published(tmp_path / "target", stored, **tiny_mimo.V2_5)
    draft = tiny.write_draft(tmp_path / "draft", tiny_mimo.draft_config(), mask=True)
    engines = [
        Engine.load(target, draft, tiny.token_bytes(), EngineOptions(dtype=dtype, context=256, devices=places))
        for places in (("cuda:0",), devices)
    ]
    assert [len(engine._target.stages) for engine in engines] == [1, 2]
    assert all(engine.describe()["runtime"] == "captured graphs" for engine in engines)
    for prompt in prompts(3):
        for options in ({"draft": "on"}, {"draft": "off"}, {"draft": "on", "temperature": 0.8, "seed": 5}):
            found = []
            for engine, first in zip(engines, ("cuda:0", devices[0]), strict=True):
                torch.cuda.set_device(first)  # as the thread of each engine does
                generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=48, **options))
                tokens = run(engine, generation)
                found.append((tokens, generation.stats.rounds, generation.stats.accepted))
            assert found[0] == found[1]


def test_step_costs_over_two_stages_are_measured_beside_their_floor() -> None:
    from dataclasses import replace

    from dflash_core.benchmarks.geometry import GEOMETRIES, measure

    published = GEOMETRIES["qwen3-8b"]
    layer = replace(published.layer, hidden_size=256, intermediate_size=512, num_heads=4, num_kv_heads=2, head_dim=64)
    small = replace(published, layers=4, layer=layer, vocab_size=2048, draft_layers=2)
    last = f"cuda:{torch.cuda.device_count() - 1}"
    report = measure(small, context=64, prompts=(64,), repeats=4, devices=("cuda:0", last))
    assert [stage["device"] for stage in report["stages"]] == ["cuda:0", last]
    (run_of_8,) = report["runs"]
    assert list(run_of_8["round_over_floor_by_width"]) == [1, 2, 4, 8]
    assert all(over > 1 for over in run_of_8["round_over_floor_by_width"].values())


def test_sessions_of_two_stages_are_given_up_and_cancelled_together(tmp_path: Path) -> None:
    stored, _ = tiny_mimo.published(tiny_mimo.tensors(), **MIMO["FP8"])
    target = tiny_mimo.write_published(tmp_path / "target", stored, **tiny_mimo.V2_5)
    draft = tiny.write_draft(tmp_path / "draft", tiny_mimo.draft_config(), mask=True)
    devices = ("cuda:0", f"cuda:{torch.cuda.device_count() - 1}")
    options = EngineOptions(dtype="float32", context=256, devices=devices)
    engine = Engine.load(target, draft, tiny.token_bytes(), options)
    prompt = prompts(1)[0]
    expected = generate(engine, prompt, 40)
    for units in range(6):
        generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=100, session="s", draft="on"))
        for _ in range(units):
            engine.step()
        generation.cancel()
        engine.step()
        assert generation.finish == "cancelled"
        assert generate(engine, prompt, 40, session="s", draft="on") == expected
    engine._hold(engine._held.smaller())
    assert engine.describe()["sessions"] == 1 and generate(engine, prompt, 40) == expected
