"""Tune a target on fill-in-the-middle shards: a small delta that is added to it.

Tunes a target, low-rank or whole, on the train shards of a folder, most of all what is due in holes. Writes
delta.safetensors, curve.jsonl and curve.svg; an unfinished run in the output folder is gone on with, so that time on a
GPU may come in pieces. Meant for a GPU; a CPU is only good for a trial.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="folder of `train holes`")
    parser.add_argument("--target", type=Path, required=True, metavar="DIR", help="checkpoint folder of the target")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the delta and the curve")
    parser.add_argument("--start", type=Path, metavar="DELTA", help="begin with a saved delta of this target and rank")
    parser.add_argument("--minutes", type=float, default=20.0, help="length of the whole run (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="most steps of the whole run")
    parser.add_argument("--rank", type=int, default=64, help="of the change, 0 for all weights (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=24, help="rows a step (default: %(default)s)")
    parser.add_argument("--row-tokens", type=int, default=2048, help="tokens a row (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    parser.add_argument(
        "--long-times", type=int, default=1, metavar="N", help="show examples with long middles so often a pass"
    )
    parser.add_argument("--json", action="store_true", help="print the last report as one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    import torch

    from dflash_core.checkpoints.target import load_target
    from dflash_core.training.recipe import TargetRecipe
    from dflash_core.training.shards import TokenShards, held_out_splits
    from dflash_core.training.target_trainer import DELTA, TargetTrainer
    from server.cli.train.curve import Curve

    gpu = torch.cuda.is_available()
    shards = TokenShards(args.shards, "train")
    held = {split.removeprefix("held-"): TokenShards(args.shards, split) for split in held_out_splits(args.shards)}
    recipe = TargetRecipe(
        rank=args.rank,
        minutes=args.minutes,
        max_steps=args.steps,
        rows=args.rows,
        row_tokens=args.row_tokens,
        learning_rate=args.rate,
        long_times=args.long_times,
    )
    target = load_target(args.target, device="cuda" if gpu else "cpu", dtype=torch.bfloat16 if gpu else torch.float32)
    trainer = TargetTrainer(target, recipe)
    if not trainer.resume(args.out) and args.start is not None:
        trainer.start_from(args.start)
    curve = Curve(args.out, going_on=trainer.steps > 0)
    trainer.train(shards, args.out, held=held, report=curve.add)
    curve.plot(args.target.name)
    print(json.dumps(curve.rows[-1] if curve.rows else {}) if args.json else f"delta saved: {args.out / DELTA}")
    return 0
