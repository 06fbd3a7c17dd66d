"""The training loop of a draft: features from the frozen target, blocks at random anchors, weighted cross-entropy.

The target's embedding and head are shared and frozen; what is learned are the draft's layers, its feature projection,
and one vector for the mask.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dflash_core.checkpoints.draft import save_draft
from dflash_core.configs import check_pair, draft_spec
from dflash_core.draft import Draft
from dflash_core.errors import CheckpointError, DFlashError
from dflash_core.target import Target
from dflash_core.training.batches import ahead
from dflash_core.training.blocks import BlockAttention, Blocks, block_mask, make_blocks, sample_anchors
from dflash_core.training.compilation import compile_layers, compiled
from dflash_core.training.delta import fingerprint
from dflash_core.training.packed_attention import PackedAttention, check_trainable, document_mask
from dflash_core.training.recipe import DraftRecipe, rate
from dflash_core.training.reports import Report
from dflash_core.training.shards import Rows, TokenShards
from dflash_core.training.state import read_state, write_state

STATE = "state.pt"
REPORT_STEPS = 100
SAVE_S = 120


def new_draft(target: Target, recipe: DraftRecipe) -> Draft:
    """A draft of the recipe's size with random weights, fp32, on the target's device."""
    spec = draft_spec(recipe.config(target.spec))
    check_pair(target.spec, spec)
    draft = Draft(spec)
    generator = torch.Generator().manual_seed(recipe.seed)
    residual = 0.02 / math.sqrt(2 * recipe.layers)
    with torch.no_grad():
        for name, parameter in draft.named_parameters():
            if parameter.dim() == 1 and name != "mask_embedding":
                parameter.fill_(1.0)
                continue
            small = name.endswith(("o_proj.weight", "down_proj.weight"))
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (residual if small else 0.02))
    return draft.to(target.device)


class DraftTrainer:
    def __init__(self, target: Target, recipe: DraftRecipe, *, draft: Draft | None = None) -> None:
        """draft: to go on from, a warm start; it is trained in fp32."""
        check_trainable(target.spec.layers)
        self.target = target
        self.recipe = recipe
        self.draft = new_draft(target, recipe) if draft is None else draft.float().train().requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.draft.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.steps = 0
        self.seconds = 0.0
        compile_layers(target.layers, target.device)
        self._document_mask = compiled(document_mask, target.device)
        self._greedy = compiled(self._greedy_tokens, target.device)
        self._loss = compiled(self._block_loss, target.device)
        self._mask = compiled(block_mask, target.device)

    def train(
        self,
        shards: TokenShards,
        report: Report = lambda row: None,
        out: Path | None = None,
        *,
        own: TokenShards | None = None,
    ) -> Draft:
        """Runs the recipe, or the rest of it after `resume`; reports every 100 steps; saves to `out` now and then.

        own: shards of the target's own continuations, of which `own_share` of the batches are made.
        Raises DFlashError when the loss stops being a number; what was saved last stays.
        """
        batches = ahead(self._batches(shards, own))
        started, saved, before = None, time.monotonic(), self.seconds
        limit = self.recipe.minutes * 60
        while self.steps < self.recipe.max_steps and self.seconds < limit:
            share = max(self.seconds / limit, self.steps / self.recipe.max_steps)
            measured = self.steps % REPORT_STEPS == 0
            loss, matrix = self.step(next(batches), share)
            if started is None and self.steps >= 3:  # compilation lies behind; the clock of the schedule starts here
                started = time.monotonic()
            if started is not None:
                self.seconds = before + time.monotonic() - started
            if measured:
                self._check(loss)
                report(self._row(loss, matrix, self.seconds))
            if out is not None and time.monotonic() - saved > SAVE_S:
                self._check(loss)
                self.save(out)
                saved = time.monotonic()
        if self.steps:
            self._check(loss)
        if out is not None:
            self.save(out)
        return self.draft

    def step(self, rows: Rows, share: float) -> tuple[Tensor, Tensor]:
        """One optimizer step on a batch; `share` of the schedule done. Returns loss and rows right, [B - 1]."""
        recipe, device = self.recipe, self.target.device
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * rate(self.steps, recipe.warm_up_steps, share)
        rows = rows.to(device)
        with torch.no_grad():
            features, greedy, hidden = self._read_target(rows)
        anchors = sample_anchors(rows, recipe.anchors, recipe.block_size, recipe.due_weight)
        decay = recipe.decay if recipe.weighting == "decay" else None
        blocks = make_blocks(rows, greedy, anchors, recipe.block_size, decay, recipe.off_path_weight)
        mask = self._mask(anchors, rows.documents, recipe.block_size)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, right = self._loss(rows.tokens, features, blocks, mask, hidden if recipe.variation else None)
        loss.backward()
        nn.utils.clip_grad_norm_(self.draft.parameters(), recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return loss.detach(), right

    def save(self, out: Path) -> None:
        """The draft, and the state to go on from."""
        save_draft(self.draft, out)
        state = {
            "target": fingerprint(self.target),
            "steps": self.steps,
            "seconds": self.seconds,
            "draft": self.draft.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        write_state(state, out / STATE)

    def resume(self, out: Path) -> bool:
        """Takes up the state in `out`, if there is one. Raises CheckpointError when it is of another pair."""
        file = out / STATE
        if not file.exists():
            return False
        state = read_state(file, "cpu")
        if state.get("target") != fingerprint(self.target):
            raise CheckpointError(f"{file} is the state of a draft for another target")
        try:
            self.draft.load_state_dict(state["draft"])
        except RuntimeError as error:
            raise CheckpointError(f"{file} is the state of a draft of another size") from error
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.steps, self.seconds = state["steps"], state["seconds"]
        return True

    def _batches(self, shards: TokenShards, own: TokenShards | None) -> Iterator[Rows]:
        recipe = self.recipe
        given = shards.batches(recipe.rows, recipe.row_tokens, recipe.seed)
        theirs = own.batches(recipe.rows, recipe.row_tokens, recipe.seed) if own is not None else given
        chance = random.Random(recipe.seed)
        mixed = (next(theirs if chance.random() < recipe.own_share else given) for _ in itertools.count())
        for _ in range(self.steps):  # those that an earlier run has seen
            next(mixed)
        return mixed

    def _check(self, loss: Tensor) -> None:
        if not math.isfinite(loss.item()):
            raise DFlashError(f"the loss is not a number after {self.steps} steps")

    def _read_target(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Features [N, S, K * H], the target's argmax after every position [N, S], and what its head reads there."""
        positions = torch.arange(rows.tokens.shape[1], device=rows.tokens.device).expand_as(rows.tokens)
        windows = {layer.spec.window for layer in self.target.layers}
        attend = PackedAttention({window: self._document_mask(rows.documents, window) for window in windows})
        hidden, features = self.target(rows.tokens, positions, attend, self.draft.spec.target_layer_ids)
        assert features is not None
        # A few rows at a time: the logits of a whole batch would not fit.
        return features, torch.cat([self._greedy(part) for part in hidden.split(8)]), hidden

    def _greedy_tokens(self, hidden: Tensor) -> Tensor:
        return self.target.logits(hidden).argmax(dim=-1)

    def _block_loss(
        self, tokens: Tensor, features: Tensor, blocks: Blocks, mask: Any, read: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Weighted cross-entropy, and the share of blocks whose first k rows are all right, for k = 1 .. B - 1.

        read: [N, S, H], what the target's head reads; the total variation to what it gives there joins the loss.
        """
        n, a = blocks.anchors.shape
        embedded = self.target.embed(tokens.gather(1, blocks.anchors))  # [N, A, H]
        x = self.draft.block_input(embedded.flatten(0, 1)[:, None]).view(n, -1, embedded.shape[-1])
        hidden = self.draft(x, blocks.positions, BlockAttention(self.draft, features, mask))
        hidden = hidden.view(n, a, self.recipe.block_size, -1)[:, :, 1:]
        logits = self.target.logits(hidden.to(self.target.dtype)).float()
        losses = nn.functional.cross_entropy(logits.flatten(0, -2), blocks.labels.flatten(), reduction="none")
        losses, weights = losses.view_as(blocks.weights), blocks.weights
        if self.recipe.weighting == "acceptance":
            # Also a confident draft's last rows must go on learning.
            reached = torch.exp(-losses.detach()).cumprod(dim=-1)
            weights = weights * torch.cat([torch.ones_like(reached[:, :, :1]), reached[:, :, :-1]], -1).clamp(min=0.02)
        if read is not None:
            before = blocks.positions.view(n, a, -1)[:, :, :-1].flatten(1)
            theirs = self.target.logits(read.gather(1, before[..., None].expand(-1, -1, read.shape[-1]))).float()
            apart = (logits.softmax(-1) - theirs.view_as(logits).softmax(-1)).abs().sum(-1) / 2
            losses = losses + self.recipe.variation * apart
        right = (logits.detach().argmax(dim=-1) == blocks.labels).cummin(dim=-1).values.float().mean((0, 1))
        return (losses * weights).sum() / weights.sum(), right

    def _row(self, loss: Tensor, right: Tensor, seconds: float) -> dict[str, Any]:
        tokens = self.steps * self.recipe.rows * self.recipe.row_tokens
        return {
            "step": self.steps,
            "loss": round(loss.item(), 4),
            "acceptance_length_teacher_forced": round(1 + right.sum().item(), 3),
            "prefix_right": [round(r, 3) for r in right.tolist()],
            "tokens": tokens,
            "anchors": self.steps * self.recipe.rows * self.recipe.anchors,
            "seconds": round(seconds, 1),
        }
