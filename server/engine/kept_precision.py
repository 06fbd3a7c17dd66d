"""The precision that was measured for a profile on this machine, kept until what it was measured with changes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

from server import paths
from server.engine.threads import engine_environment
from server.engine.weight_files import weight_files
from server.engine.whereabouts import write_private
from server.profiles import Profile
from server.profiles.settings import Dtype

VERSION = 1  # of what is measured and of the rules; what another one found is measured again


@dataclass(frozen=True)
class KeptPrecision:
    """picked: what serves under `dtype = "auto"`. reason: why, one line. costs: what was measured, as JSON data."""

    picked: Dtype
    reason: str
    costs: tuple[dict[str, Any], ...] = ()


def kept_precision(profile: Profile) -> KeptPrecision | None:
    """What was measured before; None when nothing was, something has changed since, or the file cannot be read."""
    try:
        found = json.loads(_file(profile).read_text(encoding="utf-8"))
        kept = KeptPrecision(found["picked"], str(found["reason"]), tuple(dict(cost) for cost in found["costs"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept if kept.picked in get_args(Dtype) and kept.picked != "auto" else None


def keep_precision(profile: Profile, found: dict[str, Any]) -> None:
    """Keep what `PrecisionChoice.to_json` gave. A disk that takes nothing costs another measurement, no more."""
    try:
        file = _file(profile)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_private(file, json.dumps(found))
    except OSError:
        pass


def _file(profile: Profile) -> Path:
    """Named for all that the answer depends on: another processor, torch or weight file has a file of its own."""
    threads = engine_environment(profile.engine.threads, os.environ)["OMP_NUM_THREADS"]
    parts = [VERSION, metadata.version("torch"), _processor(), threads, weight_files(profile)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return paths.cache_dir() / "precision" / f"{key}.json"


def _processor() -> str:
    """Name of the processor; Python's own word for it is empty on many systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return f"{platform.machine()} {platform.processor()}"
    facts = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU part")
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(found[name] for name in facts if name in found)
