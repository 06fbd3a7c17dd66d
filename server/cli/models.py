"""List the profiles: which pair each one runs, whether it is on disk, whether it can run here."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
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
    rows = [("PROFILE", "ENGINE", "TARGET", "DRAFT", "WEIGHTS", "RUNS HERE")]
    for check in checks:
        size = "-" if not check.target else "missing" if check.weights is None else megabytes(check.weights)
        runs = "yes" if check.can_run else f"no: {check.reason}"
        cells = (check.profile, check.kind, check.target, check.draft)
        rows.append((*(cell or "-" for cell in cells), size, runs))  # type: ignore[arg-type]
    print(aligned(rows))
    return 0
