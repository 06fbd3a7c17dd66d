"""Plots as SVG text: lines over numbers, bars over names. Enough for a report page, without a plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 190, 34, 40
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#7f7f7f", "#bcbd22")


@dataclass(frozen=True)
class Line:
    """Points (x, y) in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


def line_plot(title: str, x_name: str, y_name: str, lines: Sequence[Line]) -> str:
    points = [point for line in lines for point in line.points]
    x_ticks, y_ticks = _ticks([x for x, _ in points]), _ticks([y for _, y in points])
    parts = _frame(title, x_name, y_name, y_ticks)
    for tick in x_ticks:
        parts.append(_text(_scale(tick, x_ticks, LEFT, WIDTH - RIGHT), HEIGHT - BOTTOM + 16, f"{tick:g}", "middle"))
    for number, line in enumerate(lines):
        places = " ".join(
            f"{_scale(x, x_ticks, LEFT, WIDTH - RIGHT):.1f},{_scale(y, y_ticks, HEIGHT - BOTTOM, TOP):.1f}"
            for x, y in line.points
        )
        parts.append(f'<polyline fill="none" stroke="{_colour(number)}" stroke-width="1.6" points="{places}"/>')
    return _svg(parts + _legend([line.name for line in lines]))


def bar_plot(title: str, y_name: str, groups: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> str:
    """One bar a group and series, from zero; None leaves a place empty."""
    values = [value for each in series.values() for value in each if value is not None]
    y_ticks = _ticks([0.0, *values])
    parts = _frame(title, "", y_name, y_ticks)
    room = (WIDTH - RIGHT - LEFT) / max(1, len(groups))
    bar = room * 0.8 / max(1, len(series))
    for place, group in enumerate(groups):
        begin = LEFT + place * room
        parts.append(_text(begin + room / 2, HEIGHT - BOTTOM + 16, group, "middle"))
        for number, each in enumerate(series.values()):
            value = each[place]
            if value is not None:
                top, foot = _scale(value, y_ticks, HEIGHT - BOTTOM, TOP), _scale(0, y_ticks, HEIGHT - BOTTOM, TOP)
                x = begin + room * 0.1 + number * bar
                place_and_size = f'x="{x:.1f}" y="{top:.1f}" width="{bar:.1f}" height="{foot - top:.1f}"'
                parts.append(f'<rect {place_and_size} fill="{_colour(number)}"/>')
    return _svg(parts + _legend(list(series)))


def _frame(title: str, x_name: str, y_name: str, y_ticks: Sequence[float]) -> list[str]:
    parts = [_text(LEFT, 18, title, "start", bold=True), _text(WIDTH - RIGHT, HEIGHT - 8, x_name, "end")]
    parts.append(_text(6, TOP - 6, y_name, "start"))
    for tick in y_ticks:
        y = _scale(tick, y_ticks, HEIGHT - BOTTOM, TOP)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{tick:g}", "end"))
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        y, x = TOP + 16 * number, WIDTH - RIGHT + 12
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{_colour(number)}"/>')
        parts.append(_text(x + 16, y + 9, name, "start"))
    return parts


def _ticks(values: Sequence[float]) -> list[float]:
    """Round numbers that hold all values between them."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high <= low:
        low, high = low - 0.5, low + 0.5
    step = 10.0 ** len(f"{int((high - low) / 10):d}") / 100
    while (high - low) / step > 7:
        step *= 2 if f"{step:e}"[0] in "15" else 2.5
    first = int(low // step)
    return [round((first + number) * step, 10) for number in range(int(-(-high // step)) - first + 1)]


def _scale(value: float, ticks: Sequence[float], begin: float, end: float) -> float:
    return begin + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (end - begin)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _svg(parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])
