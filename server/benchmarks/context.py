"""What it costs to assemble prompts, how much of them stays from key to key, and what the index takes."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from server.benchmarks.traces import Trace, record
from server.completion.boundaries.choice import boundary_for
from server.completion.request import CompletionOptions
from server.completion.service import CompletionService
from server.completion.surroundings import surroundings
from server.context.prompt import Prompt
from server.context.workspace import Workspace
from server.documents.document import Document
from server.errors import DflashError
from server.profiles import Profile
from server.profiles.settings import PromptFormat

LINES = (2_000, 20_000)
KEYS = 200
KEY_PAUSE_S = 0.08  # between two keys of a fast typist
SUFFIX_BUDGET = 96
FORMATS: tuple[PromptFormat, ...] = ("plain", "suffix-prefix-middle", "prefix-suffix-middle")
STATE_PAUSE_S = 0.5


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and maximum, of seconds in milliseconds."""
    ordered = sorted(values)
    at = [ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95, 1.0)] if ordered else [0.0] * 3
    return dict(zip(("p50", "p95", "max"), (round(value * 1000, 2) for value in at), strict=True))


@dataclass(frozen=True)
class Times:
    """Seconds of one request: in all, until the prompt, for its boundary, and of the processor.

    The last tells what a request costs on a machine that does nothing else, as long as it waits for nobody.
    """

    request: float
    prompt: float
    boundary: float
    processor: float


def times_to_json(times: Sequence[Times]) -> dict[str, Any]:
    return {
        "ms": quantiles([each.request for each in times]),
        "prompt_ms": quantiles([each.prompt for each in times]),
        "boundary_ms": quantiles([each.boundary for each in times]),
        "processor_ms": quantiles([each.processor for each in times]),
    }


async def measure_assembly(profile: Profile, sources: Path, lines: int, pause_s: float = KEY_PAUSE_S) -> dict[str, Any]:
    """Time per request in a file of so many lines, from the key's change to a prompt and a boundary."""
    service = CompletionService(with_related(profile))
    try:
        trace = record(long_text(sources, lines), lines // 2, KEYS, "python", f"long_{lines}.py")
        times, prompts = await type_trace(service, trace, pause_s)
    finally:
        await service.aclose()
    return {"lines": lines, "keys": len(times), **times_to_json(times), "reused": reused_share(prompts)}


async def measure_reuse(profile: Profile, trace: Trace) -> dict[str, Any]:
    """Share of prompt tokens that stand at the same place in the prompt of the key before, by format."""
    shares = {}
    for name in FORMATS:
        service = CompletionService(with_format(with_related(profile), name))
        try:
            _, prompts = await type_trace(service, trace, 0.0)
        finally:
            await service.aclose()
        shares[name] = reused_share(prompts)
    return {"keys": len(trace.keys), "reused": shares}


async def measure_index(
    profile: Profile, sources: Path, files: int, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Time and memory of the index of a workspace of so many files, and time per request meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="dflash-bench-"))
    try:
        count = copy_sources(sources, folder, files)
        say(f"indexing {count} files")
        service = CompletionService(with_related(profile), workspace=Workspace((folder,), indexed=True))
        try:
            begun = time.monotonic()
            assert service.context.index is not None
            await service.context.index.start()
            text = long_text(sources, LINES[0])
            trace = record(text, LINES[0] // 2, KEYS, "python", "typed.py")
            times: list[Times] = []
            state: dict[str, Any] = {}
            while not state.get("scanned"):
                more, _ = await type_trace(service, trace, KEY_PAUSE_S, folder / "typed.py")
                times += more
                state = await service.context.index.state() or {"scanned": True, "failed": True}
                say(f"{state.get('files', 0)} files after {time.monotonic() - begun:.0f} s")
        finally:
            await service.aclose()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"workspace_files": count, **state, "requests": len(times), **times_to_json(times)}


async def type_trace(
    service: CompletionService, trace: Trace, pause_s: float, file: Path | None = None
) -> tuple[list[Times], list[Prompt]]:
    """Type a trace as an editor would, a request at each key: seconds of each request, and the prompts."""
    uri = file.as_uri() if file is not None else f"untitled:{trace.path}"
    document = Document(uri, trace.text, language=trace.language)
    await service.ready(document, trace.path)
    times, prompts = [], []
    for key in trace:
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        document.apply([key.change])
        site = surroundings(document, document.place(key.cursor), trace.path, service.prompts.limit)
        service.opened(document, trace.path)
        service.offer(document, site, CompletionOptions(explicit=False))
        prompts.append(await service.prompt(document, site.place, site.spot))
        assembled = time.perf_counter()
        boundary_for(site.cursor)
        ended = time.perf_counter()
        times.append(Times(ended - begun, assembled - begun, ended - assembled, time.thread_time() - cpu_begun))
        await asyncio.sleep(pause_s)
    return times, prompts


def reused_share(prompts: Sequence[Prompt]) -> float:
    """Of all prompt tokens after the first prompt, in percent, those that the prompt before begins with as well."""
    reused = total = 0
    for before, after in pairwise(prompts):
        one, other = before.content, after.content
        same = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        reused += min(same, len(other))
        total += len(other)
    return round(100 * reused / total, 2) if total else 0.0


def with_related(profile: Profile) -> Profile:
    """The profile with chunks of other places also where it wants none: what they cost is measured."""
    prompt = profile.prompt
    if prompt is None or prompt.related_budget != 0:
        return profile
    return replace(profile, prompt=replace(prompt, related_budget=None))


def with_format(profile: Profile, name: PromptFormat) -> Profile:
    """The profile with another format; markers that its tokenizer lacks stand at ids that no text has."""
    if profile.prompt is None:
        raise DflashError(f"profile {profile.name} sends text, which has no format")
    markers = {"prefix": 13, "suffix": 14, "middle": 15, **profile.prompt.marker_ids}
    budget = 0 if name == "plain" else SUFFIX_BUDGET
    return replace(profile, prompt=replace(profile.prompt, format=name, marker_ids=markers, suffix_budget=budget))


def long_text(sources: Path, lines: int) -> str:
    """So many lines of real code, from the files of a folder one after the other."""
    found: list[str] = []
    for file in source_files(sources):
        found += file.read_text(encoding="utf-8", errors="replace").split("\n")
        if len(found) >= lines:
            return "\n".join(found[:lines])
    raise DflashError(f"{sources} has only {len(found)} lines of Python")


def copy_sources(sources: Path, folder: Path, files: int) -> int:
    """Copy so many source files into a folder, as they lie; returns how many there were."""
    count = 0
    for file in source_files(sources):
        if count >= files:
            break
        target = folder / file.relative_to(sources)
        # Installed packages are ignored everywhere; in a workspace of one's own they are code like any other.
        target = folder / Path(
            *(part.replace("site-packages", "packages") for part in target.relative_to(folder).parts)
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        count += 1
    return count


def source_files(sources: Path) -> Iterator[Path]:
    """Python files of a folder and below, in order of their names."""

    def walk(directory: Path) -> Iterable[Path]:
        entries = sorted(os.scandir(directory), key=lambda entry: (entry.is_dir(), entry.name))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from walk(Path(entry.path))
            elif entry.name.endswith(".py") and entry.is_file():
                yield Path(entry.path)

    yield from walk(sources)
