"""Acceptance length on held-out texts, and how well the target reads them from left to right.

Decodes greedily after starts of held-out documents, every round drafted, and prints the acceptance length (bonus
token counted) for each held-out split of a corpus.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from server.cli import add_profile_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="folder of `train corpus`")
    add_profile_argument(parser)
    parser.add_argument("--split", action="append", metavar="NAME", help="only this split, such as held-python")
    parser.add_argument("--prompts", type=int, default=40, help="prompts a split (default: %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=384, help="longest prompt (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens decoded a prompt (default: %(default)s)")
    parser.add_argument(
        "--bits", type=int, default=0, metavar="N", help="also: bits a token of the first N tokens of as many documents"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    import dataclasses
    import json

    from server.context.tokenizer import PromptTokenizer
    from server.engine.threads import engine_environment
    from server.errors import DflashError
    from server.profiles import load_profile

    profile = load_profile(args.profile)
    if profile.target is None or profile.draft is None or profile.prompt is None:
        raise DflashError(f"profile {profile.name} has no target with a draft to evaluate")
    # Before torch is imported, as for the engine's own process.
    os.environ.update(engine_environment(profile.engine.threads, os.environ))
    from tqdm import tqdm

    from dflash_core.engine import Engine, EngineOptions
    from dflash_core.errors import DFlashError
    from dflash_core.training.evaluation import acceptance, held_out_prompts, held_out_texts, left_to_right_bits
    from dflash_core.training.shards import TokenShards, held_out_splits

    splits = args.split or held_out_splits(args.shards)
    if not splits:
        raise DFlashError(f"no held-out token shards held-*.npy in {args.shards}")
    tokenizer = PromptTokenizer.from_file(profile.prompt.tokenizer)
    options = EngineOptions(
        device=profile.engine.device,
        dtype=profile.engine.dtype,
        context=args.prompt_tokens + args.max_tokens,
        sessions=1,
    )
    engine = Engine.load(profile.target.path, profile.draft.path, tokenizer.token_bytes, options)
    results = {}
    for split in splits:
        shards = TokenShards(args.shards, split)
        prompts = held_out_prompts(shards, args.prompts, args.prompt_tokens)
        with tqdm(total=len(prompts), desc=split, file=sys.stderr) as bar:
            found = acceptance(
                engine,
                prompts,
                max_tokens=args.max_tokens,
                stop_ids=profile.prompt.stop_ids,
                progress=bar.update,
            )
        result = results[split.removeprefix("held-")] = dataclasses.asdict(found)
        if args.bits:
            texts = held_out_texts(shards, args.prompts, args.bits)
            result["left_to_right_bits"] = left_to_right_bits(engine.decoder.target, texts)
        if not args.json:
            print(f"{split:18} acceptance length {found.length:.2f} ({found.rounds} rounds, {found.prompts} prompts)")
            if args.bits:
                print(f"{'':18} {result['left_to_right_bits']:.3f} bits a token, left to right")
    if args.json:
        described = engine.describe()
        print(json.dumps({"profile": profile.name, "dtype": described["dtype"], "splits": results}))
    return 0
