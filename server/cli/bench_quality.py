"""How good a pair's completions are on held-out files, by language and kind of hole."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    parser.add_argument("--corpus", type=Path, metavar="DIR", help="folder of `train corpus`: its held-out documents")
    add_profile_argument(parser)
    parser.add_argument("--against", metavar="NAME|PATH.toml", help="a second pair, measured on the same holes")
    parser.add_argument("--count", type=int, default=100, metavar="N", help="holes a language (default: %(default)s)")
    parser.add_argument("--language", action="append", default=[], metavar="NAME", help="only this language")
    parser.add_argument(
        "--check", type=int, default=8, metavar="N", help="holes a language decoded without the draft as well"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which holes (default: %(default)s)")
    parser.add_argument("--infilling", type=Path, metavar="FILE.jsonl.gz", help="HumanEval infilling tasks")
    parser.add_argument("--tasks", type=int, metavar="N", help="so many of the tasks (default: all)")
    parser.add_argument(
        "--run-code", action="store_true", help="run the tasks' tests: generated code, shut in as another user"
    )
    parser.add_argument("--page", type=Path, metavar="FILE.html", help="write a report page with plots")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from server.benchmarks.quality import sandbox
    from server.engine.threads import engine_environment
    from server.errors import DflashError
    from server.profiles import load_profile

    if args.corpus is None and args.infilling is None:
        raise DflashError("nothing to measure: give --corpus DIR, --infilling FILE, or both")
    if args.infilling is not None:
        if not args.run_code:
            raise DflashError("the infilling tasks run generated code: say --run-code to allow it")
        if reason := sandbox.refusal():
            raise DflashError(reason)
    profiles = [load_profile(name) for name in (args.profile, args.against) if name]
    # Before torch is imported, as for the engine's own process.
    os.environ.update(engine_environment(profiles[0].engine.threads, os.environ))
    from server.benchmarks.quality.infilling import read_tasks
    from server.benchmarks.quality.measure import held_out_places, infill, measure
    from server.benchmarks.quality.page import page
    from server.benchmarks.quality.writer import Writer

    tasks = read_tasks(args.infilling, args.tasks) if args.infilling else []
    reports: list[dict[str, Any]] = []
    places = None
    for profile in profiles:
        writer = Writer(profile)
        if places is None:
            places = held_out_places(args.corpus, writer, args.count, args.seed) if args.corpus else {}
            if args.corpus and not places:
                raise DflashError(f"no held-out token shards held-*.npy in {args.corpus}")
            places = {name: own for name, own in places.items() if not args.language or name in args.language}
        report, _ = measure(writer, places, args.check, _say)
        if tasks:
            report["infilling"] = infill(writer, tasks, _say)
        reports.append(report)
    if len(reports) == 2 and reports[0]["profile"] == reports[1]["profile"]:
        reports[1]["label"] = f"{reports[1]['profile']} (against)"
    if args.page:
        args.page.write_text(page(reports), encoding="utf-8")
    result = reports[0] | ({"against": reports[1]} if len(reports) > 1 else {})
    if args.json:
        print(json.dumps(result))
    else:
        _print(reports)
    return 0


def _print(reports: list[dict[str, Any]]) -> None:
    from server.benchmarks.quality.page import COLUMNS
    from server.cli.table import aligned

    rows = [["", "pair", *(title for _, title in COLUMNS)]]
    for report in reports:
        for name, found in [*report["by_language"].items(), *report["by_kind"].items(), ("all", report["all"])]:
            cells = ["" if found[key] is None else str(found[key]) for key, _ in COLUMNS]
            rows.append([name, str(report.get("label") or report["profile"]), *cells])
    print(aligned(rows))
    for report in reports:
        if infilling := report.get("infilling"):
            print(f"{report['profile']}: {infilling['pass_at_1']:.1%} of {infilling['tasks']} infilling tasks pass")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
