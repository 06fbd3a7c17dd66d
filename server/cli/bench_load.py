"""How latency grows with developers who share one engine, simulated from typing traces and a measured round cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.benchmarks.keystrokes.traces import Trace
    from server.benchmarks.load.cost import EngineCost

DEVELOPERS = [1, 3, 10, 30, 100, 200, 300, 500, 1000]
AT_ONCE = [1, 2, 4]
# Typed anew when no traces are given.
SOURCES = ("engine/sse.py", "engine/text_assembly.py", "documents/document.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    parser.add_argument(
        "--cost",
        default="qwen3-8b-b200",
        metavar="NAME|FILE.json",
        help="what a round costs: published, or as in a file that --measure --json printed (default: %(default)s)",
    )
    parser.add_argument(
        "--developers", type=int, nargs="+", default=DEVELOPERS, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="engines side by side (default: 1)")
    parser.add_argument("--trace", type=Path, nargs="+", metavar="FILE.jsonl", help="(default: three files of our own)")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M", help="simulated (default: %(default)s)")
    parser.add_argument(
        "--right",
        type=float,
        default=0.35,
        metavar="P",
        help="share of lines that the target gets right (default: %(default)s)",
    )
    parser.add_argument(
        "--typing-share",
        type=float,
        default=0.15,
        metavar="P",
        help="share of the time at the keys (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default: 1)")
    parser.add_argument("--due", action="store_true", help="also say how many replicas hold the target")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw it")
    parser.add_argument("--measure", action="store_true", help="first measure the cost, on the profile's engine")
    parser.add_argument("--sizing", action="store_true", help="print what MiMo takes of a host's GPUs instead")
    parser.add_argument("--at-once", type=int, nargs="+", default=AT_ONCE, metavar="N", help="(default: %(default)s)")
    add_profile_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from server.errors import DflashError

    if args.sizing:
        from server.benchmarks.load.sizing import sizing_table

        print(sizing_table())
        return 0
    for name, low, high in (("right", 0, 1), ("typing_share", 0.001, 1), ("minutes", 0.1, 1e4), ("replicas", 1, 1e3)):
        if not low <= getattr(args, name) <= high:
            raise DflashError(f"--{name.replace('_', '-')} must be from {low:g} to {high:g}")
    if min(args.developers) < 1 or max(args.developers) > 100_000:
        raise DflashError("--developers must be from 1 to 100000")
    report = _simulate(args)
    if args.plot is not None:
        from server.benchmarks.load.plot import draw

        title = f"{report['cost']['name']}, {args.replicas} replica{'s' if args.replicas > 1 else ''}"
        args.plot.write_text(draw(report["runs"], report["target_ms"], title), encoding="utf-8")
    print(json.dumps(report) if args.json else _table(report))
    return 0


def _simulate(args: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    from server.benchmarks.load.cost import read_cost
    from server.benchmarks.load.simulation import TARGET_MS, replicas_due, simulate

    traces = _traces(args.trace)
    cost = asyncio.run(_measure(args)) if args.measure else read_cost(args.cost)
    how = {"minutes": args.minutes, "right": args.right, "typing_share": args.typing_share, "seed": args.seed}
    runs, due = [], []
    for developers in sorted(set(args.developers)):
        print(f"{developers} developers", file=sys.stderr, flush=True)
        runs.append(simulate(traces, cost, developers, replicas=args.replicas, **how))
        if args.due:
            fewest = replicas_due(traces, cost, developers, **how)
            due.append({"developers": developers, "replicas": fewest and fewest["replicas"]})
    report = {"cost": asdict(cost), "traces": len(traces), **how, "target_ms": TARGET_MS, "runs": runs}
    return {**report, "due": due} if args.due else report


def _traces(files: list[Path] | None) -> list[Trace]:
    import server
    from server.benchmarks.keystrokes.traces import read_trace, traces_of

    if files:
        return [read_trace(file) for file in files]
    folder = Path(server.__file__).parent
    return [trace for source in SOURCES for trace in traces_of(folder / source)]


async def _measure(args: argparse.Namespace) -> EngineCost:
    import server
    from server.benchmarks.load.measure import measure_cost
    from server.engine.launcher import ensure_engine
    from server.profiles import load_profile

    profile = load_profile(args.profile)
    text = (Path(server.__file__).parent / SOURCES[0]).read_text(encoding="utf-8")[:1500]
    client = await ensure_engine(profile)
    try:
        return await measure_cost(client, text, args.at_once, profile.name)
    finally:
        await client.aclose()


def _table(report: dict[str, Any]) -> str:
    from server.cli.table import aligned

    heads = ["developers", "requests/s", "busy", "a round", "first ms p50/p95", "whole ms p50/p95", "overtaken"]
    rows = [heads]
    for each in report["runs"]:
        first, whole = (_pair(each[what]) for what in ("first_ms", "whole_ms"))
        busy, overtaken = f"{100 * each['busy']:.0f} %", f"{100 * each['overtaken']:.1f} %"
        together = f"{each['requests_per_round']:.1f}"
        rows.append([str(each["developers"]), f"{each['requests_per_s']:.1f}", busy, together, first, whole, overtaken])
    lines = [f"{report['cost']['name']}: {report['cost']['source']}", aligned(rows)]
    for each in report.get("due", []):
        lines.append(f"{each['developers']} developers: {each['replicas'] or 'no number of'} replicas hold the target")
    return "\n".join(lines)


def _pair(times: dict[str, float]) -> str:
    return f"{times['p50']:.0f} / {times['p95']:.0f}" if times else "none"
