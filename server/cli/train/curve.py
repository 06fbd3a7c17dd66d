"""The curve of a training run: a file of rows that grows with the run, and a plot of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from server.benchmarks.plot import Line, line_plot

SHOWN = ("due_bits", "rest_bits", "loss", "acceptance_length_teacher_forced")


class Curve:
    """Rows of `curve.jsonl` in a folder."""

    def __init__(self, folder: Path, *, going_on: bool) -> None:
        """going_on: rows of an earlier piece of the run are there and stay."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "curve.jsonl"
        if not going_on:
            self._file.unlink(missing_ok=True)
        earlier = self._file.read_text().splitlines() if self._file.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in earlier]

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        line = json.dumps(row)
        with self._file.open("a") as file:
            file.write(line + "\n")
        print(line, file=sys.stderr, flush=True)

    def plot(self, title: str) -> None:
        """`curve.svg` beside the rows."""
        lines = curve_lines(self.rows)
        if lines:
            self._file.with_suffix(".svg").write_text(line_plot(title, "step", "", lines))


def curve_lines(rows: list[dict[str, Any]]) -> list[Line]:
    """A line for each number that rows report by step, held-out ones by split."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        values = dict[str, float]()
        for key in SHOWN:
            if key in row:
                values[key] = row[key]
        for split, held in row.get("held", {}).items():
            values[f"held {split}, due"] = held["due"]
        for name, value in values.items():
            found.setdefault(name, []).append((row["step"], value))
    return [Line(name, points) for name, points in found.items()]
