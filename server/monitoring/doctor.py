"""Looks at everything that a completion needs here and says what is wrong: the `doctor` command's report."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from dflash_core.compatibility import PairReport
from server import __version__, paths
from server.engine.rotary_bases import kept_base
from server.errors import DflashError
from server.monitoring.device import machine_memory, probe_device
from server.monitoring.engines import engine_states
from server.monitoring.readiness import Readiness, check_profiles, known_profiles
from server.profiles import load_profile

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "gguf",
    "pygls",
    "lsprotocol",
    "httpx",
    "starlette",
    "uvicorn",
    "tree-sitter",
)


def examine(wanted: str) -> dict[str, Any]:
    """The whole report as JSON-ready data. wanted: the profile that must be able to run.

    `problem` is one line when it cannot, else None.
    """
    device = probe_device()
    names = known_profiles()
    if wanted not in names:
        names.append(wanted)
    checks = check_profiles(names, device)
    directories = _directories()
    ready = checks[names.index(wanted)]
    pair = _pair(wanted, ready.pair)
    return {
        "version": __version__,
        "problem": _problem(ready, directories),
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
        },
        "packages": {name: _installed(name) for name in PACKAGES},
        "device": {**asdict(device), "memory": machine_memory(), "cores": os.cpu_count()},
        "directories": directories,
        "engines": {name: asdict(health) for name, health in asyncio.run(engine_states(names)).items()},
        "profiles": [check.to_json() for check in checks],
        "pair": pair,
    }


def _pair(wanted: str, found: PairReport | None) -> dict[str, Any] | None:
    """Whether the wanted profile's draft fits its target, and what was found out on first use; None without a pair."""
    if found is None:
        return None
    report, kept = asdict(found), kept_base(load_profile(wanted))
    return {**report, "facts": [*report["facts"], *([kept["words"]] if kept else [])]}


def _problem(wanted: Readiness, directories: dict[str, Any]) -> str | None:
    if not wanted.can_run:
        return f"profile {wanted.profile} cannot run: {wanted.reason}"
    problem: str | None = directories["runtime"].get("problem")
    return problem


def _installed(package: str) -> str | None:
    """Version from the package's metadata; importing it to ask would take seconds."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _directories() -> dict[str, Any]:
    cache = paths.cache_dir()
    places: dict[str, Any] = {
        "cache": {"path": str(cache), "size": _size(cache), "free": _free(cache)},
        "config": {"path": str(paths.config_dir())},
        "logs": {"path": str(paths.log_dir())},
    }
    try:
        places["runtime"] = {"path": str(paths.runtime_dir())}
    except DflashError as error:
        places["runtime"] = {"problem": str(error)}
    return places


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _free(directory: Path) -> int | None:
    """Bytes free where the directory is or will be."""
    present = next((place for place in (directory, *directory.parents) if place.exists()), None)
    return shutil.disk_usage(present).free if present else None
