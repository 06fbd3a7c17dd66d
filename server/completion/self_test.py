"""Which prompt format suits a pair of target and draft: tried on a few holes, before anybody types.

A format is judged by obedience (the answer goes on with the file, and the file parses no worse with it) and by the
acceptance length that the draft reaches in it; published drafts reach half of it outside the format that they were
trained in. A format that is answered with prose is refused. What was found is kept for the pair's revisions.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from server import paths
from server.completion.boundaries.boundary import CursorText
from server.completion.cut import Cut
from server.completion.soundness import parses_worse
from server.context.languages import language_for
from server.context.prompt import Around, PromptBuilder, TextBefore
from server.engine.client import EngineClient
from server.engine.protocol import WARM_UP, CompletionRequest
from server.errors import DflashError
from server.profiles import ModelSource, Profile
from server.profiles.loading import FORMAT_MARKERS
from server.profiles.settings import PromptFormat

VERSION = 1  # of the probes and the rules; what another one found is tried again
TOKENS = 40  # generated for each probe
PROSE = 0.25  # of the probes answered with prose: more, and the format is refused
OBEDIENT = 0.5  # of the probes obeyed: fewer, and the format is refused
AS_OBEDIENT = 0.1  # formats that are obeyed so much less than the best are not picked for their acceptance length
SUFFIX_BUDGET = 64  # where the profile has none
_PROSE = re.compile(r"\s*(?:```|(?:[#/*\s]*)[A-Z][a-z']*(?:,? [a-z'-]+){3,}|(?:Sure|Certainly|Here)\b)")
_COMMENT = re.compile(r"\s*(?:#|//|/\*|\*)")

# A file with a hole at `|`: what stands around it says what must follow.
PROBES = (
    (
        "python",
        "geometry.py",
        "def area(width, height):\n    return width * height\n\n\ndef perimeter(width, height):|\n",
    ),
    (
        "python",
        "store.py",
        "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
        "        self.items.append(item)\n\n    def pop(self):\n        |\n\n    def size(self):\n"
        "        return len(self.items)\n",
    ),
    (
        "python",
        "read.py",
        "import json\n\n\ndef load_config(path):\n    with open(path) as file:\n        return json.|\n",
    ),
    (
        "typescript",
        "list.ts",
        "export function sum(values: number[]): number {\n  let total = 0;\n  for (const value of values) {\n    |\n"
        "  }\n  return total;\n}\n",
    ),
    (
        "javascript",
        "server.js",
        "const express = require('express');\nconst app = express();\n\n"
        "app.get('/health', (request, response) => {|\n});\n",
    ),
    (
        "go",
        "max.go",
        "package numbers\n\nfunc Max(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\t|\n}\n",
    ),
    (
        "rust",
        "lib.rs",
        "pub fn is_even(n: u32) -> bool {\n    n % 2 == 0\n}\n\npub fn is_odd(n: u32) -> bool {|\n}\n",
    ),
    (
        "java",
        "Counter.java",
        "class Counter {\n    private int count = 0;\n\n    void increment() {\n        |\n    }\n\n"
        "    int get() {\n        return count;\n    }\n}\n",
    ),
)


@dataclass(frozen=True)
class FormatResult:
    """What one format came to. obeyed, prose: shares of the probes. refused: why, "" when it was not."""

    format: PromptFormat
    obeyed: float
    prose: float
    acceptance_length: float
    refused: str = ""


@dataclass(frozen=True)
class SelfTest:
    """What was found for one pair. picked: the format to serve it with; None when all were refused."""

    profile: str
    formats: tuple[FormatResult, ...]
    picked: PromptFormat | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def self_test(profile: Profile, client: EngineClient, say: Callable[[str], None] = lambda text: None) -> SelfTest:
    """Try every format that the profile has markers for, one after the other, behind everybody else's requests.

    The result is kept. Raises EngineError, and DflashError for a profile that sends text.
    """
    if profile.prompt is None:
        raise DflashError(f"profile {profile.name} sends text, which has no format")
    results = []
    for format in possible_formats(profile):
        result = await _try_format(profile, client, format)
        say(f"{format}: obeyed {result.obeyed:.0%}, {result.acceptance_length:.2f} tokens a round")
        results.append(result)
    found = SelfTest(profile.name, tuple(results), pick(results))
    file = _file(profile)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found.to_json()), encoding="utf-8")
    return found


def pick(results: Sequence[FormatResult]) -> PromptFormat | None:
    """Of the formats that were not refused and are obeyed about as well as the best the one accepted longest."""
    good = [each for each in results if not each.refused]
    best = max((each.obeyed for each in good), default=0.0)
    near = [each for each in good if each.obeyed >= best - AS_OBEDIENT]
    return max(near, key=lambda each: each.acceptance_length).format if near else None


def possible_formats(profile: Profile) -> list[PromptFormat]:
    """The formats that the profile has all markers for, plain text first."""
    markers = profile.prompt.marker_ids if profile.prompt is not None else {}
    return [name for name, needed in FORMAT_MARKERS.items() if all(each in markers for each in needed)]  # type: ignore[misc]


def kept_self_test(profile: Profile) -> SelfTest | None:
    """What was found for the profile's pair before; None when nothing was, or it cannot be read."""
    try:
        found = json.loads(_file(profile).read_text(encoding="utf-8"))
        formats = tuple(FormatResult(**each) for each in found["formats"])
        return SelfTest(found["profile"], formats, found["picked"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def with_tested_format(profile: Profile) -> Profile:
    """The profile with a format of its own: for `auto` the one that was picked, if one was.

    Raises DflashError, one line, for a format that the pair answered with prose.
    """
    if profile.prompt is None:
        return profile
    found = kept_self_test(profile)
    if profile.prompt.format == "auto":
        if found is not None and found.picked is None:
            raise DflashError(f"profile {profile.name}: its target obeys none of the prompt formats it has markers for")
        picked = found.picked if found is not None else None
        return replace(profile, prompt=replace(profile.prompt, format=picked or "auto"))
    for each in found.formats if found is not None else ():
        if each.format == profile.prompt.format and each.refused:
            raise DflashError(
                f"profile {profile.name}: format {each.format!r} is refused, its target {each.refused}; use 'auto'"
            )
    return profile


async def _try_format(profile: Profile, client: EngineClient, format: PromptFormat) -> FormatResult:
    assert profile.prompt is not None
    suffix_budget = profile.prompt.suffix_budget or min(SUFFIX_BUDGET, profile.prompt.budget // 4)
    budget = profile.prompt.budget - (0 if profile.prompt.suffix_budget else suffix_budget)
    settings = replace(profile.prompt, format=format, suffix_budget=suffix_budget, budget=budget, max_tokens=TOKENS)
    prompts = PromptBuilder(replace(profile, prompt=settings))
    obeyed, prose, lengths = [], [], []
    for name, path, marked in PROBES:
        before, _, after = marked.partition("|")
        cursor = CursorText(before, after, language_for(name))
        prompt = prompts.build(TextBefore(before), path, cursor.language, Around(suffix=after))
        request = CompletionRequest(
            prompt=prompt.content,
            max_tokens=TOKENS,
            stop_token_ids=prompt.stop_ids,
            draft="on" if profile.draft is not None else "auto",
            session=f"self-test-{format}",
            priority=WARM_UP,
            heal=prompt.heal,
        )
        text = ""
        async with client.stream(request) as stream:
            async for chunk in stream:
                text += chunk.text
        retyped = text.startswith(prompt.retyped)
        text = text.removeprefix(prompt.retyped)
        prose.append(is_prose(text))
        obeyed.append(retyped and not prose[-1] and _goes_on(text, cursor))
        if stream.summary is not None and stream.summary.rounds:
            lengths.append(stream.summary.acceptance_length)
    result = FormatResult(
        format,
        round(statistics.fmean(obeyed), 3),
        round(statistics.fmean(prose), 3),
        round(statistics.fmean(lengths), 2) if lengths else 0.0,
    )
    return replace(result, refused=_refusal(result))


def _refusal(result: FormatResult) -> str:
    if result.prose > PROSE:
        return f"answered {result.prose:.0%} of the probes with prose"
    return f"went on with only {result.obeyed:.0%} of the files" if result.obeyed < OBEDIENT else ""


def is_prose(text: str) -> bool:
    """Whether an answer talks about the file instead of going on with it: its first line is a sentence or a fence."""
    return _COMMENT.match(text) is None and _PROSE.match(text) is not None


def _goes_on(text: str, cursor: CursorText) -> bool:
    cut = Cut(cursor)
    cut.add(text)
    if cut.decision.end is None:
        cut.finish()
    kept = cut.kept()
    return bool(kept.strip()) and not parses_worse(kept, cursor)


def _file(profile: Profile) -> Path:
    """Where the result for the profile's pair is kept: another target, draft or version is another file."""
    parts = [VERSION, _revision(profile.target), _revision(profile.draft), profile.engine.address]
    parts.append(profile.prompt and dict(profile.prompt.marker_ids))
    key = hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()[:16]
    return paths.cache_dir() / "self-tests" / f"{key}.json"


def _revision(source: ModelSource | None) -> list[Any]:
    """What tells one checkpoint from another: its path and revision, and the sizes and times of its weights."""
    if source is None:
        return []
    weights = sorted(source.path.glob("*.safetensors"))
    return [source.path, source.revision, [(each.name, each.stat().st_size, each.stat().st_mtime) for each in weights]]
