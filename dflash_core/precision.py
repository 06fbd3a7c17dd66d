"""Which precision serves a pair on this CPU: what each costs here is measured, and its text is held to that of fp32.

Few rows are bound by reading weights and a prompt by arithmetic, and processors differ in both by more than the
precisions do among themselves: int8 was measured five times slower than fp32 on one and twice as quick on another. So
nothing is known before it is tried with the weights that will serve.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dflash_core.block_decoder import BlockDecoder
from dflash_core.checkpoints.draft import load_draft
from dflash_core.draft import Draft
from dflash_core.engine import Precision, load_in_precision, refuse_packing, serving_dtype
from dflash_core.errors import DFlashError
from dflash_core.layers.packed_linear import PackedInt4, PackedInt8, Packing, pack_target
from dflash_core.memory_ladder import is_out_of_memory
from dflash_core.policy import DraftPolicy
from dflash_core.sessions import Session
from dflash_core.target import Target

MOST_BYTES = 1 << 29
"""Of a target's weight files: a larger one would take minutes to measure, and is served unmeasured."""

LEAST_AGREEMENT = 0.98
MOST_LOSS = 0.005
"""A precision is refused that gives fewer of fp32's greedy tokens, or more bits a token by a larger share."""

READ_TOKENS, WRITTEN_TOKENS = 64, 30
"""A completion as an editor asks for it: what of the prompt is not reused, and what is generated."""

_WARM_CONTEXT = 128
_TRIES = 2  # of each cost, the quickest counts: processor time hardly knows what else the machine does
_HEAD_ROWS = 16  # logits of so many rows at once: more are not needed, and the packed head is made for few


@dataclass(frozen=True)
class PrecisionCost:
    """One precision. Milliseconds are of processor time, all threads together.

    read_ms: READ_TOKENS prompt tokens behind a warm context. round_ms: by rows verified, 1 without the draft.
    completion_ms: what one completion is expected to take. agreement: share of fp32's greedy tokens; loss: bits a
    token over fp32's, as a share; both None where the precision was too slow to be looked at further.
    refused: why it must not serve, "" when it may.
    """

    precision: str
    read_ms: float = 0.0
    round_ms: dict[int, float] | None = None
    completion_ms: float = math.inf
    agreement: float | None = None
    loss: float | None = None
    refused: str = ""

    @property
    def tokens_per_s(self) -> float:
        """Expected tokens a second of processor time, reading the prompt included."""
        return WRITTEN_TOKENS / self.completion_ms * 1000


@dataclass(frozen=True)
class PrecisionChoice:
    """picked: the precision to serve. reason: why, one line. costs: what was measured, fp32 first."""

    picked: Precision
    reason: str
    costs: tuple[PrecisionCost, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def choose_precision(
    target_path: Path,
    draft_path: Path | None,
    sample: Sequence[int],
    *,
    rotary_base: float | None = None,
    candidates: Sequence[Precision] = ("int4", "int8"),
    progress: Callable[[str], None] = lambda what: None,
) -> PrecisionChoice:
    """Tries fp32, bf16 where the processor computes in it, and the candidates; picks the quickest that may serve.

    sample: token ids of a text like those that will come, some hundreds. Takes a few seconds. Raises DFlashError for
    a pair that cannot be loaded at all.
    """
    own = _name(serving_dtype(torch.device("cpu")))
    size = sum(file.stat().st_size for file in target_path.glob("*.safetensors"))
    if size > MOST_BYTES:
        return PrecisionChoice(own, f"not measured: the target's weights are {size >> 20} MB")
    native: list[Precision] = [] if own == "float32" else [own]
    try:
        return _measured(target_path, draft_path, sample, rotary_base, [*native, *candidates], progress)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return PrecisionChoice(own, "not measured: out of memory")


def _measured(
    target_path: Path,
    draft_path: Path | None,
    sample: Sequence[int],
    rotary_base: float | None,
    candidates: Sequence[Precision],
    progress: Callable[[str], None],
) -> PrecisionChoice:
    progress("float32")
    first = _Pair.load(target_path, draft_path, rotary_base, "float32")
    truth = first.text(sample)
    costs = [replace(first.cost(sample), agreement=1.0, loss=0.0)]
    best = costs[0].completion_ms
    for name in candidates:
        progress(name)
        try:
            if name in ("int8", "int4"):
                pair = first.packed(name)
            else:
                pair = _Pair.load(target_path, draft_path, rotary_base, name)
        except DFlashError as error:
            costs.append(PrecisionCost(name, refused=str(error)))
            continue
        cost = pair.cost(sample)
        if cost.completion_ms < best:  # or it would not be picked anyhow
            cost = _held_to(truth, pair.text(sample), cost)
        costs.append(cost)
        if not cost.refused:
            best = min(best, cost.completion_ms)
        del pair
    return _quickest(tuple(costs))


@dataclass(frozen=True)
class _Text:
    """What a precision makes of the sample: its greedy token after every position, and bits a token."""

    greedy: Tensor
    bits: float


@dataclass(frozen=True)
class _Pair:
    """A pair in one precision."""

    name: Precision
    target: Target
    draft: Draft | None

    @classmethod
    def load(cls, target_path: Path, draft_path: Path | None, rotary_base: float | None, name: Precision) -> _Pair:
        target = load_in_precision(target_path, name, torch.device("cpu"))
        return cls(name, target, load_draft(draft_path, target, rotary_base=rotary_base) if draft_path else None)

    def packed(self, packing: Packing) -> _Pair:
        """The same pair with its target packed; what is not packed is shared. Raises DFlashError."""
        refuse_packing(self.target, packing)
        target = copy.deepcopy(self.target, {id(weight): weight for weight in self.target.parameters()})
        pack_target(target, packing)
        return _Pair(packing, target, self.draft)

    def cost(self, sample: Sequence[int]) -> PrecisionCost:
        decoder = BlockDecoder(self.target, self.draft)
        session = Session(self.target, self.draft, len(sample) + 1)
        # The policy's own prior of how much of a block is right, and its own widths.
        policy = DraftPolicy(decoder.block_size, time.process_time)
        warm = min(_WARM_CONTEXT, len(sample) // 2)
        read = sample[warm : warm + READ_TOKENS]
        decoder.prefill(session, sample[:warm])
        read_ms = math.inf
        for _ in range(_TRIES):
            session.rewind(warm)
            started = time.process_time()
            decoder.prefill(session, read)
            read_ms = min(read_ms, (time.process_time() - started) * 1000)
        live = session.length
        # Two rows cost nearly what four do, and a width of their own is not worth the time here.
        widths = [width for width in policy.widths if width != 2]
        for _ in range(_TRIES):
            for width in widths:
                session.rewind(live)
                policy.measure(width, lambda w: decoder.round(session, sample[-1], w))
        token_ms = min(ms / policy.expected_tokens(width) for width, ms in policy.round_ms.items())
        return PrecisionCost(self.name, read_ms, policy.round_ms, read_ms + WRITTEN_TOKENS * token_ms)

    @torch.inference_mode()
    def text(self, sample: Sequence[int]) -> _Text:
        """By the products that generate: a packed target's prompt is otherwise read from unpacked weights."""
        _use_packed_products(self.target, len(sample))
        session = Session(self.target, None, len(sample))
        positions = session.next_positions(len(sample))
        tokens = torch.tensor([list(sample)])
        hidden, _ = self.target(tokens, positions, session.target_attention(positions))
        greedy, nats = [], 0.0
        for rows, following in zip(hidden[:, :-1].split(_HEAD_ROWS, 1), tokens[0, 1:].split(_HEAD_ROWS), strict=True):
            logits = self.target.logits(rows)[0].float()
            greedy.append(logits.argmax(dim=-1))
            nats += float(nn.functional.cross_entropy(logits, following, reduction="sum"))
        return _Text(torch.cat(greedy), nats / (len(sample) - 1) / math.log(2))


def _use_packed_products(target: Target, rows: int) -> None:
    for module in target.modules():
        if isinstance(module, PackedInt8 | PackedInt4):
            module.few_rows = max(module.few_rows, rows)


def _held_to(truth: _Text, found: _Text, cost: PrecisionCost) -> PrecisionCost:
    agreement = float((found.greedy == truth.greedy).float().mean())
    loss = found.bits / truth.bits - 1
    refused = ""
    if agreement < LEAST_AGREEMENT:
        refused = f"only {agreement:.1%} of its tokens are those of float32"
    elif not loss <= MOST_LOSS:
        refused = f"it needs {loss:+.1%} bits a token"
    return replace(cost, agreement=agreement, loss=loss, refused=refused)


def _quickest(costs: tuple[PrecisionCost, ...]) -> PrecisionChoice:
    first, allowed = costs[0], [cost for cost in costs if not cost.refused]
    picked = min(allowed, key=lambda cost: cost.completion_ms)
    others = [f"{cost.precision} refused, {cost.refused}" for cost in costs if cost.refused]
    if picked is first:
        why = "the quickest measured here"
    else:
        why = (
            f"{first.completion_ms / picked.completion_ms:.2f} times float32 here, {picked.agreement:.1%} of its tokens"
        )
    return PrecisionChoice(_name(picked.precision), "; ".join([why, *others]), costs)


def _name(precision: Any) -> Any:
    return str(precision).removeprefix("torch.")
