"""Token shards from a list of packages.

Gets the listed packages with pip, npm and apt-get, filters and tokenises their source files, and writes token
shards with a manifest. Run it again to go on after an interruption.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from server.paths import asset

PACKAGES = Path(__file__).resolve().parents[2] / "corpus" / "packages.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--list",
        type=Path,
        default=PACKAGES,
        metavar="FILE.toml",
        help="the packages (default: the list that the embedded draft is trained on)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for downloads and shards")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        default=asset("embedded", "tokenizer.json"),
        metavar="PATH",
        help="tokenizer.json of the target (default: the embedded one)",
    )
    parser.add_argument("--json", action="store_true", help="print the manifest as one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    from server.corpus.build import MANIFEST, build_corpus
    from server.corpus.errors import CorpusError

    try:
        manifest = build_corpus(args.list, args.out, args.tokenizer)
    except KeyboardInterrupt as interrupt:
        raise CorpusError("interrupted; the same command goes on from here") from interrupt
    if args.json:
        print(json.dumps(manifest))
        return 0
    for split, languages in manifest["totals"].items():
        for language, total in sorted(languages.items(), key=lambda item: -item[1]["tokens"]):
            print(f"{split:5} {language:10} {total['documents']:8,} documents {total['tokens']:12,} tokens")
    for package in manifest["skipped"]:
        print(f"skipped {package['registry']} {package['name']}: {package['reason']}", file=sys.stderr)
    print(f"{len(manifest['packages'])} packages, {len(manifest['shards'])} shards: {args.out / MANIFEST}")
    return 0
