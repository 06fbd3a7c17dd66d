"""Look at everything that a completion needs on this machine, and say what is wrong."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    add_profile_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from server.errors import DflashError
    from server.monitoring.doctor import examine

    report = examine(args.profile)
    print(json.dumps(report) if args.json else _text(report))
    if report["problem"]:
        raise DflashError(report["problem"])
    return 0


def _text(report: dict[str, Any]) -> str:
    from server.cli.table import aligned

    python, packages = report["python"], report["packages"]
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
    rows = [
        ("dflash-lsp", report["version"]),
        ("python", f"{python['version']}, {python['executable']}, {python['platform']}"),
        ("packages", versions),
        ("device", _device(report["device"])),
        *((name, _directory(facts)) for name, facts in sorted(report["directories"].items())),
        ("engines", _engines(report["engines"])),
    ]
    pair = report["pair"] or {}
    for kind, word in (("refusals", "refused"), ("warnings", "warning"), ("facts", "fits")):
        rows += [(f"pair, {word}", line) for line in pair.get(kind, [])]
    for check in report["profiles"]:
        can = ", ".join(part for part in ("can run", check["precision"], check["slower"]) if part)
        rows.append((f"profile {check['profile']}", can if check["can_run"] else f"cannot run: {check['reason']}"))
    return aligned(rows)


def _device(device: dict[str, Any]) -> str:
    if device["error"]:
        return str(device["error"])
    cpu = f"CPU {device['cpu']} {device['instructions']}, {device['cores']} cores"
    bf16 = "multiplies bf16 itself" if device["bf16"] else "has no bf16 instructions"
    memory = f"{device['memory'] / 1e9:.1f} GB of memory" if device["memory"] else "memory unknown"
    gpus = [f"{gpu['name']} ({gpu['memory'] / 1e9:.0f} GB)" for gpu in device["cuda"]]
    return f"{cpu}, {bf16}, {memory}; GPU: {', '.join(gpus) or ('mps' if device['mps'] else 'none')}"


def _directory(facts: dict[str, Any]) -> str:
    from server.profiles.fetch import megabytes

    if "problem" in facts:
        return str(facts["problem"])
    sizes = [f"{megabytes(facts[key])} {word}" for key, word in (("size", "used"), ("free", "free")) if facts.get(key)]
    return ", ".join([facts["path"], *sizes])


def _engines(engines: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({health['state']})" for name, health in engines.items()) or "none runs"
