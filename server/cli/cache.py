"""Show or remove what was fetched."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("path", help="print the cache directory")
    actions.add_parser("clear", help="remove the cache directory; running engines are not affected")


def run(args: argparse.Namespace) -> int:
    from server import paths
    from server.profiles.fetch import clear_cache, megabytes

    cache = paths.cache_dir()
    if args.action == "path":
        print(cache)
    elif cache.is_dir():
        print(f"removed {cache}, {megabytes(clear_cache())}")
    else:
        print(f"nothing to remove: {cache} does not exist")
    return 0
