"""Shows a completion in a terminal while it grows, block by block."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TextIO

from server.completion.request import Growth
from server.completion.surroundings import Surroundings
from server.documents.lines import to_line_feeds

CONTEXT_LINES = 6
DIM, ACCEPTED, BONUS, RESET = "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[0m"


def wants_color(choice: str, stream: TextIO) -> bool:
    """Whether to colour what goes to a stream: "always", "never", or "auto" on a terminal that can."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


class StreamView:
    """Writes the text to stdout as it is settled, and what surrounds it to stderr.

    In colour the draft's accepted tokens are green and the target's own are yellow.
    """

    def __init__(self, color: str) -> None:
        self._color = wants_color(color, sys.stdout)
        self._dim = wants_color(color, sys.stderr)
        self._shown = 0
        self._text = ""

    def begin(self, engine: str, where: str, site: Surroundings) -> None:
        """Name the engine and the place, and show the lines before the cursor."""
        colours = "; green: drafted and accepted, yellow: the target's own" if self._color else ""
        above = site.cursor.before.split("\n")[-CONTEXT_LINES:]
        self._aside(f"{where} · {engine}{colours}\n\n")
        self._aside("\n".join(above))

    def grow(self, growth: Growth) -> None:
        """Show what has been settled since."""
        for start, text, color in self._parts(growth):
            fresh = text[max(0, self._shown - start) : max(0, growth.settled - start)]
            if fresh:
                sys.stdout.write(f"{color}{fresh}{RESET}" if self._color else fresh)
        self._shown, self._text = max(self._shown, growth.settled), growth.text
        sys.stdout.flush()

    def end(self, numbers: str, offered: str) -> None:
        """Close the text, and say what it cost, and what is offered of it where that is something else."""
        if self._shown:
            print(flush=True)
        if offered and to_line_feeds(offered) != self._text:
            self._aside(f"\noffered, so that the file parses:\n{offered}\n")
        self._aside(f"\n{numbers}\n")

    def _parts(self, growth: Growth) -> Iterator[tuple[int, str, str]]:
        """Where each part of the generated text starts, the part, and its colour."""
        start = 0
        for each in growth.rounds:
            drafted = each.text[: len(each.text) - len(each.bonus)]
            yield start, drafted, ACCEPTED
            yield start + len(drafted), each.bonus, BONUS
            start += len(each.text)

    def _aside(self, text: str) -> None:
        print(f"{DIM}{text}{RESET}" if self._dim else text, end="", file=sys.stderr, flush=True)
