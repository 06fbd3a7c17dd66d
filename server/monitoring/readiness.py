"""Which profiles this machine can run, and why not the others."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dflash_core.compatibility import PairReport
from server import paths
from server.engine.kept_precision import kept_precision
from server.engine.remote import token_problem
from server.errors import DflashError
from server.monitoring.device import Device, machine_memory
from server.monitoring.footprint import BESIDE_WEIGHTS, Footprint, footprint_of, stored_bytes
from server.profiles import ModelSource, Profile, load_profile, own_profiles, shipped_profiles
from server.profiles.pair import compare_profile

NEEDED_PACKAGES = ("torch", "transformers", "safetensors")


@dataclass(frozen=True)
class Readiness:
    """One profile on this machine.

    target, draft: checkpoint directories, "" when the profile names none.
    weights: bytes of both on disk; None when one is missing.
    reason: why it cannot run, one line; "" when it can.
    footprint: the memory it takes, where its sizes are known, also before its weights are here.
    fits: whether that much memory is here; None when either is unknown. gpus: over how many its layers are split then.
    note: what the profile says of itself. pair: whether its draft fits its target; None without a pair at hand.
    slower: in plain words, by which slower path it is computed here; "" when by the quickest.
    precision: what serves under `dtype = "auto"` on this CPU and why, one line; "" when that was not measured.
    """

    profile: str
    kind: str
    target: str = ""
    draft: str = ""
    weights: int | None = None
    reason: str = ""
    footprint: Footprint | None = None
    fits: bool | None = None
    gpus: int = 1
    note: str = ""
    pair: PairReport | None = None
    precision: str = ""
    slower: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why its draft may accept less than it could."""
        return self.pair.warnings if self.pair else ()

    @property
    def can_run(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.reason

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data, `can_run` included."""
        return {**asdict(self), "warnings": self.warnings, "can_run": self.can_run}


def known_profiles() -> list[str]:
    """Names of all profiles, the user's own included."""
    return sorted({*shipped_profiles(), *own_profiles()})


def check_profiles(names: Iterable[str], device: Device | None = None) -> list[Readiness]:
    """Readiness of each profile, also of one whose file is broken."""
    found = []
    for name in names:
        try:
            found.append(check_profile(load_profile(name), device))
        except DflashError as error:
            found.append(Readiness(profile=name, kind="", reason=str(error)))
    return found


def check_profile(profile: Profile, device: Device | None = None) -> Readiness:
    """Whether this machine can run the profile. Without `device`, torch's own devices are not looked at."""
    sources = [source for source in (profile.target, profile.draft) if source]
    sizes = [stored_bytes(source.path) for source in sources]
    total = sum(size for size in sizes if size is not None) if sources and None not in sizes else None
    needed = footprint_of(profile)
    available = _available(profile, device)
    split = _gpus_needed(profile, needed, device)
    pair = compare_profile(profile) if profile.engine.kind == "resident" else None
    return Readiness(
        profile=profile.name,
        kind=profile.engine.kind,
        footprint=needed,
        fits=None if needed is None or available is None else split > 1 or needed.total <= available,
        gpus=split,
        note=(profile.target.note or "") if profile.target else "",
        pair=pair,
        target=str(profile.target.path) if profile.target else "",
        draft=str(profile.draft.path) if profile.draft else "",
        weights=total,
        reason=_reason(profile, total, device, split, pair),
        precision=_precision(profile) if total else "",
        slower=_slower(profile, device) if total else "",
    )


def _reason(profile: Profile, weights: int | None, device: Device | None, split: int, pair: PairReport | None) -> str:
    if profile.engine.kind == "replay":
        return _recording_reason(profile)
    if profile.engine.kind == "remote":
        return token_problem(profile.engine.token_file, profile.engine.token_env) or _prompt_reason(profile)
    missing = next((name for name in NEEDED_PACKAGES if find_spec(name) is None), None)
    if missing:
        return f"the package {missing} is not installed"
    return (
        _target_reason(profile)
        or _draft_reason(profile)
        or next(iter(pair.refusals if pair else ()), "")
        or _prompt_reason(profile)
        or _device_reason(profile, device)
        or ("" if split > 1 else _memory_reason(profile, weights or 0, device))
    )


def _slower(profile: Profile, device: Device | None) -> str:
    from dflash_core.plain_path import needs_transformers, plain_on_gpu

    if profile.engine.kind != "resident" or profile.target is None:
        return ""
    found = _config(profile.target)
    if needs_transformers(found):
        return f"the target ({found.get('model_type')}) is computed by transformers, the slower path"
    wanted, _, index = profile.engine.device.partition(":")
    gpus = device.cuda if device and not device.error else []
    if wanted not in ("auto", "cuda") or len(gpus) <= int(index or 0):
        return ""
    major, _, minor = str(gpus[int(index or 0)]["capability"]).partition(".")
    block = _config(profile.draft).get("block_size") if profile.draft else None
    reason = plain_on_gpu((int(major), int(minor or 0)), block if isinstance(block, int) else None)
    return f"on the GPU every step is launched by itself, which is slower: {reason}" if reason else ""


def _config(source: ModelSource) -> dict[str, Any]:
    try:
        found = json.loads((source.path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _precision(profile: Profile) -> str:
    if profile.engine.kind != "resident" or profile.engine.dtype != "auto":
        return ""
    kept = kept_precision(profile)
    return f"{kept.picked}: {kept.reason}" if kept else ""


def _recording_reason(profile: Profile) -> str:
    from server.engine.replay import read_recording

    try:
        read_recording(profile.engine.recording or Path())
    except DflashError as error:
        return str(error)
    return ""


def _target_reason(profile: Profile) -> str:
    from server.profiles.fetch import MANIFEST, PINS, manifest_problem

    assert profile.target is not None
    path = profile.target.path
    pin = next((pin for place, pin in PINS.items() if path == paths.cache_dir() / place), None)
    remedy = f": dflash-lsp fetch {profile.name}" if pin else ""
    if stored_bytes(profile.target.path) is None:
        return f"its target is not at {path}{remedy}"
    if pin or (path / MANIFEST).exists():
        problem = manifest_problem(path, pin)
        return f"its target at {path} is damaged, {problem}{remedy}" if problem else ""
    return ""


def _draft_reason(profile: Profile) -> str:
    if profile.draft and stored_bytes(profile.draft.path) is None:
        return f"its draft is not at {profile.draft.path}"
    return ""


def _prompt_reason(profile: Profile) -> str:
    from server.context.tokenizer import PromptTokenizer

    if profile.prompt is None:
        return ""
    if not profile.prompt.tokenizer.exists() and profile.engine.is_shared:
        return f"its tokenizer is not at {profile.prompt.tokenizer}: copy the target's tokenizer.json there"
    try:
        PromptTokenizer.from_file(profile.prompt.tokenizer)
    except DflashError as error:
        return str(error)
    return ""


def _device_reason(profile: Profile, device: Device | None) -> str:
    if device is None:
        return ""
    if device.error:
        return device.error
    wanted, _, index = profile.engine.device.partition(":")
    if absent := [each for each in profile.engine.devices if each >= len(device.cuda)]:
        return f"device cuda:{absent[0]} is not there: torch finds {len(device.cuda)} GPUs"
    if wanted == "cuda" and len(device.cuda) <= int(index or 0):
        return f"device {profile.engine.device} is not there: torch finds {len(device.cuda)} GPUs"
    if wanted == "mps" and not device.mps:
        return "device mps is not there"
    return ""


def _memory_reason(profile: Profile, weights: int, device: Device | None) -> str:
    """Weights are stored as bf16; the estimate is for those and what every engine takes beside them."""
    available = _available(profile, device)
    if available is None:
        return ""
    needed = weights * (2 if profile.engine.dtype == "float32" else 1) + BESIDE_WEIGHTS
    if needed > available:
        return f"it needs about {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB can be had"
    return ""


def _gpus_needed(profile: Profile, needed: Footprint | None, device: Device | None) -> int:
    """Over how many GPUs the target's layers are split here; 1 also where it fits on none."""
    engine, gpus = profile.engine, device.cuda if device and not device.error else []
    if needed is None or engine.device not in ("auto", "cuda") or any(each >= len(gpus) for each in engine.devices):
        return 1
    memory = [gpus[each]["memory"] for each in engine.devices or range(len(gpus))]
    if not memory or (engine.memory_limit is not None and needed.total > engine.memory_limit):
        return 1
    found = needed.devices_needed(memory) or 1
    # Of those that a profile names all are taken, where that suffices.
    return len(memory) if engine.devices and (found > 1 or needed.total <= memory[0]) else found


def _available(profile: Profile, device: Device | None) -> int | None:
    """Bytes of memory that the profile's engine may have here; None where its device is not there."""
    wanted, _, index = profile.engine.device.partition(":")
    gpus = device.cuda if device and not device.error else []
    if wanted == "cuda" and len(gpus) <= int(index or 0):
        return None
    on_gpu = bool(gpus) and wanted in ("auto", "cuda")
    found = gpus[int(index or 0)]["memory"] if on_gpu else machine_memory()
    return min(size for size in (found, profile.engine.memory_limit, 2**62) if size is not None)
