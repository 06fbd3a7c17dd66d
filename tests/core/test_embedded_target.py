"""The embedded target on its real weights: our stack against transformers, and the text whatever serves it."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from dflash_core import Engine, EngineOptions, GenerationRequest
from dflash_core.training.evaluation import acceptance
from server.context.tokenizer import PromptTokenizer
from server.paths import asset
from tests.core.test_decoding import run

# Twenty texts decoded three ways and by transformers: minutes on a busy machine.
pytestmark = pytest.mark.timeout(1800)

PROMPT_TOKENS = 160
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def tokenizer() -> PromptTokenizer:
    return PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))


@pytest.fixture(scope="module")
def engine(embedded_target: Path, tokenizer: PromptTokenizer) -> Engine:
    draft = asset("embedded", "draft")
    options = EngineOptions(device="cpu", dtype="float32", context=512, sessions=2)
    return Engine.load(embedded_target, draft, tokenizer.token_bytes, options)


@pytest.fixture(scope="module")
def prompts(tokenizer: PromptTokenizer) -> list[list[int]]:
    """20 real prompts: the standard library's own files, each cut in the middle of a function."""
    found: list[list[int]] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and len(n.body) > 3]
        if not functions or len(text) > 60_000:
            continue
        line = functions[len(functions) // 2].body[2].lineno
        before = "".join(text.splitlines(keepends=True)[: line - 1]).rstrip()
        found.append([0, *tokenizer.encode(f"# {path.name}\n" + before)[-PROMPT_TOKENS:]])
        if len(found) == 20:
            return found
    raise AssertionError("the standard library has fewer than 20 suitable files")


@pytest.fixture(scope="module")
def expected(embedded_target: Path, prompts: list[list[int]]) -> tuple[list[torch.Tensor], list[list[int]]]:
    """transformers' own logits of the prompts and its greedy text, on the same weights in fp32."""
    model = AutoModelForCausalLM.from_pretrained(embedded_target, dtype=torch.float32).eval()
    logits, texts = [], []
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt])
            logits.append(model(ids).logits[0])
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
            texts.append(out[0, len(prompt) :].tolist())
    return logits, texts


def test_logits_equal_those_of_transformers(
    engine: Engine, prompts: list[list[int]], expected: tuple[list[torch.Tensor], list[list[int]]]
) -> None:
    target = engine.decoder.target
    for prompt, theirs in zip(prompts, expected[0], strict=True):
        session = engine.sessions.acquire(None, prompt)
        session.rewind(0)
        positions = session.next_positions(len(prompt))
        with torch.inference_mode():
            hidden, _ = target(torch.tensor([prompt]), positions, session.target_attention(positions))
            assert (target.logits(hidden)[0] - theirs).abs().max() <= 1e-3
        engine.sessions.release(session)


def test_greedy_text_is_the_targets_own_with_and_without_the_draft_and_prefix_reuse(
    engine: Engine, prompts: list[list[int]], expected: tuple[list[torch.Tensor], list[list[int]]]
) -> None:
    reused = 0
    for number, (prompt, text) in enumerate(zip(prompts, expected[1], strict=True)):
        off = engine.submit(GenerationRequest(prompt=prompt, max_tokens=NEW_TOKENS, draft="off", session=f"{number}"))
        assert run(engine, off) == text
        # The same session: every key and value of the prompt is reused, written while the draft was off.
        warm = engine.submit(GenerationRequest(prompt=prompt, max_tokens=NEW_TOKENS, draft="on", session=f"{number}"))
        assert run(engine, warm) == text
        reused += warm.stats.reused_tokens
        # All sessions emptied: everything is read again.
        for session in engine.sessions._sessions:
            session.rewind(0)
        cold = engine.submit(GenerationRequest(prompt=prompt, max_tokens=NEW_TOKENS, draft="on", session="cold"))
        assert run(engine, cold) == text
        assert cold.stats.reused_tokens == 0
        assert cold.stats.acceptance_length == warm.stats.acceptance_length
    assert reused == sum(len(prompt) - 1 for prompt in prompts)


def test_the_draft_is_worth_its_cost_on_real_code(engine: Engine, prompts: list[list[int]]) -> None:
    found = acceptance(engine, prompts[:8], max_tokens=NEW_TOKENS)
    # Of the standard library, which the draft was not trained on; an untrained or misfed draft gives 1.0 to 1.2.
    assert found.length > 1.9
    assert found.prefix_right == sorted(found.prefix_right, reverse=True)
