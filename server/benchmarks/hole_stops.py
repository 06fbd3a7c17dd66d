"""Streams a file's own text into its holes, through the code that serves editors, and compares where it stops.

The text is streamed on past the hole's end, as a model does that has learnt the file by heart; what was cut out
must come back, no more and no less.

`alone` takes the file's rest away as well: nothing below tells then what is there already, and the syntax rules
must know the unit's end by themselves. Units that such a file leaves open, blocks and arguments, are left out.

With other texts than the file's own there is no right end, but the file must parse no worse with what is offered:
`foreign` streams what stands in another hole of the same kind, `broken` the file's own text, broken off anywhere.
"""

from __future__ import annotations

import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from server.benchmarks.holes import KINDS, Hole, cut_holes, read_source, source_files
from server.completion.cut import Cut
from server.completion.fit import fit
from server.completion.sound_text import Ending, may_be_kept, sound_text
from server.completion.surroundings import surroundings
from server.context.file_errors import Snapshot
from server.context.grammars import ParseLimit, error_count, parse, parser_for
from server.context.languages import Language
from server.context.syntax import Syntax
from server.documents.document import Change, Document, Place

if TYPE_CHECKING:
    from tree_sitter import Tree

PAST_THE_END = 800  # characters streamed after the hole
BLOCK = 24  # characters in one streamed block, about what a round of a draft of 8 tokens brings
PARSE_LIMIT_S = 2.0
ALONE = ("line", "head", "statement", "function")
FAILURES_SHOWN = 400
TEXTS = ("own", "foreign", "broken")
Text = Literal["own", "foreign", "broken"]
FOREIGN_KEPT = 200  # texts of other holes of each kind
MOST_TOKENS = 256  # about so many has a generation
CHARACTERS_PER_TOKEN = 3
_TOKEN_END = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Streamed:
    """What a model writes. ran_out: its tokens do where the text ends, else it ends there by itself."""

    text: str
    ran_out: bool = False


@dataclass(frozen=True)
class Stop:
    """What came of one hole. `exact`: the file is as it was. `sound`: so, or it has no more errors than it had.

    kept: what the boundary keeps. got: what is offered of it. withdrawn: nothing is, of what was shown as it grew.
    setup_ms, check_ms, answer_ms: processor time, so that what else the machine does is not counted.
    """

    id: str
    kind: str
    exact: bool
    sound: bool
    kept: str
    got: str
    expected: str
    withdrawn: bool
    setup_ms: float
    check_ms: tuple[float, ...]
    answer_ms: float


@dataclass
class Tally:
    """All stops of one language."""

    stops: list[Stop] = field(default_factory=list)

    def to_json(self, text: Text = "own") -> dict[str, Any]:
        """Rates in percent, times in milliseconds; `failed` names the first that were not as they should be."""
        own = text == "own"
        kinds = {}
        for kind in KINDS:
            of_kind = [stop for stop in self.stops if stop.kind == kind]
            if of_kind:
                rates = {"exact" if own else "no_worse": _percent(self._is_right(stop, own) for stop in of_kind)}
                kinds[kind] = {"holes": len(of_kind), **rates}
        offered = [stop for stop in self.stops if stop.kept.strip()]
        found: dict[str, Any] = {"holes": len(self.stops)}
        if own:
            found["exact"] = _percent(stop.exact for stop in self.stops)
            found["equal_or_no_worse"] = _percent(stop.sound for stop in self.stops)
        else:
            found["no_worse"] = _percent(stop.sound for stop in self.stops)
            found["as_it_came"] = _percent(stop.got == stop.kept for stop in offered)
            found["nothing_offered"] = _percent(not stop.got for stop in offered)
        found["withdrawn"] = _percent(stop.withdrawn for stop in offered)
        return found | {
            "kinds": kinds,
            "setup_ms": quantiles(sorted(stop.setup_ms for stop in self.stops)),
            "check_ms": quantiles(sorted(ms for stop in self.stops for ms in stop.check_ms)),
            "answer_ms": quantiles(sorted(stop.answer_ms for stop in self.stops)),
            "failed": [
                {"id": stop.id, "sound": stop.sound, "got": stop.got, "expected": stop.expected}
                for stop in self.stops
                if not self._is_right(stop, own)
            ][:FAILURES_SHOWN],
        }

    @staticmethod
    def _is_right(stop: Stop, own: bool) -> bool:
        return stop.exact if own else stop.sound


def measure(
    language: Language, paths: Sequence[Path], count: int, seed: int, *, alone: bool = False, text: Text = "own"
) -> Tally:
    """Stops of at least `count` holes where the paths hold so many, the kinds in like numbers as far as they go."""
    tally, done, chance = Tally(), Counter[str](), random.Random(seed)
    others: dict[str, list[str]] = {kind: [] for kind in KINDS}
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
        whole, tree = source
        for hole in cut_holes(whole, tree, syntax, 2, seed + number):
            # A kind that files hold more of than of others must not crowd those out.
            if done[hole.kind] >= 1.5 * share or (alone and not _ends_alone(whole, hole)):
                continue
            streamed = Streamed(whole[hole.start : hole.end + PAST_THE_END])
            if text == "broken":
                streamed = _broken(whole[hole.start : hole.end], chance)
            elif text == "foreign":
                known, others[hole.kind] = others[hole.kind], [*others[hole.kind][-FOREIGN_KEPT:], streamed.text]
                if not known:
                    continue
                streamed = Streamed(chance.choice(known)[: MOST_TOKENS * CHARACTERS_PER_TOKEN], ran_out=True)
            done[hole.kind] += 1
            tally.stops.append(stop_at(file, whole, hole, language, syntax, streamed, alone=alone))
    return tally


def _broken(text: str, chance: random.Random) -> Streamed:
    """The text up to one of its tokens, or into it: the tokens ran out there, or its target ended it."""
    ends = [place for found in _TOKEN_END.finditer(text) for place in {found.start() + 1, found.end()}]
    return Streamed(text[: chance.choice(ends)] if ends else text, ran_out=chance.random() < 0.5)


def _ends_alone(text: str, hole: Hole) -> bool:
    """Whether the hole's unit ends the same in a file that has nothing below it."""
    if hole.kind in ("line", "head"):
        return True
    following = text[hole.end :].split("\n", 2)
    # Right below its opener the unit is all of a block.
    opens = text[: hole.start].rstrip().endswith(("{", "(", "[", ":"))
    return hole.kind in ALONE and not opens and (len(following) < 2 or not following[1].strip())


def stop_at(
    file: Path,
    text: str,
    hole: Hole,
    language: Language,
    syntax: Syntax,
    streamed: Streamed,
    *,
    alone: bool = False,
) -> Stop:
    """Stream a text into the file without the hole."""
    if alone:
        text = text[: hole.end]
    without = text[: hole.start] + text[hole.end :]
    document = Document(file.as_uri(), without, language=language.name)
    line = without.count("\n", 0, hole.start)
    place = Place(line, hole.start - (without.rfind("\n", 0, hole.start) + 1))
    # As an open document has it.
    snapshot = Snapshot(list(document.lines), place, syntax, _tree(without, syntax))
    begun = time.thread_time()
    site = surroundings(document, place, file.name, 2000)
    cut = Cut(site.cursor)
    setup_ms, check_ms, shown = (time.thread_time() - begun) * 1000, [], ""
    for piece in _blocks(streamed.text):
        begun = time.thread_time()
        cut.add(piece)
        check_ms.append((time.thread_time() - begun) * 1000)
        if cut.decision.end is not None:
            break
        grown = cut.text[: cut.decision.settled]
        shown = grown if may_be_kept(grown, site.cursor, snapshot.errors) else shown
    off = cut.decision.end is None
    if off:
        cut.finish(ran_out=streamed.ran_out)
    kept = cut.kept()
    ending = Ending.of("eos" if off else "boundary", cut.decision.reason)
    begun = time.thread_time()
    got = sound_text(kept, site.cursor, snapshot.errors, ending) if kept else ""
    insertion = fit(got, site, lambda: snapshot.errors) if got else None
    answer_ms = (time.thread_time() - begun) * 1000
    withdrawn = not got.startswith(shown) and not sound_text(kept, site.cursor, snapshot.errors, ending, shown)
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
        kept,
        got,
        text[hole.start : hole.end],
        withdrawn,
        setup_ms,
        tuple(check_ms),
        answer_ms,
    )


def _blocks(text: str) -> Iterator[str]:
    for start in range(0, len(text), BLOCK):
        yield text[start : start + BLOCK]


def _without_trailing_blanks(text: str) -> str:
    return "\n".join(line.rstrip(" \t") for line in text.split("\n"))


def _errors(text: str, syntax: Syntax) -> int:
    tree = _tree(text, syntax)
    return len(text) if tree is None else error_count(tree)


def _tree(text: str, syntax: Syntax) -> Tree | None:
    try:
        return parse(parser_for(syntax), text.encode(), PARSE_LIMIT_S)
    except ParseLimit:
        return None


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
