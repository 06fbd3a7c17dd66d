"""Measures Neovim with the plugin and the replay engine: from a key to the first ghost text on the screen.

    tests/e2e/editors_setup.sh
    tests/e2e/editors.sh --figures [--neovim 0.11] [--keys 200] [--lines 40] [--write FILE]

Each measured key is one after which the server has nothing to go on with: it has to ask the engine. The time ends with
the last byte of the picture that shows the text. Prints one JSON object, and writes it where it is told to.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from datetime import date
from pathlib import Path

from recording import RECORDING
from world import world

from neovim import Neovim, install_package, neovims, options

TEXT = "width * height"
GOAL_MS = 30.0  # of the 95th percentile


def measured_key(nvim: Neovim) -> float:
    """Seconds from the blank behind `area =` until its completion is drawn."""
    nvim.type("oarea =")
    nvim.wait(lambda: nvim.lines[nvim.screen.cursor.y].endswith("area ="), "the line typed")
    nvim.watch(0.25)  # as long as somebody may think; whatever `area =` has led to has ended by then
    begun = time.monotonic()
    nvim.type(" ")
    nvim.wait_ghost(TEXT)
    taken = nvim.drawn_at - begun
    nvim.escape()
    nvim.wait_ghost("")
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description="Key to first ghost text in Neovim, with the replay engine.")
    parser.add_argument("--neovim", default="0.11", choices=sorted(neovims()), help="the version to measure")
    parser.add_argument("--keys", type=int, default=200, help="how many keys are measured")
    parser.add_argument("--lines", type=int, default=40, help="how many lines the file has before the first key")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the figures here")
    arguments = parser.parse_args()
    with world(RECORDING) as here:
        install_package(here)
        file = here.write("latency.py", "".join(f"line_{number} = {number}\n" for number in range(arguments.lines)))
        nvim = Neovim(arguments.neovim, here, file, init=options(here))
        try:
            nvim.wait_ready()
            nvim.type("G")
            for _ in range(5):
                measured_key(nvim)  # the first ones load what the later ones use
            taken = [1000 * measured_key(nvim) for _ in range(arguments.keys)]
        finally:
            nvim.close()
    cuts = statistics.quantiles(taken, n=100)
    figures = {"p50_ms": cuts[49], "p95_ms": cuts[94], "max_ms": max(taken)}
    rounded = {name: round(value, 1) for name, value in figures.items()}
    report = {
        "date": date.today().isoformat(),
        "hardware": f"{os.cpu_count()} CPU cores",
        "command": f"tests/e2e/editors.sh --figures --neovim {arguments.neovim} --keys {arguments.keys}",
        "engine": "replay",
        "lines": arguments.lines,
        **rounded,
        "goal": {"what": "p95_ms", "at_most": GOAL_MS, "met": rounded["p95_ms"] <= GOAL_MS},
    }
    if arguments.write:
        arguments.write.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
