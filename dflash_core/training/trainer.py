"""The training loop of a draft: features from the frozen target, blocks at random anchors, weighted cross-entropy.

The target's embedding and head are shared and frozen; what is learned are the draft's layers, its feature projection,
and one vector for the mask.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dflash_core.checkpoints.draft import save_draft
from dflash_core.configs import check_pair, draft_spec
from dflash_core.draft import Draft
from dflash_core.errors import DFlashError
from dflash_core.target import Target
from dflash_core.training.blocks import (
    BlockAttention,
    Blocks,
    block_mask,
    make_blocks,
    packed_causal_attention,
    sample_anchors,
)
from dflash_core.training.recipe import DraftRecipe
from dflash_core.training.shards import TokenShards

Report = Callable[[dict[str, Any]], None]


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
        self.target = target
        self.recipe = recipe
        self.draft = draft or new_draft(target, recipe)
        self.optimizer = torch.optim.AdamW(
            self.draft.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.steps = 0
        # A GPU fed from Python is launch-bound without compilation; a CPU run (the tests) is small and goes without.
        compiled = target.device.type == "cuda"
        self._read_target = torch.compile(self._features_and_greedy) if compiled else self._features_and_greedy
        self._loss = torch.compile(self._block_loss) if compiled else self._block_loss
        self._mask = torch.compile(block_mask) if compiled else block_mask

    def train(self, shards: TokenShards, report: Report = lambda row: None, out: Path | None = None) -> Draft:
        """Runs the recipe over the shards; reports every 100 steps; saves to `out` now and then and at the end.

        Raises DFlashError when the loss stops being a number; what was saved last stays.
        """
        batches = _ahead(shards.batches(self.recipe.rows, self.recipe.row_tokens, self.recipe.seed))
        started: float | None = None
        saved = time.monotonic()
        while self.steps < self.recipe.max_steps:
            share = (time.monotonic() - started) / (self.recipe.minutes * 60) if started is not None else 0.0
            if share >= 1:
                break
            share = max(share, self.steps / self.recipe.max_steps)
            measured = self.steps % 100 == 0
            loss, matrix = self.step(next(batches), share, measured)
            if measured:
                if not math.isfinite(loss.item()):
                    raise DFlashError(f"the loss is not a number after {self.steps} steps")
                seconds = time.monotonic() - started if started is not None else 0.0
                report(self._row(loss, matrix, seconds))
            if self.steps == 3:  # compilation lies behind; the clock of the schedule starts here
                started = time.monotonic()
            if out is not None and time.monotonic() - saved > 120:
                save_draft(self.draft, out)
                saved = time.monotonic()
        if out is not None:
            save_draft(self.draft, out)
        return self.draft

    def step(self, tokens: Tensor, share: float, measured: bool = False) -> tuple[Tensor, Tensor]:
        """One optimizer step on a batch [N, S]; `share` of the schedule done. Returns loss and rows right, [B - 1]."""
        recipe, device = self.recipe, self.target.device
        rate = min(1.0, (self.steps + 1) / recipe.warm_up_steps) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * rate
        tokens = tokens.to(device, non_blocking=True)
        with torch.no_grad():
            features, greedy = self._read_target(tokens)
        anchors = sample_anchors(tokens, recipe.anchors, recipe.block_size)
        blocks = make_blocks(tokens, greedy, anchors, recipe.block_size, recipe.decay, recipe.off_path_weight)
        mask = self._mask(anchors, recipe.row_tokens, recipe.block_size)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, right = self._loss(tokens, features, blocks, mask)
        loss.backward()
        nn.utils.clip_grad_norm_(self.draft.parameters(), recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return loss.detach(), right

    def _features_and_greedy(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Features [N, S, K * H] and the target's argmax after every position [N, S]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        hidden, features = self.target(tokens, positions, packed_causal_attention, self.draft.spec.target_layer_ids)
        assert features is not None
        # A few rows at a time: the logits of a whole batch would not fit.
        greedy = torch.cat([self.target.logits(part).argmax(dim=-1) for part in hidden.split(8)])
        return features, greedy

    def _block_loss(self, tokens: Tensor, features: Tensor, blocks: Blocks, mask: Any) -> tuple[Tensor, Tensor]:
        """Weighted cross-entropy, and the share of blocks whose first k rows are all right, for k = 1 .. B - 1."""
        n, a = blocks.anchors.shape
        embedded = self.target.embed(tokens.gather(1, blocks.anchors))  # [N, A, H]
        x = self.draft.block_input(embedded.flatten(0, 1)[:, None]).view(n, -1, embedded.shape[-1])
        hidden = self.draft(x, blocks.positions, BlockAttention(self.draft, features, mask))
        hidden = hidden.view(n, a, self.recipe.block_size, -1)[:, :, 1:]
        logits = self.target.logits(hidden.to(self.target.dtype)).float()
        losses = nn.functional.cross_entropy(logits.flatten(0, -2), blocks.labels.flatten(), reduction="none")
        right = (logits.detach().argmax(dim=-1) == blocks.labels).cummin(dim=-1).values.float().mean((0, 1))
        return (losses.view_as(blocks.weights) * blocks.weights).sum() / blocks.weights.sum(), right

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


def _ahead(batches: Iterator[Tensor], depth: int = 8) -> Iterator[Tensor]:
    """Prepares batches in a thread of their own, so that the device does not wait for the disk."""
    ready: queue.Queue[Tensor | Exception] = queue.Queue(depth)

    def fill() -> None:
        try:
            for batch in batches:
                ready.put(batch.pin_memory() if torch.cuda.is_available() else batch)
        except Exception as error:  # handed to the loop, which raises it
            ready.put(error)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        batch = ready.get()
        if isinstance(batch, Exception):
            raise batch
        yield batch
