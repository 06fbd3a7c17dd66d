"""Fill-in-the-middle shards out of a corpus, in a profile's prompt format.

Cuts holes out of the documents of a corpus as an editor makes them, and writes shards of prompts as the profile
sends them, each with what is due and a stop token behind it. Run it again to go on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from server.cli import add_profile_argument
from server.cli.train.corpus import PACKAGES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="folder of `train corpus`")
    parser.add_argument("--list", type=Path, default=PACKAGES, metavar="FILE.toml", help="the packages of the corpus")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the shards")
    add_profile_argument(parser)
    parser.add_argument("--minutes", type=float, metavar="N", help="cut no further packages after so long")
    parser.add_argument("--json", action="store_true", help="print the manifest as one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    from server.corpus.errors import CorpusError
    from server.corpus.fill_shards import build_fill_shards
    from server.profiles import load_profile

    try:
        manifest = build_fill_shards(args.list, args.corpus, args.out, load_profile(args.profile), args.minutes)
    except KeyboardInterrupt as interrupt:
        raise CorpusError("interrupted; the same command goes on from here") from interrupt
    if args.json:
        print(json.dumps(manifest))
        return 0
    for split, languages in manifest["totals"].items():
        for language, total in sorted(languages.items(), key=lambda item: -item[1]["tokens"]):
            print(
                f"{split:5} {language:10} {total['examples']:8,} examples {total['tokens']:12,} tokens, "
                f"{total['middle_tokens']:11,} of them due"
            )
    print(f"{manifest['packages']['done']} of {manifest['packages']['of']} packages: {args.out}")
    return 0
