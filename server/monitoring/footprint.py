"""The memory a resident profile takes, by arithmetic before it is loaded: weights, keys and values of a session, draft.

Sizes come from the checkpoints where they are at hand, else from those of the published models (`[target] published`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dflash_core.config_values import read_config
from dflash_core.configs import draft_spec, target_spec
from dflash_core.errors import DFlashError
from dflash_core.published import PUBLISHED, Published
from dflash_core.sharing import RESERVED, share_out
from dflash_core.sizes import draft_bytes, kv_bytes, layer_bytes, target_bytes
from dflash_core.specs import DraftSpec, TargetSpec
from server.profiles.settings import ModelSource, Profile

# What an engine process takes beside its weights: torch itself, buffers, a few sessions. An estimate.
BESIDE_WEIGHTS = 700_000_000


@dataclass(frozen=True)
class Footprint:
    """Bytes. kv: keys and values of one session of `context` tokens, the draft's included. beside: an estimate.

    layers: of the target and kv, what each layer takes; the rest must lie on the first of several devices.
    """

    target: int
    draft: int
    kv: int
    context: int
    beside: int = BESIDE_WEIGHTS
    layers: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """All of it."""
        return self.target + self.draft + self.kv + self.beside

    def devices_needed(self, memory: Sequence[int]) -> int | None:
        """How many of these devices, by the memory of each, hold it; None where all of them do not."""
        if self.total <= memory[0]:
            return 1
        first = self.total - self.beside - sum(self.layers)
        for count in range(2, min(len(memory), len(self.layers)) + 1):
            room = [max(size - RESERVED, 1) for size in memory[:count]]
            if share_out(self.layers, first, room)[1] <= 1:
                return count
        return None

    def words(self) -> str:
        """The sum, for a person, in GB."""
        parts = ((self.target, "target"), (self.draft, "draft"), (self.kv, f"{self.context} tokens"))
        named = [f"{size / 1e9:.2f} {what}" for size, what in parts if size]
        return " + ".join([*named, f"{self.beside / 1e9:.1f} beside them"])


def footprint_of(profile: Profile) -> Footprint | None:
    """None for an engine that is not ours, and where nothing says how large the target is."""
    if profile.engine.kind != "resident" or profile.target is None:
        return None
    published = PUBLISHED.get(profile.target.published or "")
    bytes_a_value = 4 if profile.engine.dtype == "float32" else 2
    try:
        target = _target(profile.target, published)
        draft = _draft(profile.draft, published)
    except DFlashError:
        return None
    if target is None:
        return None
    context = min(profile.engine.context, target[0].max_positions)
    kv = kv_bytes(target[0].layers, context, bytes_a_value)
    if draft:
        kv += kv_bytes(draft[0].layers, context, bytes_a_value)
    widened = bytes_a_value // 2  # checkpoints are bf16, or in a form that stays
    form = published.form if published else "plain"
    weights = [layer_bytes(layer, form) * widened for layer in target[0].layers]
    layers = tuple(
        round(size) + kv_bytes([layer], context, bytes_a_value)
        for size, layer in zip(weights, target[0].layers, strict=True)
    )
    return Footprint(target[1] * widened, draft[1] * widened if draft else 0, kv, context, layers=layers)


def _target(source: ModelSource, published: Published | None) -> tuple[TargetSpec, int] | None:
    size = stored_bytes(source.path)
    if size is not None:
        return target_spec(read_config(source.path)), size
    if published is None:
        return None
    spec = target_spec(published.target)
    return spec, target_bytes(spec, published.form)


def _draft(source: ModelSource | None, published: Published | None) -> tuple[DraftSpec, int] | None:
    if source is None:
        return None
    size = stored_bytes(source.path)
    if size is not None:
        return draft_spec(read_config(source.path)), size
    if published is None or published.draft is None:
        return None
    spec = draft_spec(published.draft)
    return spec, draft_bytes(spec)


def stored_bytes(folder: Path) -> int | None:
    """Bytes of a checkpoint's weights; None when it is not there."""
    try:
        files = list(folder.glob("*.safetensors"))
        if not files or not (folder / "config.json").is_file():
            return None
        return sum(file.stat().st_size for file in files)
    except OSError:
        return None
