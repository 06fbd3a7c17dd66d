"""Build a training corpus from packages, train a draft on it, measure what it accepts."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from server.cli import add_profile_argument
from server.paths import asset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Each step of training is a subcommand of its own, with a function below that runs it."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    _add_corpus(steps)
    _add_draft(steps)
    _add_evaluate(steps)


def run(args: argparse.Namespace) -> int:
    """Run the chosen step; returns the exit code."""
    result: int = args.run_step(args)
    return result


def _add_corpus(steps: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    corpus = steps.add_parser(
        "corpus",
        help="token shards from a list of packages",
        description="Gets the listed packages with pip, npm and apt-get, filters and tokenises their source files, "
        "and writes token shards with a manifest. Run it again to go on after an interruption.",
    )
    corpus.add_argument(
        "--list",
        type=Path,
        default=Path(__file__).resolve().parents[1] / "corpus" / "packages.toml",
        metavar="FILE.toml",
        help="the packages (default: the list that the embedded draft is trained on)",
    )
    corpus.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for downloads and shards")
    corpus.add_argument(
        "--tokenizer",
        type=Path,
        default=asset("embedded", "tokenizer.json"),
        metavar="PATH",
        help="tokenizer.json of the target (default: the embedded one)",
    )
    corpus.add_argument("--json", action="store_true", help="print the manifest as one JSON object")
    corpus.set_defaults(run_step=_run_corpus)


def _run_corpus(args: argparse.Namespace) -> int:
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


def _add_draft(steps: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    draft = steps.add_parser(
        "draft",
        help="a DFlash draft for a target, from token shards",
        description="Trains a draft for a target on the train shards of a corpus and saves it in z-lab format. "
        "Meant for a GPU; a CPU is only good for a trial.",
    )
    draft.add_argument("--shards", type=Path, required=True, metavar="DIR", help="folder of `train corpus`")
    draft.add_argument("--target", type=Path, required=True, metavar="DIR", help="checkpoint folder of the target")
    draft.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the draft")
    draft.add_argument("--minutes", type=float, default=10.0, help="length of the run (default: %(default)s)")
    draft.add_argument("--layers", type=int, default=4, help="layers of the draft (default: %(default)s)")
    draft.add_argument("--rows", type=int, default=48, help="sequences a step (default: %(default)s)")
    draft.add_argument("--anchors", type=int, default=128, help="blocks a sequence (default: %(default)s)")
    draft.add_argument("--json", action="store_true", help="print the last report as one JSON object")
    draft.set_defaults(run_step=_run_draft)


def _run_draft(args: argparse.Namespace) -> int:
    import json
    from typing import Any

    import torch

    from dflash_core.checkpoints.target import load_target
    from dflash_core.training.recipe import DraftRecipe
    from dflash_core.training.shards import TokenShards
    from dflash_core.training.trainer import DraftTrainer

    gpu = torch.cuda.is_available()
    shards = TokenShards(args.shards, "train")
    target = load_target(args.target, device="cuda" if gpu else "cpu", dtype=torch.bfloat16 if gpu else torch.float32)
    recipe = DraftRecipe(minutes=args.minutes, layers=args.layers, rows=args.rows, anchors=args.anchors)
    last: dict[str, Any] = {}

    def report(row: dict[str, Any]) -> None:
        last.update(row)
        print(json.dumps(row), file=sys.stderr, flush=True)

    DraftTrainer(target, recipe).train(shards, report, args.out)
    print(json.dumps(last) if args.json else f"draft saved in {args.out}")
    return 0


def _add_evaluate(steps: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    evaluate = steps.add_parser(
        "evaluate",
        help="acceptance length on held-out texts",
        description="Decodes greedily after starts of held-out documents, every round drafted, and prints the "
        "acceptance length (bonus token counted) for each held-out split of a corpus.",
    )
    evaluate.add_argument("--shards", type=Path, required=True, metavar="DIR", help="folder of `train corpus`")
    add_profile_argument(evaluate)
    evaluate.add_argument("--split", action="append", metavar="NAME", help="only this split, such as held-python")
    evaluate.add_argument("--prompts", type=int, default=40, help="prompts a split (default: %(default)s)")
    evaluate.add_argument("--prompt-tokens", type=int, default=384, help="longest prompt (default: %(default)s)")
    evaluate.add_argument("--max-tokens", type=int, default=64, help="tokens decoded a prompt (default: %(default)s)")
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")
    evaluate.set_defaults(run_step=_run_evaluate)


def _run_evaluate(args: argparse.Namespace) -> int:
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
    from dflash_core.training.evaluation import acceptance, held_out_prompts
    from dflash_core.training.shards import TokenShards

    found_splits = {
        path.name.rsplit("-", 1)[0] for path in args.shards.glob("held-*.npy") if ".starts" not in path.name
    }
    splits = args.split or sorted(found_splits)
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
        prompts = held_out_prompts(TokenShards(args.shards, split), args.prompts, args.prompt_tokens)
        with tqdm(total=len(prompts), desc=split, file=sys.stderr) as bar:
            found = acceptance(
                engine,
                prompts,
                max_tokens=args.max_tokens,
                stop_ids=profile.prompt.stop_ids,
                progress=bar.update,
            )
        results[split.removeprefix("held-")] = dataclasses.asdict(found)
        if not args.json:
            print(f"{split:18} acceptance length {found.length:.2f} ({found.rounds} rounds, {found.prompts} prompts)")
    if args.json:
        described = engine.describe()
        print(json.dumps({"profile": profile.name, "dtype": described["dtype"], "splits": results}))
    return 0
