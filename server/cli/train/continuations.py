"""The target's own continuations of the prompts, as shards that a draft may be trained on.

Decodes greedily, many prompts at once, what the target itself writes into the holes of the train shards of a folder,
and writes shards `own-*.npy` beside them. A draft trained on a share of these sees the texts that it will draft.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="folder of `train holes`")
    parser.add_argument("--target", type=Path, required=True, metavar="DIR", help="checkpoint folder of the target")
    parser.add_argument("--delta", type=Path, metavar="FILE", help="a saved delta to add to the target")
    parser.add_argument("--minutes", type=float, default=2.0, help="length of the run (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=512, help="prompts at once (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a prompt (default: %(default)s)")
    parser.add_argument("--stop", type=int, action="append", default=[], metavar="ID", help="a token that ends a text")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    import torch

    from dflash_core.checkpoints.target import load_target
    from dflash_core.training.continuations import write_continuations
    from dflash_core.training.delta import merge_delta
    from dflash_core.training.shards import TokenShards

    gpu = torch.cuda.is_available()
    shards = TokenShards(args.shards, "train")
    target = load_target(args.target, device="cuda" if gpu else "cpu", dtype=torch.bfloat16 if gpu else torch.float32)
    if args.delta is not None:
        merge_delta(target, args.delta)
    found = write_continuations(
        target,
        shards,
        args.shards,
        minutes=args.minutes,
        prompts=args.prompts,
        max_tokens=args.max_tokens,
        stop_ids=args.stop,
    )
    print(json.dumps(found) if args.json else f"{found['examples']} continuations, {found['tokens']} tokens")
    return 0
