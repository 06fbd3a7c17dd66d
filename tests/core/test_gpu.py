"""The same promises on a CUDA device; skipped where there is none. Results of a run: benchmarks/results/."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dflash_core import Engine, EngineOptions, GenerationRequest
from server.context.tokenizer import PromptTokenizer
from server.paths import asset
from tests.core import tiny
from tests.core.test_decoding import generate, prompts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NEAR_TIE = 0.5
"""Logits; decoding rule 2: in bf16 a differing token must be this close to the chosen one."""


def test_greedy_text_in_fp32_is_the_same_with_and_without_the_draft_and_on_the_cpu(tmp_path: Path) -> None:
    target, draft = tiny.write_target(tmp_path / "target"), tiny.write_draft(tmp_path / "draft", mask=True)
    engines = [
        Engine.load(target, draft, tiny.token_bytes(), EngineOptions(device=device, dtype="float32", context=256))
        for device in ("cuda", "cpu")
    ]
    for prompt in prompts(6):
        texts = [generate(engine, prompt, draft=draft) for engine in engines for draft in ("on", "off")]
        assert all(text == texts[0] for text in texts)


def test_in_bf16_a_token_that_differs_with_the_draft_is_a_near_tie(embedded_target: Path) -> None:
    tokenizer = PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))
    options = EngineOptions(device="cuda", dtype="bfloat16", context=512)
    engine = Engine.load(embedded_target, asset("embedded", "draft"), tokenizer.token_bytes, options)
    files = sorted((Path(__file__).parents[2] / "dflash_core").glob("*.py"))
    compared = 0
    for path in files:
        prompt = [0, *tokenizer.encode(path.read_text(encoding="utf-8"))[:200]]
        off, on = (generate(engine, prompt, 64, draft=draft) for draft in ("off", "on"))
        compared += len(off)
        differing = next((i for i, (a, b) in enumerate(zip(off, on, strict=True)) if a != b), None)
        if differing is None:
            continue
        logits = _next_logits(engine, prompt + off[:differing])
        assert abs(logits[off[differing]] - logits[on[differing]]) <= NEAR_TIE
    assert compared >= 500


def _next_logits(engine: Engine, tokens: list[int]) -> torch.Tensor:
    """The target's logits after these tokens, teacher-forced in one pass."""
    session = engine.sessions.acquire(None, [0])
    session.rewind(0)
    positions = session.next_positions(len(tokens))
    target = engine.decoder.target
    with torch.inference_mode():
        ids = torch.tensor([tokens], device=target.device)
        hidden, _ = target(ids, positions, session.target_attention(positions))
        logits = target.logits(hidden[:, -1:])[0, 0].float()
    engine.sessions.release(session)
    return logits


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
