"""Whether what a prompt shows of other places helps a target: the same holes with and without it, side by side.

Holes are cut out of files of a workspace whose index knows all the others. Each is completed by the service that
serves editors, on the profile's own engine, once for each arm:

- `text`: nothing but the text before the cursor;
- `head`: with the imports and the heads of enclosing scopes that lie above that text;
- `related`: with chunks of other places as well.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from server.benchmarks.holes import Hole, cut_holes, read_source, source_files
from server.completion.request import CompletionOptions
from server.completion.service import CompletionService
from server.context.languages import Language
from server.context.workspace import Workspace
from server.documents.document import Document, Place
from server.errors import DflashError
from server.profiles import Profile

ARMS = ("text", "head", "related")
KINDS = frozenset({"line", "head", "statement", "body", "block"})
LONGEST_HOLE = 240  # characters; longer ones are never met exactly
LINES_ABOVE = 40  # of a hole: near a file's beginning there is nothing above that could be missing
INDEX_WAIT_S = 10.0  # what the index knows is to be measured, not how fast it answers
SCAN_TRIES = 600  # of half a second


@dataclass(frozen=True)
class Outcome:
    """One completed hole; chunks: so many of other places were shown."""

    exact: bool
    similarity: float
    chunks: int


async def measure_related(
    profile: Profile,
    folder: Path,
    language: Language,
    count: int,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Exact match and edit similarity by arm, over the same holes of a folder's files."""
    if profile.prompt is None:
        raise DflashError(f"profile {profile.name} sends text, which shows nothing else")
    holes = _holes(folder, language, count, seed)
    workspace = Workspace((folder,), indexed=True)
    services = {arm: CompletionService(_with_arm(profile, arm), workspace=workspace) for arm in ARMS}
    outcomes: dict[str, list[Outcome]] = {arm: [] for arm in ARMS}
    try:
        for service in services.values():
            service.context.index_wait_s = INDEX_WAIT_S
            await service.link.connect()
        await _scanned(services["related"])
        for number, (file, text, hole) in enumerate(holes, start=1):
            for arm in ARMS:
                outcomes[arm].append(await _complete(services[arm], folder, file, text, hole, language))
            if number % 10 == 0:
                say(f"{number} of {len(holes)} holes")
    finally:
        for service in services.values():
            await service.aclose()
    shown = [each.chunks > 0 for each in outcomes["related"]]
    return {
        "profile": profile.name,
        "language": language.name,
        "holes": len(holes),
        "arms": {arm: _tally(found) for arm, found in outcomes.items()},
        "where_chunks_were_shown": {
            "holes": sum(shown),
            "arms": {
                arm: _tally([each for each, was in zip(found, shown, strict=True) if was])
                for arm, found in outcomes.items()
            },
        },
    }


def edit_similarity(one: str, other: str) -> float:
    """1 for equal texts, 0 for texts that share nothing: Levenshtein distance over the longer one's length."""
    if one == other:
        return 1.0
    row = list(range(len(other) + 1))
    for number, a in enumerate(one, start=1):
        before, row[0] = row[0], number
        for place, b in enumerate(other, start=1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (a != b))
    return 1 - row[-1] / max(len(one), len(other))


def _with_arm(profile: Profile, arm: str) -> Profile:
    assert profile.prompt is not None
    related = (profile.prompt.related_budget or None) if arm == "related" else 0
    return replace(profile, prompt=replace(profile.prompt, related_budget=related, head=arm != "text"))


def _holes(folder: Path, language: Language, count: int, seed: int) -> list[tuple[Path, str, Hole]]:
    """Holes of different files in turn, the same for the same seed."""
    syntax = language.syntax
    assert syntax is not None
    files = source_files([folder], language)
    random.Random(seed).shuffle(files)
    found: list[tuple[Path, str, Hole]] = []
    for number, file in enumerate(files):
        source = read_source(file, syntax)
        if source is None or len(found) >= count:
            continue
        text, tree = source
        fitting = [
            hole
            for hole in cut_holes(text, tree, syntax, 1, seed + number)
            if hole.kind in KINDS
            and hole.end - hole.start <= LONGEST_HOLE
            and text.count("\n", 0, hole.start) >= LINES_ABOVE
        ]
        found += [(file, text, hole) for hole in fitting[:2]]
    return found[:count]


async def _complete(
    service: CompletionService, folder: Path, file: Path, text: str, hole: Hole, language: Language
) -> Outcome:
    without = text[: hole.start] + text[hole.end :]
    document = Document(file.as_uri(), without, language=language.name)
    place = Place(without.count("\n", 0, hole.start), hole.start - (without.rfind("\n", 0, hole.start) + 1))
    path = file.relative_to(folder).as_posix()
    await service.ready(document, path)
    result = await service.complete(document, place, path, CompletionOptions(exact_stats=True))
    chunks = service.context.chunks_shown(document)
    service.closed(document.uri)
    wanted, got = text[hole.start : hole.end].strip(), result.text.strip()
    return Outcome(wanted == got, edit_similarity(wanted, got), chunks)


async def _scanned(service: CompletionService) -> None:
    await service.start()
    for _ in range(SCAN_TRIES):
        state = await service.context.index.state() if service.context.index is not None else None
        if state is None or state["scanned"]:
            return
        await asyncio.sleep(0.5)


def _tally(outcomes: Sequence[Outcome]) -> dict[str, float]:
    if not outcomes:
        return {}
    return {
        "exact_match": round(100 * sum(each.exact for each in outcomes) / len(outcomes), 1),
        "edit_similarity": round(statistics.fmean(each.similarity for each in outcomes), 3),
    }
