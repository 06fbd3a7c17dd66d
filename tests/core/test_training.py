"""The trainer learns, its blocks are what the reference says, and what it saves serves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.engine import Engine
from dflash_core.errors import CheckpointError, DFlashError
from dflash_core.generation import GenerationRequest
from dflash_core.training.blocks import block_mask, make_blocks, sample_anchors
from dflash_core.training.continuations import write_continuations
from dflash_core.training.recipe import DraftRecipe
from dflash_core.training.shards import Rows, TokenShards, read_shard
from dflash_core.training.trainer import DraftTrainer
from dflash_core.vocabulary import Vocabulary
from tests.core import tiny
from tests.core.test_target_training import write_fill_shards


def rows_of(tokens: torch.Tensor, documents: list[int] | None = None) -> Rows:
    own = torch.zeros_like(tokens) if documents is None else torch.tensor([documents])
    return Rows(tokens, own.int(), torch.zeros_like(tokens, dtype=torch.bool))


def test_a_block_sees_the_context_of_its_document_before_its_anchor_and_itself() -> None:
    anchors = torch.tensor([[3, 10]])
    documents = torch.tensor([[0] * 8 + [1] * 12], dtype=torch.int32)
    mask = block_mask(anchors, documents, block_size=4)
    assert isinstance(mask, torch.Tensor) and mask.shape == (1, 8, 28)
    for query in range(8):
        block = query // 4
        seen = mask[0, query].nonzero().flatten().tolist()
        context = range(3) if block == 0 else range(8, 10)
        assert seen == [*context, *range(20 + block * 4, 24 + block * 4)]


def test_labels_are_the_targets_choices_and_weights_follow_the_greedy_path() -> None:
    rows = rows_of(torch.tensor([[5, 6, 7, 8, 9, 1, 0, 4]]), [0] * 6 + [1] * 2)
    # After each position the target would choose: it agrees with the text at 6, 7, then not, then again.
    greedy = torch.tensor([[6, 7, 3, 9, 1, 2, 4, 4]])
    blocks = make_blocks(rows, greedy, torch.tensor([[0, 3]]), block_size=4, decay=1e9, off_path_weight=0.25)
    assert blocks.positions.tolist() == [[0, 1, 2, 3, 3, 4, 5, 6]]
    assert blocks.labels.tolist() == [[[6, 7, 3], [9, 1, 2]]]
    # Block 0 stays on the path (6, 7 are the target's own); block 1 ends at the document's end.
    assert torch.allclose(blocks.weights, torch.tensor([[[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]]))
    greedy[0, 0] = 2
    blocks = make_blocks(rows, greedy, torch.tensor([[0]]), block_size=4, decay=1e9, off_path_weight=0.25)
    assert torch.allclose(blocks.weights, torch.tensor([[[1.0, 0.25, 0.25]]]))


def test_anchors_are_distinct_sorted_and_leave_room_for_a_block() -> None:
    rows = rows_of(torch.zeros(5, 64, dtype=torch.long))
    anchors = sample_anchors(rows, 20, 8)
    assert (anchors.diff(dim=1) > 0).all() and anchors.max() < 56


@pytest.fixture
def shards(tmp_path: Path) -> TokenShards:
    text = np.random.default_rng(0).integers(1, 90, 200)
    np.save(tmp_path / "train-00000.npy", np.tile(np.append(0, text), 30).astype(np.uint16))
    np.save(tmp_path / "train-00000.starts.npy", np.arange(0, 30 * 201, 201, dtype=np.uint32))
    return TokenShards(tmp_path, "train")


def test_the_loss_falls_and_the_saved_draft_serves(shards: TokenShards, tmp_path: Path) -> None:
    target = load_target(tiny.write_target(tmp_path / "target"))
    recipe = DraftRecipe(
        layers=1,
        row_tokens=48,
        rows=4,
        anchors=6,
        mask_token_id=95,
        max_steps=100,
        warm_up_steps=5,
        learning_rate=1e-2,
        minutes=5,
    )
    trainer = DraftTrainer(target, recipe)
    batches = shards.batches(recipe.rows, recipe.row_tokens)
    losses = [trainer.step(next(batches), i / 100)[0].item() for i in range(100)]
    assert np.mean(losses[-10:]) < 0.85 * np.mean(losses[:10])
    trainer.recipe = DraftRecipe(**{**recipe.__dict__, "max_steps": 101})
    trainer.train(shards, out=tmp_path / "draft")
    draft = load_draft(tmp_path / "draft", target)
    assert draft.spec.target_layer_ids == (0, 1, 2, 4, 5) and draft.spec.block_size == 8


def test_total_variation_to_the_target_joins_the_loss_where_it_is_asked(shards: TokenShards, tmp_path: Path) -> None:
    target = load_target(tiny.write_target(tmp_path / "target"))
    sizes = {"layers": 1, "row_tokens": 48, "rows": 2, "anchors": 4, "mask_token_id": 95, "learning_rate": 1e-2}

    def losses(variation: float, rows: Rows, steps: int = 1) -> list[float]:
        torch.manual_seed(0)  # the same anchors
        trainer = DraftTrainer(target, DraftRecipe(**sizes, variation=variation))  # type: ignore[arg-type]
        return [trainer.step(rows, 0.0)[0].item() for _ in range(steps)]

    rows = next(shards.batches(2, 48))
    without, half, whole = (losses(share, rows)[0] for share in (0.0, 0.5, 1.0))
    apart = whole - without
    assert 0.05 < apart <= 1 and half - without == pytest.approx(apart / 2, abs=1e-4)
    # What is left of a loss that is nearly nothing else falls: the draft comes to give what the target gives.
    learned = [loss / 1000 for loss in losses(1000.0, rows, steps=150)]
    assert np.mean(learned[-10:]) < 0.7 * learned[0]


def test_no_shards_and_a_loss_that_is_no_number_are_one_line(shards: TokenShards, tmp_path: Path) -> None:
    with pytest.raises(DFlashError, match="no token shards held"):
        TokenShards(tmp_path, "held-python")
    with pytest.raises(DFlashError, match="no row of 100000 tokens"):
        next(shards.rows(100_000))
    target = load_target(tiny.write_target(tmp_path / "target"))
    recipe = DraftRecipe(layers=1, row_tokens=48, rows=2, anchors=4, mask_token_id=95, max_steps=2)
    trainer = DraftTrainer(target, recipe)
    with torch.no_grad():
        trainer.draft.fc.weight.fill_(float("nan"))
    with pytest.raises(DFlashError, match="not a number"):
        trainer.train(shards)


def test_a_draft_goes_on_with_the_same_curve_and_starts_from_a_saved_one(shards: TokenShards, tmp_path: Path) -> None:
    sizes = {"layers": 1, "row_tokens": 48, "rows": 2, "anchors": 4, "mask_token_id": 95, "max_steps": 6}
    recipe = DraftRecipe(**sizes, warm_up_steps=2, weighting="acceptance", due_weight=1.0)  # type: ignore[arg-type]
    folder = tiny.write_target(tmp_path / "target")
    torch.manual_seed(0)
    whole = DraftTrainer(load_target(folder), recipe).train(shards)
    torch.manual_seed(0)
    first = DraftTrainer(load_target(folder), recipe)
    batches = first._batches(shards, None)
    for step in range(3):
        first.step(next(batches), step / 6)
    first.save(tmp_path / "draft")
    rest = DraftTrainer(load_target(folder), recipe)
    assert rest.resume(tmp_path / "draft") and rest.steps == 3
    resumed = rest.train(shards)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    with pytest.raises(CheckpointError, match="another target"):
        other = load_target(tiny.write_target(tmp_path / "other", seed=1))
        DraftTrainer(other, recipe).resume(tmp_path / "draft")
    target = load_target(folder)
    warm = DraftTrainer(target, recipe, draft=load_draft(tmp_path / "draft", target))
    warm.train(shards)


def test_a_targets_own_continuations_are_its_greedy_text(tmp_path: Path) -> None:
    shards = write_fill_shards(tmp_path / "shards", count=30)
    target = load_target(tiny.write_target(tmp_path / "target"))
    stop = 2
    found = write_continuations(
        target, shards, tmp_path / "shards", minutes=1, prompts=8, max_tokens=6, stop_ids=[stop]
    )
    assert found["examples"] == 30
    engine = Engine(target, None, Vocabulary(tiny.token_bytes()), context=64, sessions=1)
    tokens, starts, middles = read_shard(tmp_path / "shards" / "own-00000.npy")
    ends = [*starts[1:], len(tokens)]
    for start, middle, end in list(zip(starts, middles, ends, strict=True))[:6]:
        generation = engine.submit(
            GenerationRequest(prompt=tokens[start:middle].tolist(), max_tokens=6, draft="off", stop_ids=[stop])
        )
        written: list[int] = []
        while generation.finish is None:
            step = engine.step()
            written += step.block.tokens if step and step.block else []
        text = tokens[middle:end].tolist()
        assert [token for token in text if token != stop] == [token for token in written if token != stop]
