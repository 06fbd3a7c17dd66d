"""A long day of typing: random edits and requests, while the server's copy of the text and its memory are watched."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from server.benchmarks.keystrokes.driver import CANCELLED, Driver, Edit, driver
from server.documents.positions import Position
from server.errors import DflashError
from server.profiles import Profile

EDITS_PER_REQUEST = 10
CANCELLED_EVERY = 5  # requests, of which one is cancelled at once
REPLACED_EVERY = 997  # edits, of which one sends the whole text anew
SAMPLES = 100  # of the memory, over the whole run
LONGEST = 8_000  # characters; of a text that has grown beyond it the half is deleted
ASKED_AFTER = "\nnow = "
# What editors send, and what breaks copies: line ends of every kind and what only looks like one, and
# characters of one to four bytes and of one and two UTF-16 units.
PIECES = (
    *("x", "value = ", "    ", "def f(a, b):\n", "return a\n", "(", ")", "\n", "\n\n", "\r\n", "\r", "\t", '"""'),
    *("ä", "漢字", "😀", "👩‍👩‍👧", "e\u0301", "\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\0", "\ufeff"),
)
_LINE_END = re.compile("\r\n|\n|\r")


class Mirror:
    """The client's text, kept in the simplest way: one string, and positions counted anew each time."""

    def __init__(self, text: str, dice: random.Random) -> None:
        self.text = text
        self._dice = dice

    def edit(self) -> Edit:
        """Change the text somewhere; returns what an editor tells of it."""
        start = self._place()
        length = self._dice.choice((0, 0, 0, 0, 1, 1, 3)) if len(self.text) < LONGEST else LONGEST // 2
        end = self._outside_line_end(min(len(self.text), start + length))
        return self.replace(start, end, "".join(self._dice.choices(PIECES, k=self._dice.choice((0, 1, 1, 1, 2, 8)))))

    def replace(self, start: int, end: int, text: str) -> Edit:
        told = Edit(self.position(start), self.position(end), text)
        self.text = self.text[:start] + text + self.text[end:]
        return told

    def position(self, place: int) -> Position:
        """Line, and UTF-16 units from its beginning."""
        line, begin = 0, 0
        for found in _LINE_END.finditer(self.text):
            if found.end() > place:
                break
            line, begin = line + 1, found.end()
        return Position(line, len(self.text[begin:place].encode("utf-16-le")) // 2)

    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def _place(self) -> int:
        return self._outside_line_end(self._dice.randint(0, len(self.text)))

    def _outside_line_end(self, place: int) -> int:
        """No cursor stands inside of `\\r\\n`."""
        return place + (self.text[place - 1 : place + 1] == "\r\n" and place > 0)


async def soak(profile: Profile, edits: int, seed: int = 1) -> dict[str, Any]:
    """Run it. DflashError as soon as the server's text is not the client's, or a request is not answered."""
    dice = random.Random(seed)
    async with driver(str(profile.file), "file:///bench/soak.py") as window:
        mirror = Mirror("import os\n" * 200, dice)
        window.open(mirror.text, "python")
        requests = answered = cancelled = 0
        memory: list[float] = []
        while requests * EDITS_PER_REQUEST < edits:
            await _edits(window, mirror, dice, EDITS_PER_REQUEST - 1)
            place = len(mirror.text) if requests % 3 else mirror.text.rfind("\n") + 1
            window.tell([mirror.replace(place, place, ASKED_AFTER)])
            id, asking = window.ask_at(mirror.position(place + len(ASKED_AFTER)))
            if requests % CANCELLED_EVERY == 0:
                window.cancel(id)
            asked = await asking
            if asked.code not in (0, CANCELLED):
                raise DflashError(f"request {requests} was answered with error {asked.code}")
            requests += 1
            answered, cancelled = answered + bool(asked.text), cancelled + (asked.code == CANCELLED)
            if requests * SAMPLES % (edits // EDITS_PER_REQUEST) < SAMPLES:
                memory.append(resident_mib(window.pid))
    return {
        "edits": requests * EDITS_PER_REQUEST,
        "texts_equal": True,  # or it would have ended
        "requests": requests,
        "answered_with_text": answered,
        "cancelled": cancelled,
        "resident_mib": _growth(memory),
    }


async def _edits(window: Driver, mirror: Mirror, dice: random.Random, count: int) -> None:
    """Edit so often, one to three changes at a time, and compare the texts after each."""
    compared = []
    for _ in range(count):
        if dice.random() < 1 / REPLACED_EVERY:
            window.tell([Edit(None, None, mirror.text)])
        else:
            window.tell([mirror.edit() for _ in range(dice.choice((1, 1, 1, 1, 2, 3)))])
        compared.append((mirror.digest(), window.digest()))
    for number, (ours, theirs) in enumerate(compared):
        if ours != await theirs:
            raise DflashError(f"after edit {number} of {count} the server's text is not the client's")


def resident_mib(pid: int) -> float:
    """A process's resident memory; 0.0 where the system has no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")), 0.0)


def _growth(memory: Sequence[float]) -> dict[str, float]:
    """The memory after a tenth of the run, when caches are full, and in its last tenth; growth in per cent."""
    tenth = max(1, len(memory) // 10)
    before, after = _mean(memory[tenth : 2 * tenth] or memory), _mean(memory[-tenth:])
    growth = 100 * (after / before - 1) if before else 0.0
    return {"after_a_tenth": round(before, 1), "at_the_end": round(after, 1), "growth_percent": round(growth, 2)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
