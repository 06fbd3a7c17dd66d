"""The DFlash round: draft a block in one pass, verify it in one pass, keep what is right.

Paper: "DFlash: Block Diffusion for Flash Speculative Decoding", arXiv 2602.06036, section 3. A round starts at the
anchor, the last committed token, whose own keys and values exist in neither cache yet. Positions before it do, in
both. That holds after a prefill (the anchor is the prompt's last token), after any round, and after a rewind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash_core.draft import Draft
from dflash_core.sessions import Session
from dflash_core.target import Target
from dflash_core.verification import longest_right_prefix

Choose = Callable[[Tensor, Tensor], Tensor]
"""choose(logits [1, w, vocab], positions [1, w]) -> the target's own tokens [1, w]."""


@dataclass(frozen=True)
class Round:
    tokens: list[int]
    """The committed tokens: the accepted ones of the draft, then the bonus token, which is the next anchor."""
    accepted: int
    drafted: int


class BlockDecoder:
    """Runs a target and, where there is one, its draft over a session. Knows no request, no text, no policy."""

    prefill_chunk = 256
    """Prompt tokens of one unit of work: a cancelled or overtaken prefill ends within one chunk."""

    runtime = "plain"
    """How the work reaches the device, for health reports."""

    def __init__(self, target: Target, draft: Draft | None) -> None:
        self.target = target
        self.draft = draft
        self.block_size = draft.spec.block_size if draft else 1
        self._tapped = draft.spec.target_layer_ids if draft else ()

    @torch.inference_mode()
    def prefill(self, session: Session, tokens: Sequence[int]) -> None:
        """Writes the keys and values of both models for these tokens, behind the session's own."""
        positions = session.next_positions(len(tokens))
        self._read(session, torch.tensor([list(tokens)], device=positions.device), positions)
        session.commit(tokens)

    @torch.inference_mode()
    def round(self, session: Session, anchor: int, width: int, choose: Choose | None = None) -> Round:
        """One round from `anchor`; `width` is how many rows are verified, 1 for a step without the draft.

        `choose` draws the target's own tokens from its logits; without it they are its greedy ones.
        """
        block = self._draft_block(session, anchor)[:, :width] if width > 1 else self._tokens([anchor])
        positions = session.next_positions(width)
        hidden = self._read(session, block, positions)
        logits = self.target.logits(hidden)
        chosen = choose(logits, positions + 1) if choose else logits.argmax(dim=-1)
        accepted = int(longest_right_prefix(block, chosen))
        # Rows behind the last right one stay in the caches until the next round writes their positions again.
        session.commit(block[0, : accepted + 1].tolist())
        return Round(chosen[0, : accepted + 1].tolist(), accepted, width - 1)

    def prepare(self, session: Session, widths: Sequence[int]) -> None:
        """Does ahead of the first request what would make it wait: nothing here, captures on a device."""

    def _draft_block(self, session: Session, anchor: int) -> Tensor:
        """The anchor and the draft's block_size - 1 tokens after it, [1, block_size].

        The draft always runs at the width it was trained at, since every row of a block sees every other.
        """
        assert self.draft is not None
        tokens = self._tokens([anchor])
        positions = session.next_positions(self.block_size)
        x = self.draft.block_input(self.target.embed(tokens))
        hidden = self.draft(x, positions, session.draft_attention(positions))
        drafted = self.target.logits(hidden[:, 1:]).argmax(dim=-1)
        return torch.cat([tokens, drafted], dim=1)

    def _read(self, session: Session, tokens: Tensor, positions: Tensor) -> Tensor:
        """The target reads tokens [1, T]; its draft's context follows it. Returns the last hidden state [1, T, hidden].

        The block's own draft keys, written at these positions a moment ago, are overwritten by the context's.
        """
        hidden, features = self.target(tokens, positions, session.target_attention(positions), self._tapped)
        if self.draft is not None and session.draft_cache is not None:
            self.draft.write_context(features, positions, session.draft_cache)
        return hidden

    def _tokens(self, tokens: list[int]) -> Tensor:
        return torch.tensor([tokens], device=self.target.device)
