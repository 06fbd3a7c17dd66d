"""The bench's reports for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.benchmarks.keystrokes.report import STAGES
from server.cli.table import aligned

FIGURES = ("requests", "answered", "share_without_engine", "shown", "shown_characters", "accepted")
MORE_FIGURES = ("accepted_characters", "keys", "keys_spared")


def goals_table(goals: Sequence[dict[str, Any]]) -> str:
    """What was promised, and what it came to."""
    rows = [["what", "figure", "at most", ""]]
    for goal in goals:
        rows.append([goal["what"], f"{goal['figure']:g}", f"{goal['at_most']:g} {goal['unit']}", _met(goal["met"])])
    return aligned(rows)


def traces_table(report: dict[str, Any]) -> str:
    """Times by stage as `50th / 95th percentile (answers)`, and figures; one column for each draft mode."""
    drafts = report["draft"]
    rows = [["ms, p50 / p95 (answers)", *[f"draft {draft}" for draft in drafts]]]
    for stage in (*STAGES, "all"):
        for kind, words in (("first_visible_ms", "first visible"), ("full_ms", "whole")):
            times = [of_draft["stages"][stage][kind] for of_draft in drafts.values()]
            rows.append([f"{stage}: {words}", *[_times(each) for each in times]])
    for figure in (*FIGURES, *MORE_FIGURES):
        rows.append([figure.replace("_", " "), *[str(of_draft[figure]) for of_draft in drafts.values()]])
    for kind in ("generated", "shown", "accepted", "wasted"):
        rows.append([f"tokens {kind}", *[_number(of_draft["tokens"][kind]) for of_draft in drafts.values()]])
    return aligned(rows)


def rows_table(report: dict[str, Any]) -> str:
    """Any report, one row for each figure."""
    return aligned([["what", "figure"], *[[name, str(value)] for name, value in _flat(report)]])


def _met(met: bool) -> str:
    return "" if met else "missed"


def _times(times: dict[str, Any]) -> str:
    return f"{times['p50']:g} / {times['p95']:g} ({times['count']})" if times["count"] else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _flat(report: dict[str, Any], path: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in report.items():
        name = f"{path} {key}".strip()
        rows += _flat(value, name) if isinstance(value, dict) else [(name, value)]
    return rows
