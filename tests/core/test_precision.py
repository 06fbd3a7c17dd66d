"""The precision that serves on a CPU is the quickest of those measured whose text is that of fp32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_core import precision
from dflash_core.errors import CheckpointError
from dflash_core.precision import LEAST_AGREEMENT, MOST_LOSS, PrecisionCost, choose_precision
from server.context.tokenizer import PromptTokenizer
from server.paths import asset
from tests.core import tiny

SAMPLE = [(7 * i * i + i) % 90 for i in range(120)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    wide = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, "num_attention_heads": 4}
    config = tiny.draft_config(hidden_size=64, head_dim=16, num_attention_heads=4)
    return tiny.write_target(folder / "target", **wide), tiny.write_draft(folder / "draft", config)


def test_the_embedded_pair_gets_the_quickest_precision_that_keeps_its_text(embedded_target: Path) -> None:
    tokenizer = PromptTokenizer.from_file(asset("embedded", "tokenizer.json"))
    sample = [0, *tokenizer.encode(Path(precision.__file__).read_text(encoding="utf-8"))][:160]
    told: list[str] = []
    found = choose_precision(embedded_target, asset("embedded", "draft"), sample, progress=told.append)
    costs = {cost.precision: cost for cost in found.costs}
    assert list(costs) == told and {"float32", "int4", "int8"} <= set(costs)
    allowed = [cost for cost in costs.values() if not cost.refused]
    assert costs[found.picked] == min(allowed, key=lambda cost: cost.completion_ms)
    for cost in costs.values():
        assert cost.read_ms > 0 and cost.round_ms and set(cost.round_ms) == {1, 4, 8}
        if cost.agreement is None or cost.loss is None:
            assert cost.completion_ms >= costs[found.picked].completion_ms, "only what is slower is not looked at"
        else:
            assert bool(cost.refused) == (cost.agreement < LEAST_AGREEMENT or cost.loss > MOST_LOSS)
    assert found.reason


def test_a_precision_whose_text_differs_is_refused_however_quick_it_is(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights lose much by int4. What they cost is set here, since it is not what is asked."""
    ms = {"float32": 100.0, "bfloat16": 100.0, "int4": 1.0}
    monkeypatch.setattr(
        precision._Pair, "cost", lambda self, sample: PrecisionCost(self.name, completion_ms=ms[self.name])
    )
    found = choose_precision(*pair, SAMPLE, candidates=("int4",))
    refused = next(cost for cost in found.costs if cost.precision == "int4")
    assert refused.agreement is not None and refused.agreement < LEAST_AGREEMENT
    assert found.picked != "int4" and f"int4 refused, {refused.refused}" in found.reason


def test_a_target_too_large_to_measure_is_served_unmeasured_and_says_so(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "MOST_BYTES", 1000)
    found = choose_precision(*pair, SAMPLE)
    assert found.picked in ("float32", "bfloat16") and found.reason.startswith("not measured: the target's weights are")
    assert not found.costs


def test_out_of_memory_while_measuring_means_unmeasured(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:  # the real failure is in test_memory_ladder; here it is put at a chosen place
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(precision, "pack_target", fail)
    found = choose_precision(*pair, SAMPLE)
    assert found.picked in ("float32", "bfloat16") and found.reason == "not measured: out of memory"


def test_a_target_of_transformers_own_is_not_packed(tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target", "gpt_neox", num_key_value_heads=4)
    found = choose_precision(target, None, SAMPLE)
    assert found.picked in ("float32", "bfloat16")
    assert all(cost.refused for cost in found.costs if cost.precision.startswith("int"))


def test_a_pair_that_cannot_be_loaded_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        choose_precision(tmp_path, None, SAMPLE)
