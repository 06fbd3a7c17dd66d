"""Tunes a target on packed rows: cross-entropy of the next token, what is due weighing most.

The target runs as it is (`dflash_core.target`), in bf16 on a GPU; a `Delta` in fp32 learns, and writes what it has
learned back after each step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dflash_core.errors import CheckpointError, DFlashError
from dflash_core.target import Target
from dflash_core.training.batches import ahead
from dflash_core.training.compilation import compile_layers, compiled
from dflash_core.training.delta import Delta
from dflash_core.training.packed_attention import PackedAttention, check_trainable, document_mask
from dflash_core.training.recipe import TargetRecipe, rate
from dflash_core.training.reports import Report
from dflash_core.training.shards import Rows, TokenShards, empty_row, join
from dflash_core.training.state import read_state, write_state

STATE = "state.pt"
DELTA = "delta.safetensors"
_LN2 = math.log(2)


@dataclass(frozen=True)
class Held:
    """Bits a token on held-out rows: of what is due, and of the rest of the text, read from left to right."""

    due: float
    rest: float


class TargetTrainer:
    def __init__(self, target: Target, recipe: TargetRecipe) -> None:
        check_trainable(target.spec.layers)
        self.target = target
        self.recipe = recipe
        self.delta = Delta(target, recipe.rank, recipe.seed)
        for name in self.delta.names:
            target.get_parameter(name).requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.delta.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.steps = 0
        self.seconds = 0.0
        compile_layers(target.layers, target.device)
        self._mask = compiled(document_mask, target.device)
        self._nll = compiled(self._token_losses, target.device)

    def train(
        self,
        shards: TokenShards,
        out: Path,
        *,
        held: Mapping[str, TokenShards] | None = None,
        report: Report = lambda row: None,
    ) -> None:
        """Runs the recipe, or the rest of it where `out` holds the state of an unfinished run.

        Reports the loss every `report_steps`, held-out bits every `held_steps`, and saves the delta and its state
        in `out` now and then. Raises DFlashError when the loss stops being a number; what was saved last stays.
        """
        recipe = self.recipe
        held_rows = {name: self._held_rows(each) for name, each in (held or {}).items()}
        batches = ahead(self._batches(shards))
        started, saved, before = None, time.monotonic(), self.seconds
        sums = torch.zeros(4, device=self.target.device)
        if held_rows and self.steps == 0:
            report(self._held_report(held_rows))
        while self.steps < recipe.max_steps and self.seconds < recipe.minutes * 60:
            share = max(self.seconds / (recipe.minutes * 60), self.steps / recipe.max_steps)
            sums += self.step(next(batches), share)
            if started is None and self.steps >= 3:  # compilation lies behind; the clock of the schedule starts
                _wait(self.target)
                started = time.monotonic()
            if started is not None:
                self.seconds = before + time.monotonic() - started
            if self.steps % recipe.report_steps == 0:
                report(self._loss_report(sums))
                sums.zero_()
                if time.monotonic() - saved > recipe.save_minutes * 60:
                    self.save(out)
                    saved = time.monotonic()
            if held_rows and self.steps % recipe.held_steps == 0:
                report(self._held_report(held_rows))
        if not torch.isfinite(sums).all():
            raise DFlashError(f"the loss is not a number after {self.steps} steps")
        self.save(out)
        if held_rows:
            report(self._held_report(held_rows))

    def step(self, rows: Rows, share: float) -> Tensor:
        """One optimizer step; `share` of the schedule done. Returns sums of losses and of tokens: due, due, rest, rest
        (nats)."""
        recipe = self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * rate(self.steps, recipe.warm_up_steps, share)
        rows = rows.to(self.target.device)
        counted, due = counted_and_due(rows)
        weights = torch.where(due, 1.0, recipe.rest_weight) * counted
        sums = torch.zeros(4, device=self.target.device)
        hidden = self._hidden(rows)
        total = weights.sum()
        loss = torch.zeros((), device=self.target.device)
        for own in self._parts(len(hidden)):
            labels = rows.tokens[own, 1:]
            losses = checkpoint(self._nll, hidden[own, :-1], labels, use_reentrant=False)
            assert isinstance(losses, Tensor)
            loss = loss + (losses * weights[own]).sum() / total
            sums += loss_sums(losses.detach(), counted[own], due[own])
        loss.backward()
        self.delta.pull(self.target)
        nn.utils.clip_grad_norm_(self.delta.parameters(), recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.delta.push(self.target)
        self.steps += 1
        return sums

    @torch.no_grad()
    def held_out(self, rows: list[Rows]) -> Held:
        sums = torch.zeros(4, device=self.target.device)
        for each in rows:
            each = each.to(self.target.device)
            counted, due = counted_and_due(each)
            hidden = self._hidden(each)
            for own in self._parts(len(hidden)):
                losses = self._nll(hidden[own, :-1], each.tokens[own, 1:])
                sums += loss_sums(losses, counted[own], due[own])
        due_loss, due_count, rest_loss, rest_count = sums.tolist()
        return Held(due_loss / max(due_count, 1) / _LN2, rest_loss / max(rest_count, 1) / _LN2)

    def save(self, out: Path) -> None:
        """The delta, small, and the state to go on from, which is not. Neither when the delta is not finite."""
        facts = {"steps": self.steps, "seconds": round(self.seconds, 1), "recipe": asdict(self.recipe)}
        self.delta.save(out / DELTA, facts=facts)
        state = {
            "target": self.delta.identity,
            "rank": self.recipe.rank,
            "steps": self.steps,
            "seconds": self.seconds,
            "learned": self.delta.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        write_state(state, out / STATE)

    def resume(self, out: Path) -> bool:
        """Takes up the state in `out`, if there is one. Raises CheckpointError when it is of another target."""
        file = out / STATE
        if not file.exists():
            return False
        state = read_state(file, self.target.device)
        if state.get("target") != self.delta.identity:
            raise CheckpointError(f"{file} is the state of another target")
        if state["rank"] != self.recipe.rank:
            raise CheckpointError(f"{file} has rank {state['rank']}, not {self.recipe.rank}")
        self.delta.load_state_dict(state["learned"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps, self.seconds = state["steps"], state["seconds"]
        self.delta.push(self.target)
        return True

    def start_from(self, file: Path) -> None:
        """Begins with a saved delta: a warm start, with a schedule of its own."""
        self.delta.load(file)
        self.delta.push(self.target)

    def _batches(self, shards: TokenShards) -> Iterator[Rows]:
        recipe = self.recipe
        batches = shards.batches(recipe.rows, recipe.row_tokens, recipe.seed, recipe.long_due, recipe.long_times)
        for _ in range(self.steps):  # those that an earlier run has seen
            next(batches)
        return batches

    def _held_rows(self, shards: TokenShards) -> list[Rows]:
        """Held-out rows in batches of the size that is trained on: another shape would be compiled anew."""
        source = shards.rows(self.recipe.row_tokens, seed=1, passes=1)
        rows = [row for row, _ in zip(source, range(self.recipe.held_rows), strict=False)]
        rows += [empty_row(self.recipe.row_tokens)] * (-len(rows) % self.recipe.rows)
        return [join(rows[begin : begin + self.recipe.rows]) for begin in range(0, len(rows), self.recipe.rows)]

    def _parts(self, rows: int) -> list[slice]:
        """Rows whose logits are held at once."""
        return [slice(begin, begin + self.recipe.head_rows) for begin in range(0, rows, self.recipe.head_rows)]

    def _hidden(self, rows: Rows) -> Tensor:
        positions = torch.arange(rows.tokens.shape[1], device=rows.tokens.device).expand_as(rows.tokens)
        windows = {layer.spec.window for layer in self.target.layers}
        attend = PackedAttention({window: self._mask(rows.documents, window) for window in windows})
        hidden, _ = self.target(rows.tokens, positions, attend)
        assert isinstance(hidden, Tensor)
        return hidden

    def _token_losses(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """hidden: [N, S, H], labels: [N, S] -> [N, S] nats."""
        logits = self.target.logits(hidden).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)

    def _loss_report(self, sums: Tensor) -> dict[str, Any]:
        due_loss, due_count, rest_loss, rest_count = sums.tolist()
        if not math.isfinite(due_loss + rest_loss):
            raise DFlashError(f"the loss is not a number after {self.steps} steps")
        return {
            "step": self.steps,
            "due_bits": round(due_loss / max(due_count, 1) / _LN2, 4),
            "rest_bits": round(rest_loss / max(rest_count, 1) / _LN2, 4),
            "tokens": self.steps * self.recipe.rows * self.recipe.row_tokens,
            "seconds": round(self.seconds, 1),
        }

    def _held_report(self, held: dict[str, list[Rows]]) -> dict[str, Any]:
        found = {name: asdict(self.held_out(rows)) for name, rows in held.items()}
        rounded = {name: {key: round(bits, 4) for key, bits in each.items()} for name, each in found.items()}
        return {"step": self.steps, "seconds": round(self.seconds, 1), "held": rounded}


def counted_and_due(rows: Rows) -> tuple[Tensor, Tensor]:
    """Which labels count, and which of them are due. [N, S - 1]; label i is token i + 1, given those before it."""
    inside = (rows.documents[:, 1:] == rows.documents[:, :-1]) & (rows.documents[:, 1:] >= 0)
    return inside, rows.due[:, 1:] & inside


def loss_sums(losses: Tensor, counted: Tensor, due: Tensor) -> Tensor:
    rest = counted & ~due
    return torch.stack([(losses * due).sum(), due.sum(), (losses * rest).sum(), rest.sum()]).float()


def _wait(target: Target) -> None:
    if target.device.type == "cuda":
        torch.cuda.synchronize()
