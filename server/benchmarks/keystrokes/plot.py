"""A report of the bench as a picture: for each row of it a line from the 50th to the 95th percentile.

Written as SVG, which needs no library; milliseconds lie on a logarithmic axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from server.benchmarks.keystrokes.report import STAGES

WIDTH, LEFT, RIGHT, ROW, TOP = 860, 330, 40, 24, 56
DECADES = (1, 10, 100, 1000, 10_000)  # ms
FONT = "font-family='sans-serif' font-size='12'"
KINDS = {"first_visible_ms": "first visible", "full_ms": "whole"}


@dataclass(frozen=True)
class Bar:
    """One row: times in milliseconds, and what they must not exceed."""

    name: str
    p50: float
    p95: float
    goal: float | None = None


def bars_of_traces(report: dict[str, Any]) -> list[Bar]:
    """The stages of each draft mode, as far as they answered anything."""
    return [
        Bar(f"draft {draft}: {stage}, {words} ({times['count']})", times["p50"], times["p95"])
        for draft, of_draft in report["draft"].items()
        for stage in (*STAGES, "all")
        for kind, words in KINDS.items()
        for times in [of_draft["stages"][stage][kind]]
        if times["count"]
    ]


def bars_of_scenarios(report: dict[str, Any]) -> list[Bar]:
    """What is measured in milliseconds, with the goals for the 95th percentile."""
    own, known = report["own_share"], report["known"]
    rows = (
        ("own share of a request", own, 10),
        ("of which: a constant answer", own["answer_without_work"], None),
        ("not in it: the engine without the server", own["engine_alone"], None),
        ("typed-through answer", known["shown"], 5),
        ("cached answer", known["cache"], 5),
        ("$/cancelRequest to its answer", report["cancel"], 5),
        ("50 matching keys", report["matching"], None),
    )
    return [Bar(name, times["p50"], times["p95"], goal) for name, times, goal in rows]


def svg(title: str, bars: Sequence[Bar]) -> str:
    """The picture."""
    height = TOP + ROW * len(bars) + 30
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' {FONT}>",
        f"<rect width='{WIDTH}' height='{height}' fill='white'/>",
        f"<text x='10' y='20' font-size='14'>{escape(title)}</text>",
        "<text x='10' y='38' fill='#666'>ms from sending to the client: o 50th, | 95th percentile, red: goal</text>",
    ]
    for decade in DECADES:
        x = _x(decade)
        parts.append(f"<line x1='{x}' y1='{TOP - 8}' x2='{x}' y2='{height - 24}' stroke='#ddd'/>")
        parts.append(f"<text x='{x}' y='{height - 8}' text-anchor='middle' fill='#666'>{decade:,}</text>")
    for number, bar in enumerate(bars):
        y = TOP + ROW * number + ROW / 2
        one, other = _x(bar.p50), _x(bar.p95)
        parts.append(f"<text x='{LEFT - 12}' y='{y + 4}' text-anchor='end'>{escape(bar.name)}</text>")
        parts.append(f"<line x1='{one}' y1='{y}' x2='{other}' y2='{y}' stroke='#48c' stroke-width='3'/>")
        parts.append(f"<line x1='{other}' y1='{y - 6}' x2='{other}' y2='{y + 6}' stroke='#48c' stroke-width='3'/>")
        parts.append(f"<circle cx='{one}' cy='{y}' r='5' fill='white' stroke='#48c' stroke-width='2'/>")
        if bar.goal is not None:
            x = _x(bar.goal)
            parts.append(f"<line x1='{x}' y1='{y - 9}' x2='{x}' y2='{y + 9}' stroke='#c33' stroke-width='2'/>")
        numbers = f"{bar.p50:g} / {bar.p95:g}"
        parts.append(f"<text x='{max(one, other) + 10}' y='{y + 4}' fill='#666' font-size='11'>{numbers}</text>")
    return "\n".join([*parts, "</svg>", ""])


def _x(ms: float) -> float:
    """Where a time lies; shorter than the first decade at its edge."""
    first, last = (math.log10(decade) for decade in (DECADES[0], DECADES[-1]))
    share = (math.log10(max(ms, DECADES[0])) - first) / (last - first)
    return round(LEFT + min(share, 1.0) * (WIDTH - LEFT - RIGHT), 1)
