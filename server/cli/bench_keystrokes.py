"""What a user waits for, key by key, on a real server driven over stdio."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from server.errors import DflashError

DRAFTS = ("auto", "on", "off")
REQUESTS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    parser.add_argument(
        "--trace", nargs="+", type=Path, metavar="FILE.jsonl", help="play recorded traces with a model (default: none)"
    )
    parser.add_argument("--record", type=Path, metavar="FILE.py", help="write a trace for each function of a file")
    parser.add_argument("--to", type=Path, metavar="FOLDER", default=Path(), help="where --record writes")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="times as fast as recorded")
    parser.add_argument("--draft", nargs="+", choices=DRAFTS, default=list(DRAFTS), help="(default: all)")
    parser.add_argument(
        "--requests", type=int, default=REQUESTS, metavar="N", help="measured for each number (default: %(default)s)"
    )
    parser.add_argument(
        "--soak",
        type=int,
        metavar="EDITS",
        help="instead: random edits, with a tenth as many requests; ends with 1 when the texts differ",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="write the times as a picture")
    add_profile_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.record is not None:
        return _record(args.record, args.to)
    if args.plot is not None and args.soak is not None:
        raise DflashError("--soak has no times to plot")
    if args.soak is not None:
        report = asyncio.run(_soak(args.soak))
    else:
        report = asyncio.run(_traces(args) if args.trace else _scenarios(args.requests))
    if args.plot is not None:
        _write_plot(report, args.plot)
    print(json.dumps(report) if args.json else _table(report))
    return 0


def _record(file: Path, folder: Path) -> int:
    from server.benchmarks.keystrokes.traces import traces_of, write_trace

    folder.mkdir(parents=True, exist_ok=True)
    for number, trace in enumerate(traces_of(file), start=1):
        path = folder / f"{file.stem}-{number}.jsonl"
        write_trace(trace, path)
        print(path, file=sys.stderr)
    return 0


async def _scenarios(requests: int) -> dict[str, Any]:
    from server.benchmarks.keystrokes.goals import goals_met
    from server.benchmarks.keystrokes.scenarios import run_scenarios

    report = await run_scenarios(requests)
    return {"engine": "replay", **report, "goals": goals_met(report)}


async def _soak(edits: int) -> dict[str, Any]:
    from server.benchmarks.keystrokes.scenarios import replaying
    from server.benchmarks.keystrokes.soak import soak

    async with replaying() as (profile, _):
        return {"engine": "replay", **await soak(profile, edits)}


async def _traces(args: argparse.Namespace) -> dict[str, Any]:
    from server.benchmarks.keystrokes.report import summed
    from server.benchmarks.keystrokes.traces import read_trace

    traces = [read_trace(path) for path in args.trace]
    drafts = {draft: await summed(traces, args.profile, draft, args.speed) for draft in args.draft}
    return {"profile": args.profile, "traces": len(traces), "speed": args.speed, "draft": drafts}


def _write_plot(report: dict[str, Any], file: Path) -> None:
    from server.benchmarks.keystrokes.plot import bars_of_scenarios, bars_of_traces, svg

    if "draft" in report:
        picture = svg(f"Keystrokes, profile {report['profile']}", bars_of_traces(report))
    else:
        picture = svg("Keystrokes, replay engine at 5 ms a block", bars_of_scenarios(report))
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise DflashError(f"cannot write {file}: {error.strerror}") from error


def _table(report: dict[str, Any]) -> str:
    from server.benchmarks.keystrokes.tables import goals_table, rows_table, traces_table

    if "draft" in report:
        return traces_table(report)
    if "goals" in report:
        return goals_table(report["goals"])
    return rows_table(report)
