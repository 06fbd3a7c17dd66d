"""Tuning a target: the loss falls, a run goes on as if it had never stopped, and what is saved serves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from dflash_core.checkpoints.target import load_target
from dflash_core.errors import CheckpointError, DFlashError
from dflash_core.target import Target
from dflash_core.training.delta import Delta, merge_delta
from dflash_core.training.evaluation import left_to_right_bits
from dflash_core.training.recipe import TargetRecipe
from dflash_core.training.shards import TokenShards, join
from dflash_core.training.target_trainer import DELTA, TargetTrainer, counted_and_due
from tests.core import tiny
from tests.core.test_decoding import prompts

RECIPE: dict[str, Any] = {
    "rank": 4,
    "rows": 4,
    "row_tokens": 48,
    "head_rows": 2,
    "learning_rate": 1e-2,
    "warm_up_steps": 5,
    "minutes": 5,
    "report_steps": 10,
    "held_steps": 30,
    "held_rows": 4,
}


def write_fill_shards(folder: Path, split: str = "train", count: int = 120, seed: int = 0) -> TokenShards:
    """Documents of 20 tokens: what is due is four of the first tokens again, and a stop token."""
    generator = np.random.default_rng(seed)
    documents = []
    for _ in range(count):
        head = generator.integers(20, 90, 15)
        documents.append(np.concatenate([[0], head, head[3:6], [2]]))
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{split}-00000.npy", np.concatenate(documents).astype(np.uint16))
    np.save(folder / f"{split}-00000.starts.npy", np.arange(0, count * 20, 20, dtype=np.uint32))
    np.save(folder / f"{split}-00000.middles.npy", np.arange(16, count * 20, 20, dtype=np.uint32))
    return TokenShards(folder, split)


@pytest.fixture
def shards(tmp_path: Path) -> TokenShards:
    return write_fill_shards(tmp_path / "shards")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.write_target(tmp_path / "target")


def run(folder: Path, shards: TokenShards, out: Path, **options: Any) -> tuple[TargetTrainer, list[dict[str, Any]]]:
    trainer = TargetTrainer(load_target(folder), TargetRecipe(**{**RECIPE, **options}))
    trainer.resume(out)
    rows: list[dict[str, Any]] = []
    trainer.train(shards, out, report=rows.append)
    return trainer, rows


def test_rows_are_packed_with_whole_documents_and_only_middles_are_due(shards: TokenShards) -> None:
    rows = next(shards.batches(3, 50))
    assert rows.tokens.shape == (3, 50)
    assert rows.documents.tolist() == [[0] * 20 + [1] * 20 + [-1] * 10] * 3
    counted, due = counted_and_due(rows)
    assert due.sum(dim=1).tolist() == [8, 8, 8] and counted.sum(dim=1).tolist() == [38, 38, 38]
    assert (rows.tokens[:, 16:20] == torch.cat([rows.tokens[:, 4:7], torch.full((3, 1), 2)], 1)).all()
    # A row shorter than a document holds its end.
    short = next(shards.batches(1, 10))
    assert short.tokens[0, -1] == 2 and short.due[0].sum() == 4


def test_documents_with_long_middles_come_more_often_where_that_is_asked(tmp_path: Path) -> None:
    tokens = np.concatenate([np.full(10, 20 + number) for number in range(6)]).astype(np.uint16)
    np.save(tmp_path / "train-00000.npy", tokens)
    np.save(tmp_path / "train-00000.starts.npy", np.arange(0, 60, 10, dtype=np.uint32))
    np.save(tmp_path / "train-00000.middles.npy", np.array([8, 17, 24, 40, 42, 59], dtype=np.uint32))

    def shown(**asked: int) -> list[int]:
        rows = join(list(TokenShards(tmp_path, "train").rows(30, passes=1, **asked)))
        return torch.bincount(rows.tokens[rows.documents >= 0] - 20, minlength=6).tolist()

    assert shown() == shown(long_due=5) == [10] * 6
    assert shown(long_due=6, long_times=3) == [10, 10, 30, 10, 30, 10]  # 2, 3, 6, 0, 8 and 1 tokens are due


def test_a_document_sees_nothing_of_its_neighbours_in_a_row(folder: Path, shards: TokenShards) -> None:
    trainer = TargetTrainer(load_target(folder), TargetRecipe(**RECIPE))
    rows = next(shards.batches(1, 40))
    alone = join([rows])
    alone.tokens[0, :20] = 7
    with torch.no_grad():
        together, changed = trainer._hidden(rows), trainer._hidden(alone)
    assert torch.equal(together[0, 20:], changed[0, 20:]) and not torch.equal(together[0, 16], changed[0, 16])


def test_the_loss_of_what_is_due_falls_and_the_saved_delta_is_the_tuned_target(
    folder: Path, shards: TokenShards, tmp_path: Path
) -> None:
    trainer, rows = run(folder, shards, tmp_path / "out", max_steps=80, rank=16)
    losses = [row["due_bits"] for row in rows]
    assert losses[-1] < 0.8 * losses[0]
    merged = load_target(folder)
    merge_delta(merged, tmp_path / "out" / DELTA)
    held = [next(shards.batches(4, 48, seed=5))]
    tuned, packed = trainer.held_out(held), TargetTrainer(merged, TargetRecipe(**RECIPE)).held_out(held)
    base = TargetTrainer(load_target(folder), TargetRecipe(**RECIPE)).held_out(held)
    assert abs(packed.due - tuned.due) < 0.05 < base.due - tuned.due  # int8 factors


def test_everything_can_be_tuned_as_well(folder: Path, shards: TokenShards, tmp_path: Path) -> None:
    _, rows = run(folder, shards, tmp_path / "out", max_steps=40, rank=0, learning_rate=3e-3)
    assert rows[-1]["due_bits"] < rows[0]["due_bits"]
    merged = load_target(folder)
    merge_delta(merged, tmp_path / "out" / DELTA)
    assert not torch.equal(merged.embed_tokens, load_target(folder).embed_tokens)


def test_a_run_goes_on_with_the_same_curve(folder: Path, shards: TokenShards, tmp_path: Path) -> None:
    _, whole = run(folder, shards, tmp_path / "whole", max_steps=40)

    class Interrupted(Exception):
        pass

    trainer = TargetTrainer(load_target(folder), TargetRecipe(**RECIPE, max_steps=40))
    seen: list[dict[str, Any]] = []

    def stop_at_20(row: dict[str, Any]) -> None:
        seen.append(row)
        if row["step"] == 20:
            trainer.save(tmp_path / "part")
            raise Interrupted

    with pytest.raises(Interrupted):
        trainer.train(shards, tmp_path / "part", report=stop_at_20)
    _, rest = run(folder, shards, tmp_path / "part", max_steps=40)
    without = [{key: value for key, value in row.items() if key != "seconds"} for row in [*seen, *rest]]
    assert without == [{key: value for key, value in row.items() if key != "seconds"} for row in whole]


def test_a_loss_that_is_no_number_keeps_the_last_good_checkpoint(
    folder: Path, shards: TokenShards, tmp_path: Path
) -> None:
    trainer, _ = run(folder, shards, tmp_path / "out", max_steps=10)
    good = (tmp_path / "out" / DELTA).read_bytes()
    trainer.recipe = TargetRecipe(**RECIPE, max_steps=60)
    with torch.no_grad():
        trainer.target.norm.weight.fill_(float("nan"))
    with pytest.raises(DFlashError, match="not a number after"):
        trainer.train(shards, tmp_path / "out")
    assert (tmp_path / "out" / DELTA).read_bytes() == good
    with torch.no_grad():
        next(iter(trainer.delta.parameters())).fill_(float("nan"))
    with pytest.raises(DFlashError, match="not finite"):
        trainer.save(tmp_path / "out")
    assert (tmp_path / "out" / DELTA).read_bytes() == good


def test_a_checkpoint_of_another_target_is_refused(folder: Path, shards: TokenShards, tmp_path: Path) -> None:
    run(folder, shards, tmp_path / "out", max_steps=2)
    other = tiny.write_target(tmp_path / "other", seed=1)
    with pytest.raises(CheckpointError, match="another target"):
        run(other, shards, tmp_path / "out", max_steps=4)
    untouched = load_target(other)
    with pytest.raises(CheckpointError, match="another target"):
        merge_delta(untouched, tmp_path / "out" / DELTA)
    assert same_weights(untouched, load_target(other))
    with pytest.raises(CheckpointError, match="rank 4, not 8"):
        run(folder, shards, tmp_path / "out", max_steps=4, rank=8)
    (tmp_path / "out" / "state.pt").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot be read"):
        run(folder, shards, tmp_path / "out", max_steps=4)
    with pytest.raises(CheckpointError, match="cannot be read"):
        merge_delta(untouched, tmp_path / "out" / "state.pt")


def test_a_warm_start_begins_with_a_saved_delta(folder: Path, shards: TokenShards, tmp_path: Path) -> None:
    trainer, _ = run(folder, shards, tmp_path / "out", max_steps=30)
    warm = TargetTrainer(load_target(folder), TargetRecipe(**RECIPE))
    warm.start_from(tmp_path / "out" / DELTA)
    held = [next(shards.batches(4, 48, seed=5))]
    assert abs(warm.held_out(held).due - trainer.held_out(held).due) < 0.05


def test_shards_that_do_not_fit_their_starts_are_one_line(tmp_path: Path) -> None:
    shards = write_fill_shards(tmp_path)
    np.save(tmp_path / "train-00000.starts.npy", np.array([0, 10**6], dtype=np.uint32))
    with pytest.raises(DFlashError, match="does not fit its starts"):
        next(shards.batches(1, 40))


def test_a_rank_that_no_projection_has_is_one_line(folder: Path) -> None:
    with pytest.raises(DFlashError, match="rank 64 is larger"):
        Delta(load_target(folder), 64)


def same_weights(one: Target, other: Target) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_bits_from_left_to_right_are_those_of_transformers(tmp_path: Path) -> None:
    folder = tiny.write_target(tmp_path / "target")
    texts = prompts(3, 50)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        nats = [float(theirs(torch.tensor([t]), labels=torch.tensor([t])).loss) * (len(t) - 1) for t in texts]
    expected = sum(nats) / math.log(2) / sum(len(t) - 1 for t in texts)
    assert left_to_right_bits(load_target(folder), texts) == pytest.approx(expected, rel=1e-5)
