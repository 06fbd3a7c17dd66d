"""Over thousands of requests nothing grows, and what is drawn is the target's own distribution."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dflash_core import Engine, EngineOptions, GenerationRequest
from dflash_core.checkpoints.target import load_target
from dflash_core.sessions import Session
from tests.core import tiny
from tests.core.test_decoding import generate

REQUESTS = 10_000
WARM_UP = 2_000
SMALL = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
ONE_HEAD = {"num_key_value_heads": 1, "head_dim": 8}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """As small as a pair can be: ten thousand requests shall take seconds."""
    folder = tmp_path_factory.mktemp("pair")
    config = tiny.draft_config(**SMALL, **ONE_HEAD, num_target_layers=1, block_size=4, dflash={"target_layer_ids": [0]})
    return tiny.write_target(folder / "target", **SMALL, **ONE_HEAD), tiny.write_draft(folder / "draft", config)


@pytest.fixture
def engine(pair: tuple[Path, Path]) -> Engine:
    return _load(*pair)


def _load(target: Path, draft: Path) -> Engine:
    options = EngineOptions(device="cpu", dtype="float32", context=128)
    return Engine.load(target, draft, tiny.token_bytes(), options)


def test_ten_thousand_short_requests_leave_memory_flat(pair: tuple[Path, Path]) -> None:
    """In a process of its own: what other tests left behind is collected when it likes."""
    command = [sys.executable, "-m", "tests.core.test_steady", *map(str, pair)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tensors"] <= 0
    assert found["bytes"] < 8 << 20, f"{found['bytes'] >> 10} KiB more after {REQUESTS - WARM_UP} requests"


def _growth(engine: Engine) -> dict[str, int]:
    """By how much memory and tensors grow over ten thousand requests, after the first of them."""

    def used() -> tuple[int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), sum(isinstance(each, torch.Tensor) for each in gc.get_objects())

    before = (0, 0)
    for number in range(REQUESTS):
        if number == WARM_UP:
            before = used()
        request = GenerationRequest(
            # Documents come and go, their prompts begin alike or not, and some requests are given up.
            prompt=[number % 3, number % 7, number % 90, *range(number % 11)],
            max_tokens=2,
            session=f"document {number % 13}",
            draft="on" if number % 2 else "off",
            temperature=float(number % 5 == 0),
            seed=number,
        )
        generation = engine.submit(request)
        while generation.finish is None:
            engine.step()
            if number % 17 == 0:
                generation.cancel()
    resident, tensors = (now - then for now, then in zip(used(), before, strict=True))
    return {"bytes": resident, "tensors": tensors}


def test_what_the_engine_draws_with_its_draft_is_the_targets_own_distribution(
    engine: Engine, pair: tuple[Path, Path]
) -> None:
    """Two tokens at temperature 0.7 from 3,000 seeds, against the target's exact probabilities of both."""
    prompt, draws, temperature = [5, 17, 33, 60, 2, 9], 3000, 0.7
    drawn = torch.zeros(tiny.VOCAB, tiny.VOCAB)
    for seed in range(draws):
        options = {"temperature": temperature, "seed": seed, "session": "s", "draft": "on"}
        first, second = generate(engine, prompt, 2, **options)
        drawn[first, second] += 1
    target = load_target(pair[0])
    rows = torch.tensor([[*prompt, token] for token in range(tiny.VOCAB)])
    positions = torch.arange(rows.shape[1])[None]
    exact = torch.zeros(tiny.VOCAB, tiny.VOCAB)
    with torch.inference_mode():
        for token, row in enumerate(rows):
            session = Session(target, None, 64)
            hidden, _ = target(row[None], positions, session.target_attention(positions))
            after = (target.logits(hidden)[0, -2:] / temperature).softmax(-1)
            exact[token] = after[0, token] * after[1]
    expected = exact.flatten() * draws
    # Pairs rarer than 8 expected draws are counted together, or chi-square would not hold for them.
    common = expected >= 8
    bins = torch.cat([expected[common], expected[~common].sum()[None]])
    found = torch.cat([drawn.flatten()[common], drawn.flatten()[~common].sum()[None]])
    freedom = len(bins) - 1
    assert freedom >= 20
    chi = ((found - bins) ** 2 / bins).sum()
    # Wilson and Hilferty: beyond this by chance once in a thousand; the seeds are fixed.
    assert chi < freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3


if __name__ == "__main__":
    print(json.dumps(_growth(_load(Path(sys.argv[1]), Path(sys.argv[2])))))
