"""How fast a pair decodes beside its own autoregression, the floor that memory sets, and llama.cpp."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    add_profile_argument(parser)
    parser.add_argument("--geometry", metavar="NAME", help="sizes of a published pair instead of a profile's weights")
    parser.add_argument("--random-weights", action="store_true", help="with --geometry: real step costs, no weights")
    parser.add_argument(
        "--routing",
        choices=["random", "skewed"],
        default="random",
        help="with --geometry of a MiMo: whether a block's rows pick any experts, or mostly the same few",
    )
    parser.add_argument(
        "--devices", type=_positive, default=1, metavar="N", help="with --geometry: GPUs that layers are split over"
    )
    parser.add_argument(
        "--start-from", type=Path, metavar="FOLDER", help="with --geometry: write the weights there and time two starts"
    )
    parser.add_argument("--context", type=_positive, default=512, metavar="N", help="prompt tokens (default: 512)")
    parser.add_argument(
        "--blocks",
        type=_positive_or_zero,
        nargs="+",
        default=[4, 8, 0],
        metavar="B",
        help="rows to verify, 0 for the policy's own choice (default: 4 8 0)",
    )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        default=["auto"],
        choices=["auto", "float32", "bfloat16", "int8", "int4"],
        help="precisions to compare, the first is the one that serves (default: auto)",
    )
    parser.add_argument("--prompts", type=_positive, default=4, metavar="N", help="source files (default: 4)")
    parser.add_argument("--sources", type=Path, nargs="+", default=[], metavar="FILE", help="files to begin with")
    parser.add_argument("--max-tokens", type=_positive, default=48, metavar="N", help="tokens a prompt (default: 48)")
    parser.add_argument("--repeats", type=_positive, default=2, metavar="N", help="times each prompt (default: 2)")
    parser.add_argument("--busy-core", action="store_true", help="measure again beside a process that only computes")
    parser.add_argument("--llama-cpp", type=Path, metavar="MODEL.gguf", help="the same weights for llama.cpp")
    parser.add_argument(
        "--llama-python",
        type=Path,
        default=Path(sys.executable),
        metavar="PYTHON",
        help="an interpreter with llama-cpp-python (default: this one)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="write a bar chart")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from server.benchmarks.engine import plot, step_plot, step_table, table
    from server.cli.table import aligned
    from server.errors import DflashError

    if args.random_weights != bool(args.geometry):
        raise DflashError("--geometry and --random-weights belong together")
    report = _geometry(args) if args.geometry else _real(args)
    report["command"] = " ".join(["dflash-lsp", *sys.argv[1:]])
    if args.plot:
        args.plot.write_text(step_plot(report) if args.geometry else plot(report), encoding="utf-8")
    if args.json:
        print(json.dumps(report))
        return 0
    if args.geometry:
        print(aligned(step_table(report)))
        for line in _by_width(report):
            print(line)
        for first in report["first_block"]:
            print(
                f"cold prompt of {first['prompt_tokens']} tokens to its first block: {first['first_block_ms']:.1f} ms"
            )
        return 0
    print(aligned(table(report)))
    print(f"{report['device']}; memory read at {report['read_tbps'] * 1000:.1f} GB/s")
    for name, each in report["precisions"].items():
        differ = f"differ where two tokens are {each['largest_gap']:.2f} logits apart"
        print(
            f"{name}: {each['prefill_tokens']} prompt tokens read in {each['prefill_ms']:.0f} ms;"
            f" texts with the draft and without {'equal' if each['texts_equal'] else differ}"
        )
    return 0


def _by_width(report: dict[str, Any]) -> Iterator[str]:
    """What a verify of a mixture costs by its width: every row may touch further experts."""
    for run in report["runs"]:
        for width, experts in run["experts_read_by_width"].items():
            if experts:
                each = {
                    name: (run[f"{name}_ms_by_width"][width], run[f"floor_{name}_ms_by_width"][width])
                    for name in ("verify", "round")
                }
                told = ", ".join(f"{name} {ms:.2f} ms ({ms / floor:.2f} x floor)" for name, (ms, floor) in each.items())
                yield f"width {width}, {report['routing']} routing: {told}; {experts:.0f} experts a layer"


def _real(args: argparse.Namespace) -> dict[str, Any]:
    from server.benchmarks.engine import EngineBench, code_prompts, measure_engine
    from server.benchmarks.llama_cpp import measure_llama_cpp
    from server.engine.threads import engine_environment
    from server.profiles import load_profile

    profile = load_profile(args.profile)
    # As the engine's own process does, before torch is imported.
    os.environ.update(engine_environment(profile.engine.threads, os.environ))
    prompts = code_prompts(profile, args.sources, args.context, args.prompts)
    bench = EngineBench(
        profile=profile,
        context=args.context,
        blocks=tuple(args.blocks),
        dtypes=tuple(args.dtypes),
        prompts=len(prompts),
        max_tokens=args.max_tokens,
        repeats=args.repeats,
        busy_core=args.busy_core,
    )
    report = measure_engine(bench, prompts, _say)
    if args.llama_cpp:
        _say("llama.cpp")
        threads = int(os.environ["OMP_NUM_THREADS"])
        report["llama_cpp"] = measure_llama_cpp(
            args.llama_python,
            args.llama_cpp,
            prompts,
            max_tokens=args.max_tokens,
            threads=threads,
            repeats=args.repeats,
        )
    return report


def _geometry(args: argparse.Namespace) -> dict[str, Any]:
    from dflash_core.benchmarks import geometry
    from server.errors import DflashError

    if args.geometry not in geometry.GEOMETRIES:
        raise DflashError(f"no geometry is named {args.geometry!r}; known are {', '.join(geometry.GEOMETRIES)}")
    import torch

    if not torch.cuda.is_available():
        raise DflashError("--geometry needs a CUDA device")
    blocks = tuple(block for block in args.blocks if block)
    wanted = geometry.GEOMETRIES[args.geometry]
    if wanted.pair and args.start_from:
        raise DflashError(f"--start-from writes whole models; {args.geometry} is MiMo's or some layers of one")
    if torch.cuda.device_count() < args.devices:
        raise DflashError(f"--devices {args.devices}: torch finds {torch.cuda.device_count()} GPUs")
    devices = [f"cuda:{index}" for index in range(args.devices)]
    found = geometry.measure(
        wanted, context=args.context, blocks=blocks, skewed=args.routing == "skewed", devices=devices
    )
    if args.start_from:
        from dflash_core.benchmarks.start import measure_start

        found["start"] = measure_start(geometry.GEOMETRIES[args.geometry], args.start_from)
    return {"geometry": args.geometry, "context": args.context, **found}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1 << 20:
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    return value


def _positive_or_zero(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 256 or value == 1:
        raise argparse.ArgumentTypeError("must be 0, or a whole number from 2 to 256")
    return value
