"""Measure parts of the product; each bench prints a table, or one JSON object."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.benchmarks.cases import Failure
    from server.profiles import Profile

CASES_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    benches = parser.add_subparsers(dest="bench", metavar="BENCH", required=True)
    boundaries = benches.add_parser(
        "boundaries",
        help="where completions end: hand-written cases, holes cut out of source files, or odd input",
        description="Where completions end: hand-written cases, holes cut out of source files, or odd input.",
    )
    what = boundaries.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--cases", nargs="+", type=Path, metavar="FILE.jsonl", help="cases to run on a replay engine of their own"
    )
    what.add_argument(
        "--holes", nargs="+", type=Path, metavar="PATH", help="source files or folders to cut holes out of"
    )
    what.add_argument(
        "--odd",
        nargs="?",
        type=int,
        const=1000,
        metavar="N",
        help="N characters of each kind of odd input around the cursor: what it costs at most (default: 1000)",
    )
    boundaries.add_argument(
        "--language",
        action="append",
        default=[],
        metavar="NAME",
        help="only this language (default: all that are found)",
    )
    boundaries.add_argument(
        "--count",
        type=int,
        default=2000,
        metavar="N",
        help="holes or odd input for each language (default: %(default)s)",
    )
    boundaries.add_argument("--seed", type=int, default=1, metavar="N", help="which holes (default: %(default)s)")
    boundaries.add_argument(
        "--alone", action="store_true", help="take away the file's rest: no text below tells where a unit ends"
    )
    boundaries.add_argument(
        "--text",
        choices=("own", "foreign", "broken"),
        default="own",
        help="what is streamed into the holes: the file's own text and on, the text of another hole, or the own text"
        " broken off (default: %(default)s)",
    )
    boundaries.add_argument("--json", action="store_true", help="print one JSON object")
    context = benches.add_parser(
        "context",
        help="what prompts cost, how much of them stays from key to key, and what the index takes",
        description="What prompts cost, how much of them stays from key to key, and what the index takes.",
    )
    add_profile_argument(context)
    context.add_argument(
        "--sources",
        type=Path,
        metavar="FOLDER",
        help="Python files to type in and to index (default: the installed library)",
    )
    context.add_argument("--trace", type=Path, metavar="FILE.json", help="a recorded trace to measure reuse with")
    context.add_argument(
        "--files",
        type=int,
        default=5000,
        metavar="N",
        help="files to index, 0 for none (default: %(default)s)",
    )
    context.add_argument(
        "--related",
        type=int,
        default=0,
        metavar="N",
        help="complete N holes of the sources with and without what prompts show of other places, on the profile's"
        " engine, and measure nothing else",
    )
    context.add_argument("--seed", type=int, default=1, metavar="N", help="which holes (default: %(default)s)")
    context.add_argument("--language", default="python", metavar="NAME", help="of these holes (default: %(default)s)")
    context.add_argument("--json", action="store_true", help="print one JSON object")
    for name, module in _own_modules().items():
        bench = benches.add_parser(name, help=module.__doc__, description=module.__doc__)
        module.add_arguments(bench)


def _own_modules() -> dict[str, ModuleType]:
    """Benches that have a module of their own."""
    from server.cli import bench_engine, bench_keystrokes, bench_load, bench_quality

    return {"keystrokes": bench_keystrokes, "load": bench_load, "engine": bench_engine, "quality": bench_quality}


def run(args: argparse.Namespace) -> int:
    own = _own_modules().get(args.bench)
    if own is not None:
        return int(own.run(args))
    if args.bench == "context":
        if args.sources is not None:
            args.sources = args.sources.resolve()
        return asyncio.run(_run_context(args))
    if args.odd is not None:
        return _run_odd_input(args)
    return _run_cases(args) if args.cases else _run_holes(args)


def _run_odd_input(args: argparse.Namespace) -> int:
    from server.benchmarks.odd_input import sweep
    from server.context.languages import LANGUAGES
    from server.profiles import load_profile

    languages = [each for each in LANGUAGES if not args.language or each.name in args.language]
    reports = asyncio.run(sweep(load_profile("embedded"), languages, args.odd, args.count, args.seed, _say))
    if args.json:
        print(json.dumps({name: report.to_json() for name, report in reports.items()}))
    else:
        for name, report in reports.items():
            ms, case = report.worst["all"]
            print(
                f"{name}: {report.cases} cases, worst {ms:.0f} ms ({case}), {len(report.over_budget)} over budget,"
                f" {len(report.unsound)} parse worse"
            )
    return 1 if any(report.over_budget or report.unsound for report in reports.values()) else 0


async def _run_context(args: argparse.Namespace) -> int:
    import sysconfig

    from server.benchmarks.context import LINES, measure_assembly, measure_index, measure_reuse
    from server.benchmarks.traces import read_trace
    from server.errors import DflashError
    from server.profiles import load_profile

    profile = load_profile(args.profile)
    sources = args.sources or Path(sysconfig.get_path("stdlib"))
    if not sources.is_dir():
        raise DflashError(f"{sources} is not a folder")
    if args.related:
        return await _run_related(args, profile, sources)
    report: dict[str, Any] = {"profile": profile.name, "assembly": []}
    for lines in LINES:
        _say(f"typing in a file of {lines} lines")
        report["assembly"].append(await measure_assembly(profile, sources, lines))
    if args.trace is not None:
        report["reuse"] = await measure_reuse(profile, read_trace(args.trace))
    if args.files:
        report["index"] = await measure_index(profile, sources, args.files, _say)
    if args.json:
        print(json.dumps(report))
    else:
        _print_context(report)
    return 0


async def _run_related(args: argparse.Namespace, profile: Profile, sources: Path) -> int:
    from server.benchmarks.holes import languages_with_grammar
    from server.benchmarks.related import measure_related
    from server.cli.table import aligned
    from server.errors import DflashError

    languages = languages_with_grammar([args.language])
    if not languages:
        raise DflashError(f"no language with a grammar is named {args.language}")
    report = await measure_related(profile, sources, languages[0], args.related, args.seed, _say)
    if args.json:
        print(json.dumps(report))
        return 0
    rows = [["shown", "exact match %", "edit similarity"]]
    rows += [[arm, str(each["exact_match"]), str(each["edit_similarity"])] for arm, each in report["arms"].items()]
    shown = report["where_chunks_were_shown"]
    print(f"{report['holes']} holes, at {shown['holes']} of them chunks of other places were shown")
    print(aligned(rows))
    return 0


def _print_context(report: dict[str, Any]) -> None:
    for each in report["assembly"]:
        ms, processor = each["ms"], each["processor_ms"]
        print(
            f"{each['lines']} lines: {ms['p50']} ms a request (p95 {ms['p95']}), of the processor {processor['p50']}"
            f" (p95 {processor['p95']}); {each['reused']} % of the prompt tokens stay"
        )
    for name, share in report.get("reuse", {}).get("reused", {}).items():
        print(f"{name}: {share} % of the prompt tokens stay over {report['reuse']['keys']} keys")
    if "index" in report:
        index, ms = report["index"], report["index"]["ms"]
        print(
            f"index: {index['files']} files, {index['definitions']} definitions in {index['scan_s']} s and"
            f" {index['peak_memory_mb']} MB; requests meanwhile {ms['p50']} ms (p95 {ms['p95']})"
        )


def _run_cases(args: argparse.Namespace) -> int:
    from server.benchmarks.cases import check_times, read_cases, run_cases
    from server.benchmarks.hole_stops import quantiles

    cases = [
        case for path in args.cases for case in read_cases(path) if not args.language or case.language in args.language
    ]
    failures = asyncio.run(run_cases(cases, _say_progress))
    report = {
        "cases": len(cases),
        "passed": len(cases) - len(failures),
        "failed": [{"id": each.id, "got": each.got, "pieces": each.pieces} for each in failures],
        "check_ms": quantiles(check_times(cases)),
    }
    if args.json:
        print(json.dumps(report))
    else:
        _print_cases(report, failures)
    return 0


def _run_holes(args: argparse.Namespace) -> int:
    from server.benchmarks.hole_stops import measure
    from server.benchmarks.holes import languages_with_grammar
    from server.errors import DflashError

    for path in args.holes:
        if not path.exists():
            raise DflashError(f"{path} does not exist")
    languages = languages_with_grammar(args.language)
    if not languages:
        raise DflashError(f"no language with a grammar is named {', '.join(args.language)}")
    found: dict[str, Any] = {}
    for language in languages:
        tally = measure(
            language, [each.resolve() for each in args.holes], args.count, args.seed, alone=args.alone, text=args.text
        )
        if tally.stops:
            found[language.name] = tally.to_json(args.text)
            print(f"{language.name}: {len(tally.stops)} holes", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"text": args.text, "languages": found}))
    else:
        _print_holes(found)
    return 0


def _print_cases(report: dict[str, Any], failures: list[Failure]) -> None:
    for each in failures[:CASES_SHOWN]:
        print(f"{each.id} ({each.pieces}): got {each.got!r}")
    print(f"{report['passed']} of {report['cases']} cases passed; a block is checked in {_times(report['check_ms'])}")


def _print_holes(found: dict[str, Any]) -> None:
    from server.cli.table import aligned

    rates = {
        "exact": "exact %",
        "equal_or_no_worse": "equal or no worse %",
        "no_worse": "no worse %",
        "as_it_came": "as it came %",
        "nothing_offered": "nothing offered %",
    }
    rates = {key: name for key, name in rates.items() if any(key in tally for tally in found.values())}
    rows = [["language", "holes", *rates.values(), "set-up ms p50/p95", "check ms p50/p95", "answer ms p50/p95"]]
    for name, tally in found.items():
        times = [tally[key] for key in ("setup_ms", "check_ms", "answer_ms")]
        cells = [f"{tally[key]:.2f}" for key in rates] + [f"{each['p50']:.2f} / {each['p95']:.2f}" for each in times]
        rows.append([name, str(tally["holes"]), *cells])
    print(aligned(rows))


def _times(quantiles: dict[str, float]) -> str:
    return f"{quantiles['p50']} ms (p95 {quantiles['p95']})" if quantiles else "no time"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_progress(done: int, total: int) -> None:
    print(f"{done} of {total} runs", file=sys.stderr, flush=True)
