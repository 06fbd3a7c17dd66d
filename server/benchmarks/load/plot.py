"""Draws latency by the number of developers as an SVG, both axes logarithmic; nothing but text is needed for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
LINES = (
    ("first_ms", "p50", "#9bb8d3", "first text, median"),
    ("first_ms", "p95", "#3b74ad", "first text, 95 %"),
    ("whole_ms", "p50", "#e3b58c", "whole text, median"),
    ("whole_ms", "p95", "#c05f12", "whole text, 95 %"),
)


def draw(runs: Sequence[dict[str, Any]], target_ms: float, title: str) -> str:
    """An SVG of the runs, which are sorted by developers."""
    shown = [run for run in runs if run["whole_ms"]]
    times = [run[what][which] for run in shown for what, which, _, _ in LINES]
    low, high = _decades([*times, target_ms])
    first, last = _decades([run["developers"] for run in shown])

    def x(developers: float) -> float:
        return LEFT + (math.log10(developers) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(ms: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(max(ms, 10**low)) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', _text(LEFT, 22, title, size=14)]
    for decade in range(first, last + 1):
        place = x(10**decade)
        parts += [
            _line([(place, TOP), (place, HEIGHT - BOTTOM)], "#ddd"),
            _text(place - 8, HEIGHT - 30, f"{10**decade}"),
        ]
    for decade in range(low, high + 1):
        place = y(10**decade)
        parts += [_line([(LEFT, place), (WIDTH - RIGHT, place)], "#ddd"), _text(8, place + 4, f"{10**decade} ms")]
    parts.append(_line([(LEFT, y(target_ms)), (WIDTH - RIGHT, y(target_ms))], "#a00", dash="6 4"))
    parts.append(_text(LEFT + 6, y(target_ms) - 5, f"target {target_ms:g} ms"))
    for number, (what, which, colour, name) in enumerate(LINES):
        parts.append(_line([(x(run["developers"]), y(run[what][which])) for run in shown], colour, width=2))
        place = TOP + 14 + 16 * number
        parts += [
            _line([(LEFT + 10, place - 4), (LEFT + 30, place - 4)], colour, width=2),
            _text(LEFT + 36, place, name),
        ]
    parts.append(_text(WIDTH / 2 - 40, HEIGHT - 10, "developers"))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(parts) + "\n</svg>\n"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def _line(points: Sequence[tuple[float, float]], colour: str, width: float = 1, dash: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def _text(x: float, y: float, text: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" font-size="{size}">{escape(text)}</text>'
