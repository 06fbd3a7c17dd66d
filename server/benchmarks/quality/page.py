"""The report page of `bench quality`: tables and plots of one or two pairs, side by side, as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from server.benchmarks.plot import Line, bar_plot, line_plot

COLUMNS = (
    ("holes", "holes"),
    ("middle_bits_per_token", "bits/token"),
    ("exact_match", "exact"),
    ("exact_match_of_one_line", "exact, one line"),
    ("edit_similarity", "similar"),
    ("parse_ok", "parses"),
    ("stopped_at_boundary", "stops"),
    ("stopped_where_the_unit_fits", "stops, if its unit fits"),
    ("acceptance_length", "acceptance"),
)
PLOTTED = (
    "middle_bits_per_token",
    "exact_match",
    "stopped_at_boundary",
    "stopped_where_the_unit_fits",
    "acceptance_length",
)


def page(reports: Sequence[dict[str, Any]]) -> str:
    parts = [
        "<!doctype html><meta charset=utf-8><title>Completion quality</title>",
        STYLE,
        "<h1>Completion quality</h1>",
    ]
    for report in reports:
        equal = {True: "equal", False: "NOT equal", None: "not compared"}[report["draft_equals_target"]]
        parts.append(
            f"<p><b>{escape(_name(report))}</b>: {escape(str(report['device']))}, {report['dtype']}, "
            f"{report['files']} files; texts with and without the draft ({report['compared']} compared): {equal}.</p>"
        )
        if infilling := report.get("infilling"):
            share = f"{infilling['pass_at_1']:.1%}"
            parts.append(f"<p>HumanEval single-line infilling: {share} of {infilling['tasks']} tasks pass.</p>")
    for heading, key in (("By language", "by_language"), ("By kind of hole", "by_kind")):
        parts += [f"<h2>{heading}</h2>", _table(reports, key)]
        for column in PLOTTED:
            groups = sorted({name for report in reports for name in report[key]})
            series = {_name(report): [report[key].get(group, {}).get(column) for group in groups] for report in reports}
            parts.append(bar_plot(column.replace("_", " "), "", groups, series))
    parts.append("<h2>Acceptance</h2>")
    by_position = [
        Line(_name(report), [(k + 1, share or 0.0) for k, share in enumerate(report["all"]["acceptance_by_position"])])
        for report in reports
        if report["all"]["acceptance_by_position"]
    ]
    if by_position:
        parts.append(line_plot("rounds whose first k drafted tokens were right", "k", "share", by_position))
    groups = list(reports[0]["all"]["acceptance_by_length"])
    lengths = {_name(report): [report["all"]["acceptance_by_length"][group] for group in groups] for report in reports}
    parts.append(bar_plot("acceptance length by tokens written before", "", groups, lengths))
    return "\n".join(parts) + "\n"


STYLE = (
    "<style>body{font:14px sans-serif;margin:2em;max-width:60em}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:3px 8px;text-align:right}"
    "td:first-child,th:first-child{text-align:left}</style>"
)


def _name(report: dict[str, Any]) -> str:
    return str(report.get("label") or report["profile"])


def _table(reports: Sequence[dict[str, Any]], key: str) -> str:
    rows = ["<tr><th></th><th>pair</th>" + "".join(f"<th>{title}</th>" for _, title in COLUMNS) + "</tr>"]
    for group in [*sorted({name for report in reports for name in report[key]}), "all"]:
        for report in reports:
            found = report["all"] if group == "all" else report[key].get(group)
            if found:
                cells = "".join(f"<td>{'' if found[name] is None else found[name]}</td>" for name, _ in COLUMNS)
                rows.append(f"<tr><td>{escape(group)}</td><td>{escape(_name(report))}</td>{cells}</tr>")
    return "<table>" + "\n".join(rows) + "</table>"
