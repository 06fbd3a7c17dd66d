"""Start or stop a profile's engine."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.engine.protocol import EngineHealth
    from server.profiles import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, summary in (
        ("start", "start the engine, unless it runs, and wait until it is ready"),
        ("stop", "end the engine; what it generates is lost"),
    ):
        add_profile_argument(actions.add_parser(action, help=summary, description=summary.capitalize() + "."))


def run(args: argparse.Namespace) -> int:
    from server.engine.launcher import stop_engine
    from server.monitoring.engines import describe
    from server.profiles import load_profile

    profile = load_profile(args.profile)
    if args.action == "stop":
        stopped = asyncio.run(stop_engine(profile))
        print(f"{profile.name}: {'stopped' if stopped else 'no engine runs'}")
    else:
        print(f"{profile.name}: {describe(asyncio.run(_start(profile)))}")
    return 0


async def _start(profile: Profile) -> EngineHealth:
    from server.engine.launcher import ensure_engine

    client = await ensure_engine(profile, on_health=_Progress())
    try:
        return await client.health()
    finally:
        await client.aclose()


class _Progress:
    """Says on stderr what a loading engine does, each step once."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, health: EngineHealth) -> None:
        if health.state == "loading" and health.reason and health.reason != self._said:
            self._said = health.reason
            print(health.reason, file=sys.stderr, flush=True)
