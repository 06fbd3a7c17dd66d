"""Odd input, which nobody writes: what a completion costs at it at most, and whether the file parses no worse after.

Hundreds of the same piece stand above, on or below the cursor's line, or are what the model writes. Each case goes
through the code that serves editors, as far as an engine has no part in it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from server.benchmarks.hole_stops import BLOCK
from server.completion.cut import Cut
from server.completion.fit import fit
from server.completion.request import CompletionOptions
from server.completion.service import CompletionService
from server.completion.sound_text import Ending, sound_text
from server.completion.soundness import errors_around
from server.completion.surroundings import surroundings
from server.context.grammars import ParseLimit, error_count, parse, parser_for
from server.context.languages import Language
from server.context.privacy import holds_secret
from server.documents.document import Change, Document, Place
from server.documents.lines import split_lines
from server.documents.positions import Range
from server.profiles import Profile

Say = Callable[[str], None]

BUDGET_S = 1.0  # of processor time for one case, all stages together
PARSE_LIMIT_S = 5.0
CONTINUATION = "a(1, b)\nc = 2\n\nd"
_BRACKETS = r"( [ { ) } ([{ \( ${ `${ $( %{ %w( q{ {{ {% [[ [=[ --[["
_QUOTES = r"""" ' ` \" \\ \ "\( f"{ "#{ r#" '" $$ $a$"""
_COMMENTS = "/* */ <!-- --> # // -- #[ @a *** ``` ~~~ ** __"
_OPERATORS = "- = @ % & ! * < > | ? :: => -> ; : {; / /[ =/[ ?. ... && a. a, a( a[ a< <a< a->"
_MARKUP = "<a <a> </a> <script <script> <style <?php"
_WORDS = (
    "if ", "do ", "begin ", "then ", "end ", "case ", "else ", "elif ", "return ", "if (a) ", "function f() {",
    "class A {", "def f(): ", "x = ", "key: ", "- ", "> ", "a ", "a b", "<a ", "<script ",
    "1 ", "0x", "1e", '"a" ', "'a' ",
)  # fmt: skip
_HEREDOCS = ("<<A ", "<<'A' ", "<<~E ", "<<<E", "<<A\n", "#if\n", "#define A \\\n")
_BLANKS = (" ", "\t", "\r\n", "\r", "\0", "\x0b", "\x0c", "\x85", "\u2028", "é", "😀", "\\\n")
_TRIPLE = ('"""', "'''")
_SECRETS = ('password = "', "-----BEGIN ")
PIECES = (
    *dict.fromkeys(f"{_BRACKETS} {_QUOTES} {_COMMENTS} {_OPERATORS} {_MARKUP}".split()),
    *_TRIPLE,
    *_WORDS,
    *_HEREDOCS,
    *_BLANKS,
    *_SECRETS,
)


@dataclass(frozen=True)
class OddCase:
    """above, below: what stands around the cursor; written: what the model writes."""

    name: str
    above: str
    below: str
    written: str


@dataclass
class OddReport:
    """What came of one language's cases. worst: of each stage, (milliseconds of processor time, case).

    untold: cases whose file no grammar read in the time of a request, so that rules alone decided.
    """

    cases: int = 0
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)
    over_budget: list[str] = field(default_factory=list)
    unsound: list[str] = field(default_factory=list)
    untold: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "worst_ms": {stage: [round(ms, 1), case] for stage, (ms, case) in sorted(self.worst.items())},
            "over_budget": self.over_budget,
            "unsound": self.unsound,
            "untold": self.untold,
        }


def odd_cases(size: int, count: int | None, seed: str) -> list[OddCase]:
    """All cases, or so many of them at random, the same for the same seed. size: characters of the odd text."""
    found = []
    for piece in PIECES:
        row, rows = piece * max(1, size // len(piece)), (piece + "\n") * max(1, size // (len(piece) + 1))
        name = repr(piece)
        found += [
            OddCase(f"{name} above", rows + "x = ", "", CONTINUATION),
            OddCase(f"{name} on the line", row, "", CONTINUATION),
            OddCase(f"{name} below", "x = ", "\n" + rows, CONTINUATION),
            OddCase(f"{name} written", "x = ", "\ny = 1\n", row),
        ]
    return found if count is None or count >= len(found) else random.Random(seed).sample(found, count)


async def measure_odd_input(service: CompletionService, language: Language, cases: Sequence[OddCase]) -> OddReport:
    """Run a language's cases, and keep what each stage took at most."""
    report = OddReport()
    for case in cases:
        report.cases += 1
        total = 0.0
        for stage, ms in (await _run(service, language, case, report)).items():
            total += ms
            if ms > report.worst.get(stage, (0.0, ""))[0]:
                report.worst[stage] = (ms, case.name)
        if total > report.worst.get("all", (0.0, ""))[0]:
            report.worst["all"] = (total, case.name)
        if total > BUDGET_S * 1000:
            report.over_budget.append(case.name)
    return report


async def _run(service: CompletionService, language: Language, case: OddCase, report: OddReport) -> dict[str, float]:
    taken: dict[str, float] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        begun = time.process_time()
        yield
        taken[name] = taken.get(name, 0.0) + (time.process_time() - begun) * 1000

    path = f"a.{language.extensions[0]}" if language.extensions else "a"
    with stage("open"):
        document = Document(f"untitled:{path}", case.above + case.below, language=language.name)
        service.opened(document, path)
    lines = split_lines(case.above)
    place = Place(len(lines) - 1, len(lines[-1]))
    with stage("edit"):
        position = document.position(place)
        document.apply([Change("y", Range(position, position))])
    place = Place(place.line, place.column + 1)
    before = document.text
    with stage("prompt"):
        site = surroundings(document, place, path, service.prompts.limit)
        service.offer(document, site, CompletionOptions(explicit=False))
        await service.prompt(document, place, site.spot)
    with stage("cut"):
        cut = Cut(site.cursor)
        for start in range(0, len(case.written), BLOCK):
            cut.add(case.written[start : start + BLOCK])
            if cut.decision.end is not None:
                break
        off = cut.decision.end is None
        if off:
            cut.finish(ran_out=True)
    kept = cut.kept()
    snapshot = service.context.snapshot(document, place, site.cursor.language)
    with stage("sound"):
        file = (snapshot.errors if snapshot is not None else None) or errors_around(site.cursor)
        ending = Ending.of("length" if off else "boundary", cut.decision.reason)
        text = sound_text(kept, site.cursor, file, ending) if kept else ""
    if text:
        with stage("fit"):
            insertion = fit(text, site, lambda: file)
        document.apply([Change(insertion.text, insertion.range)])
        if file is None or file.errors_with("") is None:
            report.untold += 1
        elif _parses_worse(language, before, document.text):
            report.unsound.append(case.name)
    with stage("secrets"):
        holds_secret(before)
    service.closed(document.uri)
    return taken


def _parses_worse(language: Language, before: str, after: str) -> bool:
    if language.syntax is None or language.prose:
        return False
    try:
        counts = [
            error_count(parse(parser_for(language.syntax), text.encode("utf-8", "replace"), PARSE_LIMIT_S))
            for text in (before, after)
        ]
    except ParseLimit:
        return False
    return counts[1] > counts[0]


async def sweep(
    profile: Profile, languages: Sequence[Language], size: int, count: int | None, seed: int, say: Say = lambda _: None
) -> dict[str, OddReport]:
    """The reports of the languages, by name. No engine is asked."""
    service, reports = CompletionService(profile), {}
    try:
        for language in languages:
            cases = odd_cases(size, count, f"{seed} {language.name}")
            reports[language.name] = await measure_odd_input(service, language, cases)
            say(f"{language.name}: {len(cases)} cases")
    finally:
        await service.aclose()
    return reports
