"""Boundary cases, run as an editor would run them: replay engine, client, completion service, one document each.

A case is a line of JSON: `{id, language, path, prefix, suffix, continuation, expected}`. The cursor stands between
prefix and suffix, a model would stream `continuation` there, and `expected` is the text to insert; `result`, which
may be left out, is the file with it, told apart where text right of the cursor is replaced. Each case is streamed in
pieces of one character, of one line, and whole: it passes when all three give the same, expected, text.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from server.completion.cut import Cut
from server.completion.request import CompletionOptions
from server.completion.service import CompletionService
from server.completion.surroundings import surroundings
from server.documents.document import Change, Document, Place
from server.documents.lines import split_lines
from server.engine.launcher import stop_engine
from server.errors import DflashError
from server.profiles import Profile, load_profile

PIECES = ("character", "line", "whole")
WINDOWS = 8  # completion services side by side; one alone is held back to what a person can type
BLOCK = 24  # characters of a streamed block whose check is timed


class CaseError(DflashError):
    """A case file that cannot be used."""


@dataclass(frozen=True)
class Case:
    """One case; see the module."""

    id: str
    language: str
    path: str
    prefix: str
    suffix: str
    continuation: str
    expected: str
    result: str | None = None

    def document(self) -> tuple[Document, Place]:
        """The file as the editor has it, and the cursor's place in it."""
        lines = split_lines(self.prefix)
        document = Document(f"untitled:{self.id}", self.prefix + self.suffix, language=self.language)
        return document, Place(len(lines) - 1, len(lines[-1]))


@dataclass(frozen=True)
class Failure:
    """A case that gave `got` for pieces of the size `pieces`."""

    id: str
    pieces: str
    got: str


def read_cases(path: Path) -> list[Case]:
    """All cases of a file. CaseError names file and line of the first that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise CaseError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CaseError(f"{path} is not UTF-8") from error
    cases, ids = [], set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            case = _case(json.loads(line))
        except json.JSONDecodeError as error:
            raise CaseError(f"{path}:{number}: not JSON") from error
        except ValueError as error:
            raise CaseError(f"{path}:{number}: {error}") from error
        if case.id in ids:
            raise CaseError(f"{path}:{number}: a second case {case.id}")
        ids.add(case.id)
        cases.append(case)
    return cases


def _case(found: Any) -> Case:
    if not isinstance(found, dict):
        raise ValueError("must be a JSON object")
    known = [field.name for field in fields(Case)]
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    for key in known:
        if key not in found and key == "result":
            continue
        if not isinstance(found.get(key), str):
            raise ValueError(f"{key} must be a string")
    return Case(**found)


async def run_cases(cases: Sequence[Case], progress: Callable[[int, int], None] | None = None) -> list[Failure]:
    """Run all cases on one replay engine of their own; the failures, one for each case that has any."""
    failures: dict[str, Failure] = {}
    done, total = 0, len(cases) * len(PIECES)
    with tempfile.TemporaryDirectory(prefix="dflash-cases-") as folder:
        profile = _profile(Path(folder))
        async with AsyncExitStack() as leaving:
            leaving.push_async_callback(stop_engine, profile)
            windows = []
            for _ in range(min(WINDOWS, max(1, len(cases)))):
                service = CompletionService(profile)
                leaving.push_async_callback(service.aclose)
                await service.link.connect()
                windows.append(service)
            for pieces in PIECES:
                for batch in _batches(cases, windows[0]):
                    _record(Path(folder), batch, pieces)
                    for failure in await _run_batch([case for case, _ in batch], pieces, windows):
                        failures.setdefault(failure.id, failure)
                    done += len(batch)
                    if progress is not None:
                        progress(done, total)
    return [failures[case.id] for case in cases if case.id in failures]


def check_times(cases: Sequence[Case]) -> list[float]:
    """Milliseconds of processor time that each streamed block of the cases takes to be judged, shortest first."""
    times = []
    for case in cases:
        document, place = case.document()
        cut = Cut(surroundings(document, place, case.path, 1000).cursor)
        for start in range(0, len(case.continuation), BLOCK):
            begun = time.thread_time()
            cut.add(case.continuation[start : start + BLOCK])
            times.append((time.thread_time() - begun) * 1000)
    return sorted(times)


def _profile(folder: Path) -> Profile:
    (folder / "recording.jsonl").write_text("", encoding="utf-8")
    file = folder / "cases.toml"
    file.write_text('[engine]\nkind = "replay"\nrecording = "recording.jsonl"\n', encoding="utf-8")
    return load_profile(str(file))


def _batches(cases: Sequence[Case], service: CompletionService) -> Iterator[list[tuple[Case, str]]]:
    """The cases with their prompts, no prompt twice in a batch: the replay engine knows a case by its prompt."""
    left = []
    for case in cases:
        document, place = case.document()
        site = surroundings(document, place, case.path, service.prompts.limit)
        prompt = service.prompts.build(site.before, site.path, site.language)
        left.append((case, str(prompt.content)))
    while left:
        batch, later, prompts = [], [], set()
        for case, prompt_text in left:
            if prompt_text in prompts:
                later.append((case, prompt_text))
            else:
                prompts.add(prompt_text)
                batch.append((case, prompt_text))
        yield batch
        left = later


def _record(folder: Path, batch: Sequence[tuple[Case, str]], pieces: str) -> None:
    """Put the batch's recording in the place of the last one, which the engine notices by itself."""
    lines = [
        json.dumps({"after": prompt, "text": case.continuation, "chunks": _chunks(case.continuation, pieces)})
        for case, prompt in batch
    ]
    fresh = folder / "fresh.jsonl"
    fresh.write_text("\n".join(lines), encoding="utf-8")
    fresh.replace(folder / "recording.jsonl")


def _chunks(text: str, pieces: str) -> list[str]:
    if pieces == "character":
        return list(text)
    if pieces == "line":
        return [line for line in split_lines(text) if line]
    return [text] if text else []


async def _run_batch(cases: Sequence[Case], pieces: str, windows: Sequence[CompletionService]) -> list[Failure]:
    waiting = list(reversed(cases))
    failures = []

    async def work(service: CompletionService) -> None:
        while waiting:
            case = waiting.pop()
            failure = await _run_case(case, pieces, service)
            if failure is not None:
                failures.append(failure)

    await asyncio.gather(*[work(service) for service in windows])
    return failures


async def _run_case(case: Case, pieces: str, service: CompletionService) -> Failure | None:
    document, place = case.document()
    # With exact numbers nothing comes from an earlier run's text.
    answer = await service.complete(document, place, case.path, CompletionOptions(exact_stats=True))
    if answer.text != case.expected:
        return Failure(case.id, pieces, answer.text)
    if case.result is None:
        return None
    document.apply([Change(answer.text, answer.range)])
    return None if document.text == case.result else Failure(case.id, pieces, document.text)
