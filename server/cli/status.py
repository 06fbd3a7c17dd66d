"""Show the engines that run and their state."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", metavar="NAME|PATH.toml", help="only this profile (default: all that are known by name)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    import asyncio
    from dataclasses import asdict

    from server import paths
    from server.monitoring.engines import describe, engine_states
    from server.monitoring.readiness import known_profiles
    from server.profiles import load_profile

    paths.runtime_dir()  # raises when no engine could be found there, which is not the same as none running
    if args.profile:
        load_profile(args.profile)
    states = asyncio.run(engine_states([args.profile] if args.profile else known_profiles()))
    if args.json:
        print(json.dumps({"engines": {name: asdict(health) for name, health in states.items()}}))
    elif states:
        print("\n".join(f"{name}: {describe(health)}" for name, health in states.items()))
    else:
        print("no engine runs")
    return 0
