"""The round of `block_decoder` on a CUDA device: the same steps over static buffers, by kernels, in captured graphs.

What a round needs to know lies on the device: the session's length and the addresses of its keys and values (`_state`),
the anchor and the drafted tokens (`_block`). The verify graph ends by accepting there and moving both on, so that the
draft of the next round is launched before the host has seen the result of this one; one small copy a round brings it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from dflash_core.block_decoder import BlockDecoder, Choose, Round
from dflash_core.draft import Draft
from dflash_core.graphs import Graphs
from dflash_core.kernel_stack import CHUNKS, ContextWriter, Stack
from dflash_core.kernels import MOST_ROWS
from dflash_core.kernels.many_rows import rms_norm
from dflash_core.kernels.skinny_linear import HalfNormed, column_tiles, skinny_argmax
from dflash_core.kernels.verification import accept, argmax_of_tiles
from dflash_core.kv_cache import KVCache, capacity_for
from dflash_core.policy import verify_widths
from dflash_core.sessions import Session
from dflash_core.target import Target
from dflash_core.verification import longest_right_prefix


class CudaDecoder(BlockDecoder):
    """A BlockDecoder whose work is captured; `context` is the longest session it will see, in positions."""

    prefill_chunk = CHUNKS[-1]
    runtime = "captured graphs"

    def __init__(self, target: Target, draft: Draft | None, context: int) -> None:
        super().__init__(target, draft)
        device = target.device
        capacity = capacity_for(context + self.block_size)
        tables = 2 * (len(target.layers) + (len(draft.layers) if draft else 0))
        self._state = torch.zeros(2 + tables, dtype=torch.int64, device=device)
        self._length, self._count = self._state[:1], self._state[1:2]
        self._block = torch.zeros(MOST_ROWS, dtype=torch.int64, device=device)
        self._prompt = torch.zeros(CHUNKS[-1], dtype=torch.int64, device=device)
        self._chosen = torch.zeros(MOST_ROWS, dtype=torch.int64, device=device)
        self._result = torch.zeros(1 + MOST_ROWS, dtype=torch.int64, device=device)
        self._hidden = torch.zeros(MOST_ROWS, target.spec.hidden_size, dtype=target.dtype, device=device)
        self._counts = {w: torch.tensor([w], device=device) for w in range(1, MOST_ROWS + 1)}
        cuda = device.type == "cuda"
        self._host_state = torch.zeros_like(self._state, device="cpu", pin_memory=cuda)
        self._host_block = torch.zeros(1, dtype=torch.int64, pin_memory=cuda)
        self._host_prompt = torch.zeros_like(self._prompt, device="cpu", pin_memory=cuda)
        self._host_result = torch.zeros_like(self._result, device="cpu", pin_memory=cuda)
        self._arrived = torch.cuda.Event() if cuda else None
        """The result of a round is in the host's buffer."""
        self._taken = torch.cuda.Event() if cuda else None
        """The device has read what the host uploaded for the last chunk."""
        self.graphs = Graphs(device, kept=(self._state, self._block))

        split = 2 + 2 * len(target.layers)
        self._target_stack = Stack(
            target.layers,
            target.norm,
            target.rotary,
            target.window_rotary,
            self._state[2:split],
            capacity,
            self.block_size,
            target,
        )
        self._best, self._indices = _argmax_room(target)
        if draft:
            self._draft_stack = Stack(
                draft.layers, draft.norm, draft.rotary, None, self._state[split:], capacity, self.block_size, target
            )
            self._features = torch.zeros(
                CHUNKS[-1], len(self._tapped) * target.spec.hidden_size, dtype=target.dtype, device=device
            )
            self._context = ContextWriter(draft, self._draft_stack, target)
            self._mask_embedding = draft.mask_embedding.to(target.dtype)
        self._addressed: weakref.ref[Session] | None = None
        """Session whose addresses the device holds."""
        self._known: tuple[weakref.ref[Session], int, int] | None = None
        """Session, length and anchor that the device holds, where it holds what the host would upload."""
        self._drafted = False
        """Whether the block behind the known anchor is already drafted."""

    # -- what an engine asks for ---------------------------------------------------------------------------------

    @torch.inference_mode()
    def prefill(self, session: Session, tokens: Sequence[int]) -> None:
        for start in range(0, len(tokens), self.prefill_chunk):
            self._prefill_chunk(session, tokens[start : start + self.prefill_chunk])

    @torch.inference_mode()
    def round(self, session: Session, anchor: int, width: int, choose: Choose | None = None) -> Round:
        """See `BlockDecoder.round`. The draft of the next round is on its way when this returns."""
        self._upload(session, anchor)
        if width > 1 and not self._drafted:
            self.graphs.run("draft", self._draft_rows)
        if choose is not None:
            return self._sampled_round(session, width, choose)
        wide = self._captured_width(width)
        self.graphs.run(f"verify {wide}", lambda: self._verify(wide))
        if self._arrived:
            self._arrived.record()
        if width > 1:
            self.graphs.run("draft", self._draft_rows)
        if self._arrived:
            self._arrived.synchronize()
        accepted, *chosen = self._host_result[: 1 + width].tolist()
        kept = min(accepted, width - 1)
        session.commit([anchor, *chosen[:kept]])
        # A round that ran wider than asked for may have accepted more than is wanted: the device is ahead then.
        self._known = (weakref.ref(session), session.length, chosen[kept]) if kept == accepted else None
        self._drafted = width > 1 and self._known is not None
        return Round(chosen[: kept + 1], kept, width - 1)

    def prepare(self, session: Session, widths: Sequence[int]) -> None:
        """Captures what serving needs, so that no request waits for it."""
        for rows in (1, MOST_ROWS, *CHUNKS):
            if rows <= session.context:
                self.prefill(session, [0] * rows)
                session.rewind(0)
        for width in widths:
            self.round(session, 0, width)
            session.rewind(0)

    @property
    def context_bytes(self) -> int:
        """Weights held a second time, joined, so that a draft's context is injected into all layers at once."""
        return self._context.nbytes if self.draft else 0

    @torch.inference_mode()
    def verify_again(self, width: int) -> None:
        """The verify of a width that was captured, over the block that lies on the device: for measurements."""
        self.graphs.run(f"verify {width}", lambda: self._verify(width))

    @torch.inference_mode()
    def experts_read(self, width: int) -> float:
        """Different experts that so many rows of the block on the device pick, mean of all mixtures; 0 without any."""
        stack, picked = self._target_stack, []
        stack.embed(self._block[:width], self.target.embed_tokens)
        for layer in self.target.layers:
            stack.few(layer, width, self._length, self._counts[width])
            if stack.routing and layer.spec.mixture:
                picked.append(float((stack.routing.counts > 0).sum()))
        return sum(picked) / len(picked) if picked else 0.0

    # -- the device's view of a session --------------------------------------------------------------------------

    def _upload(self, session: Session, anchor: int | None = None, count: int = 0) -> None:
        known = self._known
        if known and known[0]() is session and known[1:] == (session.length, anchor):
            return
        if self._taken:  # what was uploaded last may still lie in the host's buffers
            self._taken.synchronize()
        self._host_state[0], self._host_state[1] = session.length, count
        changed = 2
        if self._addressed is None or self._addressed() is not session:
            caches = [session.target_cache, *([session.draft_cache] if session.draft_cache else [])]
            self._host_state[2:] = torch.tensor([address for cache in caches for address in _addresses(cache)])
            self._addressed = weakref.ref(session)
            changed = len(self._host_state)
        self._state[:changed].copy_(self._host_state[:changed], non_blocking=True)
        if anchor is not None:
            self._host_block[0] = anchor
            self._block[:1].copy_(self._host_block, non_blocking=True)
            self._known = (weakref.ref(session), session.length, anchor)
        else:
            self._known = None
        self._drafted = False

    # -- graphs --------------------------------------------------------------------------------------------------

    def _draft_rows(self) -> None:
        assert self.draft is not None
        stack, rows = self._draft_stack, self.block_size
        stack.embed(self._block[:rows], self.target.embed_tokens, self._mask_embedding)
        for layer in self.draft.layers:
            stack.few(layer, rows, self._length, self._counts[rows])
        self._argmax(stack.normed(rows), self._block[:rows], skipped=1)

    def _verify(self, width: int) -> None:
        self._read_few(self._block[:width], self._counts[width])
        self._argmax(self._target_stack.normed(width), self._chosen[:width])
        accept(self._block, self._chosen[:width], self._length, self._result)
        self._host_result.copy_(self._result, non_blocking=True)

    def _hidden_rows(self, width: int) -> None:
        self._read_few(self._block[:width], self._counts[width])
        rms_norm(self._target_stack.rows(width), self.target.norm.weight, self._hidden[:width], self.target.norm.eps)

    def _read_few(self, tokens: Tensor, count: Tensor) -> None:
        """The target reads a few rows; the draft's context follows it."""
        stack, rows = self._target_stack, tokens.shape[0]
        stack.embed(tokens, self.target.embed_tokens)
        for layer in self.target.layers:
            stack.few(layer, rows, self._length, count, tap=self._tap(layer.index, rows))
        if self.draft:
            self._context.few(self._features[:rows], self._length, count)

    def _read_many(self, rows: int) -> None:
        stack = self._target_stack
        stack.embed(self._prompt[:rows], self.target.embed_tokens)
        for layer in self.target.layers:
            stack.many(layer, rows, self._length, self._count)
            tap = self._tap(layer.index, rows)
            if tap is not None:
                tap.copy_(stack.rows(rows))
        if self.draft:
            self._context.many(self._features[:rows], self._length, self._count)

    def _tap(self, layer: int, rows: int) -> Tensor | None:
        if layer not in self._tapped:
            return None
        hidden, at = self.target.spec.hidden_size, self._tapped.index(layer)
        return self._features[:rows, at * hidden : (at + 1) * hidden]

    def _argmax(self, x: HalfNormed, chosen: Tensor, skipped: int = 0) -> None:
        skinny_argmax(x, _head(self.target), self._best, self._indices)
        argmax_of_tiles(self._best, self._indices, chosen, skipped)

    # -- pieces of the above that need the host ------------------------------------------------------------------

    def _prefill_chunk(self, session: Session, tokens: Sequence[int]) -> None:
        count = len(tokens)
        self._upload(session, count=count)
        self._host_prompt[:count] = torch.tensor(list(tokens))
        self._prompt[:count].copy_(self._host_prompt[:count], non_blocking=True)
        if self._taken:
            self._taken.record()
        if count <= MOST_ROWS:  # an edit: forced rows of a block
            rows = self.block_size if count <= self.block_size else MOST_ROWS
            self.graphs.run(f"forced {rows}", lambda: self._read_few(self._prompt[:rows], self._count))
        else:
            rows = next(size for size in CHUNKS if size >= count)
            self.graphs.run(f"prefill {rows}", lambda: self._read_many(rows))
        session.commit(tokens)

    def _sampled_round(self, session: Session, width: int, choose: Choose) -> Round:
        """The target's choice needs all logits here, so it is made outside the graph.

        It is made for equally many rows at every width: products and running sums of another shape may add in another
        order, and then the same seed would not give the same text with and without the draft.
        """
        wide = self._captured_width(width)
        self.graphs.run(f"hidden {wide}", lambda: self._hidden_rows(wide))
        positions = session.length + torch.arange(MOST_ROWS, device=self._hidden.device)
        chosen = choose(self.target.logits(self._hidden[None]), positions[None] + 1)[:, :width]
        accepted = longest_right_prefix(self._block[None, :width], chosen)
        kept, *both = torch.cat([accepted, chosen[0]]).tolist()
        anchor_and_accepted = self._block[: kept + 1].tolist()
        session.commit(anchor_and_accepted)
        self._known, self._drafted = None, False
        return Round(both[: kept + 1], kept, width - 1)

    def _captured_width(self, width: int) -> int:
        """The narrowest captured width that holds so many rows."""
        return next(w for w in verify_widths(self.block_size) if w >= width)


def _addresses(cache: KVCache) -> list[int]:
    return [t.data_ptr() for pair in zip(cache.keys, cache.values, strict=True) for t in pair]


def _head(target: Target) -> Tensor:
    return target.lm_head.weight if target.lm_head is not None else target.embed_tokens


def _argmax_room(target: Target) -> tuple[Tensor, Tensor]:
    tiles = column_tiles(target.spec.vocab_size)
    best = torch.zeros(tiles, MOST_ROWS, dtype=torch.float32, device=target.device)
    return best, torch.zeros(tiles, MOST_ROWS, dtype=torch.int32, device=target.device)
