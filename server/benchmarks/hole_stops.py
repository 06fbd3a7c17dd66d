"""Streams a file's own text into its holes, through the code that serves editors, and compares where it stops.

The text is streamed on past the hole's end, as a model does that has learnt the file by heart; what was cut out
must come back, no more and no less.

`alone` takes the file's rest away as well: nothing below tells then what is there already, and the syntax rules
must know the unit's end by themselves. Units that such a file leaves open, blocks and arguments, are left out.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server.benchmarks.holes import KINDS, Hole, cut_holes, read_source, source_files
from server.completion.cut import Cut
from server.completion.surroundings import surroundings
from server.context.grammars import ParseLimit, error_count, parse, parser_for
from server.context.languages import Language
from server.context.syntax import Syntax
from server.documents.document import Change, Document, Place

PAST_THE_END = 800  # characters streamed after the hole
BLOCK = 24  # characters in one streamed block, about what a round of a draft of 8 tokens brings
PARSE_LIMIT_S = 2.0
ALONE = ("line", "head", "statement", "function")
FAILURES_SHOWN = 400


@dataclass(frozen=True)
class Stop:
    """What came of one hole. `exact`: the file is as it was. `sound`: so, or it has no more errors than it had.

    setup_ms, check_ms: processor time, so that what else the machine does is not counted.
    """

    id: str
    kind: str
    exact: bool
    sound: bool
    got: str
    expected: str
    setup_ms: float
    check_ms: tuple[float, ...]


@dataclass
class Tally:
    """All stops of one language."""

    stops: list[Stop] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Rates in percent, times in milliseconds; `failed` names the first that were not exact."""
        kinds = {}
        for kind in KINDS:
            own = [stop for stop in self.stops if stop.kind == kind]
            if own:
                kinds[kind] = {"holes": len(own), "exact": _percent(stop.exact for stop in own)}
        checks = sorted(ms for stop in self.stops for ms in stop.check_ms)
        setups = sorted(stop.setup_ms for stop in self.stops)
        failed = [stop for stop in self.stops if not stop.exact]
        return {
            "holes": len(self.stops),
            "exact": _percent(stop.exact for stop in self.stops),
            "equal_or_no_worse": _percent(stop.sound for stop in self.stops),
            "kinds": kinds,
            "setup_ms": quantiles(setups),
            "check_ms": quantiles(checks),
            "failed": [
                {"id": stop.id, "sound": stop.sound, "got": stop.got, "expected": stop.expected}
                for stop in failed[:FAILURES_SHOWN]
            ],
        }


def measure(language: Language, paths: Sequence[Path], count: int, seed: int, *, alone: bool = False) -> Tally:
    """Stops of at least `count` holes where the paths hold so many, the kinds in like numbers as far as they go."""
    tally, done = Tally(), Counter[str]()
    syntax = language.syntax
    assert syntax is not None
    files = source_files(paths, language)
    random.Random(seed).shuffle(files)
    share = count / (len(ALONE) if alone else len(KINDS))
    for number, file in enumerate(files):
        if len(tally.stops) >= count:
            break
        source = read_source(file, syntax)
        if source is None:
            continue
        text, tree = source
        for hole in cut_holes(text, tree, syntax, 2, seed + number):
            # A kind that files hold more of than of others must not crowd those out.
            if done[hole.kind] >= 1.5 * share or (alone and not _ends_alone(text, hole)):
                continue
            done[hole.kind] += 1
            tally.stops.append(stop_at(file, text, hole, language, syntax, alone=alone))
    return tally


def _ends_alone(text: str, hole: Hole) -> bool:
    """Whether the hole's unit ends the same in a file that has nothing below it."""
    if hole.kind in ("line", "head"):
        return True
    following = text[hole.end :].split("\n", 2)
    # Right below its opener the unit is all of a block.
    opens = text[: hole.start].rstrip().endswith(("{", "(", "[", ":"))
    return hole.kind in ALONE and not opens and (len(following) < 2 or not following[1].strip())


def stop_at(file: Path, text: str, hole: Hole, language: Language, syntax: Syntax, *, alone: bool = False) -> Stop:
    """Stream the text from the hole's start on into the file without the hole."""
    streamed = text[hole.start : hole.end + PAST_THE_END]
    if alone:
        text = text[: hole.end]
    without = text[: hole.start] + text[hole.end :]
    document = Document(file.as_uri(), without, language=language.name)
    line = without.count("\n", 0, hole.start)
    place = Place(line, hole.start - (without.rfind("\n", 0, hole.start) + 1))
    begun = time.thread_time()
    site = surroundings(document, place, file.name, 2000)
    cut = Cut(site.cursor)
    setup_ms, check_ms = (time.thread_time() - begun) * 1000, []
    for piece in _blocks(streamed):
        begun = time.thread_time()
        cut.add(piece)
        check_ms.append((time.thread_time() - begun) * 1000)
        if cut.decision.end is not None:
            break
    if cut.decision.end is None:
        cut.finish()
    insertion = cut.insertion(site)
    if insertion is not None:
        document.apply([Change(insertion.text, insertion.range)])
    after = document.text
    # Blanks at a line's end are no part of any unit.
    exact = after == text or _without_trailing_blanks(after) == _without_trailing_blanks(text)
    return Stop(
        f"{file}:{line + 1}:{place.column}:{hole.kind}",
        hole.kind,
        exact,
        exact or _errors(after, syntax) <= _errors(without, syntax),
        cut.kept(),
        text[hole.start : hole.end],
        setup_ms,
        tuple(check_ms),
    )


def _blocks(text: str) -> Iterator[str]:
    for start in range(0, len(text), BLOCK):
        yield text[start : start + BLOCK]


def _without_trailing_blanks(text: str) -> str:
    return "\n".join(line.rstrip(" \t") for line in text.split("\n"))


def _errors(text: str, syntax: Syntax) -> int:
    try:
        return error_count(parse(parser_for(syntax), text.encode(), PARSE_LIMIT_S))
    except ParseLimit:
        return len(text)


def _percent(truths: Iterator[bool]) -> float:
    counted = list(truths)
    return round(100 * sum(counted) / len(counted), 2) if counted else 0.0


def quantiles(ordered: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and worst of numbers that are in order; empty where there are none."""
    if not ordered:
        return {}
    return {
        "p50": round(statistics.median(ordered), 3),
        "p95": round(ordered[int(len(ordered) * 0.95)], 3),
        "worst": round(ordered[-1], 3),
    }
