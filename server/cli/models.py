"""List the profiles: which pair each one runs, whether it is on disk, whether it can run here; or test one."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.monitoring.readiness import Readiness


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="try the prompt formats of one profile's pair on its engine, and keep which one suits it",
    )
    add_profile_argument(parser)


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_self_test(args)) if args.self_test else _list(args)


async def _self_test(args: argparse.Namespace) -> int:
    from server.cli.table import aligned
    from server.completion.self_test import self_test
    from server.engine.launcher import ensure_engine
    from server.profiles import load_profile

    profile = load_profile(args.profile)
    client = await ensure_engine(profile)
    try:
        found = await self_test(profile, client, lambda text: print(text, file=sys.stderr, flush=True))
    finally:
        await client.aclose()
    if args.json:
        print(json.dumps(found.to_json()))
        return 0
    rows = [("FORMAT", "OBEYED", "PROSE", "TOKENS A ROUND", "")]
    for each in found.formats:
        note = f"refused: {each.refused}" if each.refused else "picked" if each.format == found.picked else ""
        rows.append((each.format, f"{each.obeyed:.0%}", f"{each.prose:.0%}", f"{each.acceptance_length:.2f}", note))
    print(aligned(rows))
    return 0


def _list(args: argparse.Namespace) -> int:
    from server.cli.table import aligned
    from server.monitoring.device import probe_device
    from server.monitoring.readiness import check_profiles, known_profiles
    from server.profiles import DEFAULT_PROFILE
    from server.profiles.fetch import megabytes

    checks = check_profiles(known_profiles(), probe_device())
    if args.json:
        profiles = [check.to_json() for check in checks]
        print(json.dumps({"default": DEFAULT_PROFILE, "profiles": profiles}))
        return 0
    rows = [("PROFILE", "ENGINE", "TARGET", "DRAFT", "WEIGHTS", "MEMORY", "RUNS HERE")]
    for check in checks:
        size = "-" if not check.target else "missing" if check.weights is None else megabytes(check.weights)
        measured = f", {check.precision}" if check.precision else ""
        runs = f"yes{measured}" if check.can_run else f"no: {check.reason}"
        cells = (check.profile, check.kind, check.target, check.draft)
        rows.append((*(cell or "-" for cell in cells), size, _memory(check), runs))  # type: ignore[arg-type]
    print(aligned(rows), end="\n\n")
    for check in checks:
        if check.footprint:
            print(f"{check.profile}: {check.footprint.total / 1e9:.1f} GB of memory = {check.footprint.words()}")
        for line in (check.note, *check.warnings):
            if line:
                print(f"{check.profile}: {line}")
    return 0


def _memory(check: Readiness) -> str:
    """How much memory a profile takes and whether this machine has it."""
    if check.footprint is None:
        return "-"
    on = f"fits on {check.gpus} GPUs" if check.gpus > 1 else "fits"
    words = {True: on, False: "too large", None: "no such device"}[check.fits]
    return f"{check.footprint.total / 1e9:.1f} GB, {words}"
