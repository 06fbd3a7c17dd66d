"""Whatever is drafted, reused or cancelled, the text is the target's own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from dflash_core import DFlashError, Engine, EngineOptions, Generation, GenerationRequest
from dflash_core.checkpoints.target import load_target
from dflash_core.sessions import Session
from tests.core import tiny

FAMILIES = {
    "llama": {},
    "llama, tied": {"tie_word_embeddings": True},
    "llama, scaled rotary": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": tiny.MIXTURE,
    "qwen3_moe, weights not normalized, some layers dense": tiny.MIXTURE
    | {"norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    return tiny.write_target(folder / "target"), tiny.write_draft(folder / "draft", mask=True)


def load(pair: tuple[Path, Path], draft: bool = True, **options: Any) -> Engine:
    settings = EngineOptions(**({"device": "cpu", "dtype": "float32", "context": 256} | options))
    return Engine.load(pair[0], pair[1] if draft else None, tiny.token_bytes(), settings)


def run(engine: Engine, generation: Generation) -> list[int]:
    tokens: list[int] = []
    while generation.finish is None:
        step = engine.step()
        assert step is not None
        if step.generation is generation and step.block:
            tokens += step.block.tokens
    assert not generation.error
    return tokens


def generate(engine: Engine, prompt: list[int], max_tokens: int = 64, **options: Any) -> list[int]:
    return run(engine, engine.submit(GenerationRequest(prompt=prompt, max_tokens=max_tokens, **options)))


def prompts(count: int, length: int = 40) -> list[list[int]]:
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(0, 90, (length + i,), generator=generator).tolist() for i in range(count)]


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_greedy_text_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = tiny.write_target(tmp_path / "target", name.split(",")[0], **FAMILIES[name])
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ours = load_target(folder)
    prompt = torch.tensor(prompts(1, 70))
    session = Session(ours, None, 256)
    positions = session.next_positions(prompt.shape[1])
    with torch.inference_mode():
        hidden, _ = ours(prompt, positions, session.target_attention(positions))
        assert (ours.logits(hidden) - theirs(prompt).logits).abs().max() <= 1e-3
        # Without a mask, generate() hides prompt tokens that happen to equal the padding token.
        mask = torch.ones_like(prompt)
        expected = theirs.generate(prompt, attention_mask=mask, max_new_tokens=64, do_sample=False, eos_token_id=None)
    engine = load((folder, tiny.write_draft(tmp_path / "draft", mask=True)))
    expected = expected[0, prompt.shape[1] :].tolist()
    for draft in ("on", "off", "auto"):
        assert generate(engine, prompt[0].tolist(), draft=draft) == expected


def test_a_perfect_draft_commits_whole_blocks_and_a_wrong_one_changes_nothing(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    prompt = prompts(1)[0]
    expected = generate(engine, prompt, draft="off")
    original = engine.decoder._draft_block

    def perfect(session: Session, anchor: int) -> torch.Tensor:
        done = session.length + 1 - len(prompt)
        return torch.tensor([[anchor, *(expected + [0] * 8)[done : done + 7]]])

    engine.decoder._draft_block = perfect  # type: ignore[method-assign]
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=64, draft="on"))
    assert run(engine, generation) == expected
    assert generation.stats.rounds == 8 and generation.stats.acceptance_length == 8

    engine.decoder._draft_block = lambda session, anchor: torch.tensor([[anchor] + [94] * 7])  # type: ignore[method-assign]
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=64, draft="on"))
    assert run(engine, generation) == expected
    assert generation.stats.acceptance_length == 1 + generation.stats.accepted / generation.stats.rounds
    engine.decoder._draft_block = original  # type: ignore[method-assign]


@pytest.mark.parametrize("name", FAMILIES)
def test_text_and_drafts_are_the_same_with_and_without_prefix_reuse(name: str, tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target", name.split(",")[0], **FAMILIES[name])
    both = (target, tiny.write_draft(tmp_path / "draft", mask=True))
    warm = load(both)
    for prompt in prompts(2):
        fresh = load(both)
        cold_blocks, warm_blocks = drafted_by(fresh), drafted_by(warm)
        cold = fresh.submit(GenerationRequest(prompt=prompt, max_tokens=40, draft="on"))
        cold_tokens = run(fresh, cold)
        # The session first held another continuation of the same prefix, then text generated past the edit.
        generate(warm, [*prompt[:25], 3, 1, 4], session="document", draft="on")
        warm_blocks.clear()
        reusing = warm.submit(GenerationRequest(prompt=prompt, max_tokens=40, draft="on", session="document"))
        assert run(warm, reusing) == cold_tokens
        assert reusing.stats.reused_tokens >= 25
        assert reusing.stats.acceptance_length == cold.stats.acceptance_length
        assert warm_blocks == cold_blocks and len(warm_blocks) > 10


def drafted_by(engine: Engine) -> list[list[int]]:
    """The blocks that an engine drafts from now on."""
    blocks: list[list[int]] = []
    original = engine.decoder._draft_block

    def draft_block(session: Session, anchor: int) -> torch.Tensor:
        block = original(session, anchor)
        blocks.append(block[0].tolist())
        return block

    engine.decoder._draft_block = draft_block  # type: ignore[method-assign]
    return blocks


def test_what_was_generated_without_the_draft_is_context_for_it_later(pair: tuple[Path, Path]) -> None:
    prompt = prompts(1)[0]
    engine = load(pair)
    written = generate(engine, prompt, 30, session="s", draft="off")
    longer = prompt + written
    reusing = engine.submit(GenerationRequest(prompt=longer, max_tokens=40, session="s", draft="on"))
    tokens = run(engine, reusing)
    assert reusing.stats.reused_tokens == len(longer) - 1
    fresh = load(pair)
    cold = fresh.submit(GenerationRequest(prompt=longer, max_tokens=40, draft="on"))
    assert tokens == run(fresh, cold)
    assert reusing.stats.acceptance_length == cold.stats.acceptance_length


def test_a_second_document_takes_over_what_it_shares_with_the_first(pair: tuple[Path, Path]) -> None:
    shared, tail_a, tail_b = prompts(1, 100)[0], [7, 8, 9], [9, 8, 7]
    engine = load(pair)
    generate(engine, shared + tail_a, session="a")
    second = engine.submit(GenerationRequest(prompt=shared + tail_b, max_tokens=40, session="b", draft="on"))
    tokens = run(engine, second)
    assert second.stats.reused_tokens == len(shared)
    assert tokens == generate(load(pair), shared + tail_b, 40)
    first = engine.submit(GenerationRequest(prompt=shared + tail_a, max_tokens=40, session="a"))
    run(engine, first)
    assert first.stats.reused_tokens == len(shared) + 2


def test_a_cancelled_generation_runs_no_further_unit_and_its_session_stays_usable(pair: tuple[Path, Path]) -> None:
    prompt = prompts(1)[0]
    expected = generate(load(pair), prompt, 40)
    engine = load(pair)
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=200, session="s", draft="on"))
    while generation.stats.rounds < 3:
        engine.step()
    generation.cancel()
    assert engine.step() is not None and generation.finish == "cancelled" and generation.stats.rounds == 3
    assert engine.step() is None
    again = engine.submit(GenerationRequest(prompt=prompt, max_tokens=40, session="s", draft="on"))
    assert run(engine, again) == expected
    assert again.stats.reused_tokens == len(prompt) - 1


def test_a_cancelled_prefill_ends_within_one_chunk(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    engine = Engine.load(
        pair[0], pair[1], tiny.token_bytes(), EngineOptions(device="cpu", dtype="float32", context=1024)
    )
    prompt = prompts(1, 500)[0]
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=8, session="s"))
    engine.step()
    read = generation.stats.prefill_tokens
    generation.cancel()
    engine.step()
    assert generation.finish == "cancelled" and generation.stats.prefill_tokens == read < len(prompt) - 1
    again = engine.submit(GenerationRequest(prompt=prompt, max_tokens=8, session="s"))
    run(engine, again)
    assert again.stats.reused_tokens == read


def test_generations_take_turns_by_priority_and_then_round_by_round(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    a, b, c = (
        engine.submit(GenerationRequest(prompt=p, max_tokens=24, draft="off", priority=priority))
        for p, priority in zip(prompts(3), (1, 1, 0), strict=True)
    )
    order = []
    while (step := engine.step()) is not None:
        order.append(step.generation.number)
    first = order.index(a.number)
    assert set(order[:first]) == {c.number}, "the urgent one ran to its end first"
    rest = order[first:]
    assert all(x != y for x, y in itertools.pairwise(rest[:20])), "equals alternate"
    alone = load(pair)
    for generation, p in zip((a, b, c), prompts(3), strict=True):
        assert generation.stats.completion_tokens == 24
        assert generate(alone, p, 24, draft="off")


def test_interleaved_generations_give_the_text_each_gives_alone(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    generations = [
        engine.submit(GenerationRequest(prompt=p, max_tokens=32, session=str(i))) for i, p in enumerate(prompts(6))
    ]
    texts: dict[int, list[int]] = {}
    while (step := engine.step()) is not None:
        if step.block:
            texts.setdefault(step.generation.number, []).extend(step.block.tokens)
    alone = load(pair)
    for generation, p in zip(generations, prompts(6), strict=True):
        assert generation.finish == "length"
        assert texts[generation.number] == generate(alone, p, 32)


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_the_same_seed_gives_the_same_text_with_the_draft_on_and_off(
    pair: tuple[Path, Path], temperature: float
) -> None:
    engine = load(pair)
    for seed, prompt in enumerate(prompts(4)):
        options: dict[str, Any] = {"temperature": temperature, "top_p": 0.9, "seed": seed, "max_tokens": 40}
        assert generate(engine, prompt, draft="on", **options) == generate(engine, prompt, draft="off", **options)
    assert generate(engine, prompt, seed=1, temperature=1.5) != generate(engine, prompt, seed=2, temperature=1.5)


def test_healed_text_is_spelled_first_and_left_out_of_the_answer(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    prompt = prompts(1)[0]
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=20, heal=b"abc", draft="on"))
    text = b""
    while generation.finish is None:
        step = engine.step()
        assert step is not None
        text += step.block.text if step.block else b""
    spelled = [c - 32 for c in b"abc"]
    expected = generate(engine, prompt + spelled, 20)
    assert text == bytes(32 + t for t in expected)
    assert generation.stats.healed_tokens == 3


def test_a_stop_token_ends_the_text_inside_an_accepted_run(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    prompt = prompts(1)[0]
    text = generate(engine, prompt, 40)
    stop = text[17]
    for draft in ("on", "off"):
        generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=40, stop_ids=[stop], draft=draft))
        assert run(engine, generation) == text[: text.index(stop)]
        assert generation.finish == "eos"


def test_a_context_that_fills_up_ends_the_text(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    prompt = prompts(1, 250)[0]
    generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=64, draft="on"))
    tokens = run(engine, generation)
    assert generation.finish == "length" and len(prompt) - 1 + len(tokens) == 256
    assert tokens == generate(engine, prompt, 64, draft="off")


def test_prefill_only_writes_the_prompt_and_nothing_else(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    prompt = prompts(1)[0]
    warm_up = engine.submit(GenerationRequest(prompt=prompt, max_tokens=0, session="s", priority=2))
    assert run(engine, warm_up) == [] and warm_up.stats.rounds == 0
    following = engine.submit(GenerationRequest(prompt=prompt, max_tokens=8, session="s"))
    run(engine, following)
    assert following.stats.prefill_tokens == 0 and following.stats.reused_tokens == len(prompt) - 1


def test_a_memory_limit_means_fewer_sessions(pair: tuple[Path, Path]) -> None:
    whole = load(pair).describe()["memory_bytes"]
    one = load(pair, sessions=1).describe()["memory_bytes"]
    assert load(pair, memory_limit=(whole + one) // 2).describe()["memory_bytes"] < whole
    assert load(pair, memory_limit=one).describe()["memory_bytes"] == one


def test_a_request_that_cannot_be_served_is_refused_in_one_line(pair: tuple[Path, Path]) -> None:
    engine = load(pair)
    for options, words in [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [1] * 256}, "256 tokens, the context holds 256"),
        ({"prompt": [1, 96]}, "outside the vocabulary of 96"),
        ({"prompt": [1], "max_tokens": -1}, "must not be negative"),
        ({"prompt": [1], "temperature": -0.1}, "temperature"),
        ({"prompt": [1], "top_p": 0.0}, "top_p"),
        ({"prompt": [1], "block_size": 0}, "block_size"),
        ({"prompt": [1], "heal": bytes([7])}, "cannot be spelled"),
        ({"prompt": [1], "heal": b"a" * 2000}, "at most 1024"),
    ]:
        with pytest.raises(DFlashError) as caught:
            engine.submit(GenerationRequest(**({"max_tokens": 4} | options)))
        assert words in str(caught.value) and "\n" not in str(caught.value)
    assert engine.step() is None


def test_a_failing_request_ends_alone(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(pair)
    prompt = prompts(1)[0]
    original = engine.decoder.round

    def fail_once(*args: Any) -> Any:  # a fault put in: the core has none that a request can bring about
        monkeypatch.setattr(engine.decoder, "round", original)
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(engine.decoder, "round", fail_once)
    broken = engine.submit(GenerationRequest(prompt=prompt, max_tokens=8))
    while broken.finish is None:
        engine.step()
    assert broken.finish == "error" and broken.error == "first line"
    assert generate(engine, prompt, 8) == generate(load(pair), prompt, 8)


def test_equals_that_are_more_than_there_are_sessions_all_get_on_and_their_texts_are_right(
    pair: tuple[Path, Path],
) -> None:
    """A fifth document must not wait until one of four has ended."""
    engine, alone = load(pair, sessions=4), load(pair)
    texts: dict[int, list[int]] = {}
    begun: list[int] = []
    waiting = [engine.submit(GenerationRequest(prompt=p, max_tokens=80, draft="off")) for p in prompts(5)]
    while (done := engine.step()) is not None:
        if done.block:
            texts.setdefault(done.generation.number, []).extend(done.block.tokens)
            if done.generation is waiting[4]:
                begun.append(min(each.stats.completion_tokens for each in waiting[:4]))
    assert begun[0] < 40, "the fifth ran before the others were half done"
    for generation, prompt in zip(waiting, prompts(5), strict=True):
        assert texts[generation.number] == generate(alone, prompt, 80, draft="off")


def test_an_urgent_request_takes_the_session_of_a_less_urgent_one_which_goes_on_later(pair: tuple[Path, Path]) -> None:
    engine, alone = load(pair, sessions=2), load(pair)
    texts: dict[int, list[int]] = {}

    def step() -> None:
        done = engine.step()
        if done and done.block:
            texts.setdefault(done.generation.number, []).extend(done.block.tokens)

    patient = [engine.submit(GenerationRequest(prompt=p, max_tokens=40, priority=2)) for p in prompts(3)]
    for _ in range(12):
        step()
    urgent = engine.submit(GenerationRequest(prompt=prompts(4)[3], max_tokens=4, priority=0))
    step()
    assert urgent.session is not None, "it waited for one unit at most"
    while not all(g.finish for g in (*patient, urgent)):
        step()
    for generation, prompt, length in zip((*patient, urgent), prompts(4), (40, 40, 40, 4), strict=True):
        assert texts[generation.number] == generate(alone, prompt, length)


@pytest.mark.parametrize("context", [1, 2, 9, 63, 72])
def test_a_context_too_short_for_a_calibration_of_full_length_is_calibrated_all_the_same(
    context: int, tmp_path: Path
) -> None:
    pair = tiny.write_target(tmp_path / "target"), tiny.write_draft(tmp_path / "draft")
    options = EngineOptions(device="cpu", dtype="float32", context=context)
    engine = Engine.load(*pair, tiny.token_bytes(), options)
    assert set(engine.policy.round_ms) == {1, 2, 4, 8}
    if context > 2:
        whole = Engine.load(*pair, tiny.token_bytes(), EngineOptions(device="cpu", dtype="float32", context=256))
        room = context - 2
        assert generate(engine, [5, 6], room, draft="on") == generate(whole, [5, 6], room, draft="off")
