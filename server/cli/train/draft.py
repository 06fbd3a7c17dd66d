"""A DFlash draft for a target, from token shards.

Trains a draft for a target on the train shards of a folder and saves it in z-lab format. The shards carry the prompt
format. An unfinished run in the output folder is gone on with. Meant for a GPU; a CPU is only good for a trial.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="folder of `train corpus`")
    parser.add_argument("--target", type=Path, required=True, metavar="DIR", help="checkpoint folder of the target")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the draft")
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the run (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the draft (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=48, help="sequences a step (default: %(default)s)")
    parser.add_argument("--anchors", type=int, default=128, help="blocks a sequence (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="most steps of the whole run")
    parser.add_argument("--row-tokens", type=int, default=1024, help="tokens a sequence (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="learning rate (default: %(default)s)")
    parser.add_argument("--mask-id", type=int, default=16, help="token that stands for the mask (default: %(default)s)")
    parser.add_argument("--delta", type=Path, metavar="FILE", help="a saved delta to add to the target")
    parser.add_argument("--start", type=Path, metavar="DIR", help="begin with this draft instead of random weights")
    parser.add_argument(
        "--weighting",
        choices=("decay", "acceptance"),
        default="decay",
        help="how the rows of a block weigh: by place, or by the draft's chance to come so far (default: %(default)s)",
    )
    parser.add_argument(
        "--variation",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the total variation to the target's distribution in the loss, for sampling (default: %(default)s)",
    )
    parser.add_argument(
        "--own-share",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the batches, from the target's own continuations (`train continuations`; default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the last report as one JSON object")


def run(args: argparse.Namespace) -> int:
    import json

    import torch

    from dflash_core.checkpoints.draft import load_draft
    from dflash_core.checkpoints.target import load_target
    from dflash_core.training.continuations import SPLIT
    from dflash_core.training.delta import merge_delta
    from dflash_core.training.recipe import DraftRecipe
    from dflash_core.training.shards import TokenShards
    from dflash_core.training.trainer import DraftTrainer
    from server.cli.train.curve import Curve

    gpu = torch.cuda.is_available()
    shards = TokenShards(args.shards, "train")
    own = TokenShards(args.shards, SPLIT) if args.own_share else None
    target = load_target(args.target, device="cuda" if gpu else "cpu", dtype=torch.bfloat16 if gpu else torch.float32)
    if args.delta is not None:
        merge_delta(target, args.delta)
    start = load_draft(args.start, target) if args.start else None
    sizes = (
        {"layers": args.layers, "mask_token_id": args.mask_id}
        if start is None
        else {
            "layers": len(start.spec.layers),
            "block_size": start.spec.block_size,
            "mask_token_id": start.spec.mask_token_id,
            "target_layer_ids": start.spec.target_layer_ids,
        }
    )
    recipe = DraftRecipe(
        minutes=args.minutes,
        max_steps=args.steps,
        rows=args.rows,
        row_tokens=args.row_tokens,
        anchors=args.anchors,
        learning_rate=args.rate,
        weighting=args.weighting,
        variation=args.variation,
        own_share=args.own_share,
        **sizes,
    )
    trainer = DraftTrainer(target, recipe, draft=start)
    trainer.resume(args.out)
    curve = Curve(args.out, going_on=trainer.steps > 0)
    trainer.train(shards, curve.add, args.out, own=own)
    curve.plot("draft")
    print(json.dumps(curve.rows[-1] if curve.rows else {}) if args.json else f"draft saved in {args.out}")
    return 0
