"""The round of `block_decoder` on a CUDA device: the same steps over static buffers, by kernels, in captured graphs.

What a round needs to know lies on the device: the session's length and the addresses of its keys and values (`_state`),
the anchor and the drafted tokens (`_block`). The verify graph ends by accepting there and moving both on, so that the
draft of the next round is launched before the host has seen the result of this one; one small copy a round brings it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from dflash_core.block_decoder import BlockDecoder, Choose, Round
from dflash_core.draft import Draft
from dflash_core.kernel_stack import CHUNKS, ContextWriter, Stack
from dflash_core.kernels import MOST_ROWS
from dflash_core.kernels.many_rows import rms_norm
from dflash_core.kernels.skinny_linear import HalfNormed, column_tiles, skinny_argmax
from dflash_core.kernels.verification import accept, argmax_of_tiles
from dflash_core.kv_cache import capacity_for
from dflash_core.layers.stored_weights import Mxfp4Experts
from dflash_core.policy import verify_widths
from dflash_core.sessions import Session
from dflash_core.stage import Stage, Taps, addresses
from dflash_core.target import Target
from dflash_core.verification import longest_right_prefix


class CudaDecoder(BlockDecoder):
    """A BlockDecoder whose work is captured; `context` is the longest session it will see, in positions."""

    prefill_chunk = CHUNKS[-1]
    runtime = "captured graphs"

    def __init__(self, target: Target, draft: Draft | None, context: int) -> None:
        super().__init__(target, draft)
        for experts in [module for module in target.modules() if isinstance(module, Mxfp4Experts)]:
            experts.fold()
        device = target.device
        capacity = capacity_for(context + self.block_size)
        self._block = torch.zeros(MOST_ROWS, dtype=torch.int64, device=device)
        taken, others = target.stages[0], target.stages[1:]
        further = len(draft.layers) if draft else 0
        self._first = first = Stage(target, taken, self._tapped, capacity, self.block_size, further, (self._block,))
        self._stages = [first, *(Stage(target, taken, self._tapped, capacity, self.block_size) for taken in others)]
        self.graphs = first.graphs
        self._state, self._length, self._count, self._counts = first.state, first.length, first.count, first.counts
        self._prompt = torch.zeros(CHUNKS[-1], dtype=torch.int64, device=device)
        self._chosen = torch.zeros(MOST_ROWS, dtype=torch.int64, device=device)
        self._result = torch.zeros(1 + MOST_ROWS, dtype=torch.int64, device=device)
        self._hidden = torch.zeros(MOST_ROWS, target.spec.hidden_size, dtype=target.dtype, device=device)
        cuda = device.type == "cuda"
        self._host_state = torch.zeros_like(self._state, device="cpu", pin_memory=cuda)
        self._host_block = torch.zeros(1, dtype=torch.int64, pin_memory=cuda)
        self._host_prompt = torch.zeros_like(self._prompt, device="cpu", pin_memory=cuda)
        self._host_result = torch.zeros_like(self._result, device="cpu", pin_memory=cuda)
        self._arrived = torch.cuda.Event() if cuda else None
        """The result of a round is in the host's buffer."""
        self._taken = torch.cuda.Event() if cuda else None
        """The device has read what the host uploaded for the last chunk."""
        self._best, self._indices = _argmax_room(target)
        if draft:
            where = self._state[first.own :]
            self._draft_stack = Stack(
                list(draft.layers),
                draft.norm.weight,
                draft.rotary,
                None,
                where,
                capacity,
                self.block_size,
                target.dtype,
            )
            self._taps = Taps(self._stages, self._tapped)
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
        self._verify(wide)
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
        self._verify(width)

    @torch.inference_mode()
    def experts_read(self, width: int) -> float:
        """Different experts that so many rows of the block on the device pick, mean of all mixtures; 0 without any."""
        picked = []
        self._first.stack.embed(self._block[:width], self.target.embed_tokens)
        for before, stage in zip([None, *self._stages], self._stages, strict=False):
            if before:
                stage.follow(before, width)
            for layer in stage.layers:
                with torch.cuda.device(stage.device) if stage.device.type == "cuda" else nullcontext():
                    stage.stack.few(layer, width, stage.length, stage.counts[width])
                if stage.stack.routing and layer.spec.mixture:
                    picked.append(float((stage.stack.routing.counts > 0).sum()))
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
            caches = [(session.target_cache, self._first.taken)]
            if session.draft_cache:
                caches.append((session.draft_cache, range(len(session.draft_cache.specs))))
            self._host_state[2:] = torch.tensor(
                [address for cache, layers in caches for address in addresses(cache, layers)]
            )
            for stage in self._stages[1:]:
                stage.point_at(session.target_cache)
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
        def choose_and_accept() -> None:
            self._argmax(self._first.stack.normed(width), self._chosen[:width])
            accept(self._block, self._chosen[:width], self._length, self._result)
            self._host_result.copy_(self._result, non_blocking=True)

        self._read_few(f"verify {width}", self._block[:width], choose_and_accept)

    def _hidden_rows(self, width: int) -> None:
        norm = self.target.norm

        def keep_normed() -> None:
            rms_norm(self._first.stack.rows(width), norm.weight, self._hidden[:width], norm.eps)

        self._read_few(f"hidden {width}", self._block[:width], keep_normed)

    def _read_few(self, name: str, tokens: Tensor, then: Callable[[], None] | None = None) -> None:
        """The target reads a few rows; the draft's context follows it.

        Without `then`, which works on the rows that come out, as many rows are real as the host said.
        """
        rows = tokens.shape[0]

        def begin() -> None:
            self._first.stack.embed(tokens, self.target.embed_tokens)

        def pass_through(stage: Stage) -> None:
            stage.few(rows, stage.counts[rows] if then else stage.count)

        def end() -> None:
            if self.draft:
                features = self._taps.joined(rows)
                self._context.few(features, self._length, self._counts[rows] if then else self._count)
            if then:
                then()

        self._through(name, rows, begin, pass_through, end)

    def _read_many(self, name: str, rows: int) -> None:
        def begin() -> None:
            self._first.stack.embed(self._prompt[:rows], self.target.embed_tokens)

        def end() -> None:
            if self.draft:
                self._context.many(self._taps.joined(rows), self._length, self._count)

        self._through(name, rows, begin, lambda stage: stage.many(rows), end)

    def _through(
        self,
        name: str,
        rows: int,
        begin: Callable[[], None],
        pass_through: Callable[[Stage], None],
        end: Callable[[], None],
    ) -> None:
        """One pass through all stages: a graph of all where there is one stage, else one a stage and one for the end,
        which is the first device's as the beginning is."""
        first, last = self._first, self._stages[-1]

        def begin_and_pass() -> None:
            begin()
            pass_through(first)

        def whole() -> None:
            begin_and_pass()
            end()

        if first is last:
            return self.graphs.run(name, whole)
        self.graphs.run(name, begin_and_pass)
        for before, stage in itertools.pairwise(self._stages):
            stage.follow(before, rows)
            stage.graphs.run(name, partial(pass_through, stage))
        first.stack.receive(last.stack, rows)
        if self.draft:
            self._taps.collect(rows)
        self.graphs.run(f"{name}, its end", end)

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
            self._read_few(f"forced {rows}", self._prompt[:rows])
        else:
            rows = next(size for size in CHUNKS if size >= count)
            self._read_many(f"prefill {rows}", rows)
        session.commit(tokens)

    def _sampled_round(self, session: Session, width: int, choose: Choose) -> Round:
        """The target's choice needs all logits here, so it is made outside the graph.

        It is made for equally many rows at every width: products and running sums of another shape may add in another
        order, and then the same seed would not give the same text with and without the draft.
        """
        wide = self._captured_width(width)
        self._hidden_rows(wide)
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


def _head(target: Target) -> Tensor:
    return target.lm_head.weight if target.lm_head is not None else target.embed_tokens


def _argmax_room(target: Target) -> tuple[Tensor, Tensor]:
    tiles = column_tiles(target.spec.vocab_size)
    best = torch.zeros(tiles, MOST_ROWS, dtype=torch.float32, device=target.device)
    return best, torch.zeros(tiles, MOST_ROWS, dtype=torch.int32, device=target.device)
