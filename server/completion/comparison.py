"""The same prompt decoded with and without the draft: what it gains, and that it changes nothing.

Speed is measured in the serving precision. Equality is checked in float32, where the target's own greedy
text is exact whatever the width of a round; in bfloat16 two kernels may settle a near-tie differently.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from server.engine.client import EngineClient
from server.engine.launcher import ensure_engine, running_engine, stop_engine
from server.engine.protocol import CompletionRequest, CompletionSummary, EngineError, EngineHealth
from server.profiles import ModelSource, Profile, load_profile

EXACT = "float32"


@dataclass(frozen=True)
class Comparison:
    """tokens of both runs; rounds and acceptance_length of the one with the draft.

    with_draft, without_draft: tokens/s while decoding, in the precision `dtype` on `device`.
    equal: whether both texts are the same in float32. first_difference: the token where they part, else None.
    """

    tokens: int
    rounds: int
    acceptance_length: float
    with_draft: float
    without_draft: float
    dtype: str
    device: str
    equal: bool
    first_difference: int | None


@dataclass(frozen=True)
class _Run:
    ids: list[int]
    summary: CompletionSummary

    @property
    def tokens_per_s(self) -> float:
        seconds = self.summary.decode_ms / 1000
        return round(self.summary.completion_tokens / seconds, 1) if seconds else 0.0


async def compare(
    profile: Profile,
    client: EngineClient,
    request: CompletionRequest,
    on_health: Callable[[EngineHealth], None] | None = None,
) -> Comparison:
    """Decode the request with the draft, then as many tokens without it. Raises EngineError.

    A serving precision other than float32 needs a second engine, which is started and stopped again.
    """
    health = await client.health()
    if health.kind != "resident" or not health.draft:
        raise EngineError(f"profile {profile.name} has no draft of ours to compare with")
    with_draft, without = await _both(client, request)
    exact = (with_draft, without)
    if health.dtype != EXACT:
        exact = await _both_exact(profile, request, on_health)
    difference = _first_difference(exact[0].ids, exact[1].ids)
    return Comparison(
        tokens=with_draft.summary.completion_tokens,
        rounds=with_draft.summary.rounds,
        acceptance_length=round(with_draft.summary.acceptance_length, 2),
        with_draft=with_draft.tokens_per_s,
        without_draft=without.tokens_per_s,
        dtype=health.dtype,
        device=health.device,
        equal=difference is None,
        first_difference=difference,
    )


async def _both(client: EngineClient, request: CompletionRequest) -> tuple[_Run, _Run]:
    with_draft = await _run(client, replace(request, draft="on"))
    # The same number of tokens: past an end of text as well, where the other run may have come to none.
    length = with_draft.summary.completion_tokens
    return with_draft, await _run(client, replace(request, draft="off", max_tokens=length, stop_token_ids=()))


async def _run(client: EngineClient, request: CompletionRequest) -> _Run:
    ids: list[int] = []
    async with client.stream(request) as stream:
        async for chunk in stream:
            ids += chunk.token_ids
    if stream.summary is None:
        raise EngineError("the engine's answer broke off")
    return _Run(ids, stream.summary)


async def _both_exact(
    profile: Profile, request: CompletionRequest, on_health: Callable[[EngineHealth], None] | None
) -> tuple[_Run, _Run]:
    """Both runs in float32, on an engine of their own unless one runs already."""
    with tempfile.TemporaryDirectory(prefix="dflash-lsp-") as folder:
        exact = _exact_profile(profile, Path(folder))
        client = await running_engine(exact)
        ours = client is None
        if client is None:
            client = await ensure_engine(exact, on_health=on_health)
        try:
            return await _both(client, request)
        finally:
            await client.aclose()
            if ours:
                await stop_engine(exact)


def _exact_profile(profile: Profile, folder: Path) -> Profile:
    """The profile in float32, written to a file, because an engine process reads its profile from one."""
    assert profile.target is not None and profile.prompt is not None
    engine = profile.engine
    tables: dict[str, dict[str, object]] = {
        "engine": {
            "dtype": EXACT,
            "device": engine.device,
            "context": engine.context,
            "threads": engine.threads,
            "memory_limit": engine.memory_limit,
        },
        "target": _source(profile.target),
        "prompt": {"tokenizer": str(profile.prompt.tokenizer), "marker_ids": dict(profile.prompt.marker_ids)},
    }
    if profile.draft is not None:
        tables["draft"] = _source(profile.draft)
    file = folder / f"{profile.name}-{EXACT}.toml"
    file.write_text("".join(map(_toml, tables, tables.values())), encoding="utf-8")
    return load_profile(str(file))


def _source(source: ModelSource) -> dict[str, object]:
    return asdict(source) | {"path": str(source.path)}


def _toml(name: str, table: dict[str, object]) -> str:
    """A TOML table of strings, numbers, and tables of numbers. JSON writes those alike."""
    plain = {key: value for key, value in table.items() if value is not None}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    return "\n".join([f"[{name}]", *lines, "", ""])


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {each}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _first_difference(one: list[int], other: list[int]) -> int | None:
    """The place of the first token in which they differ; a missing one differs."""
    if one == other:
        return None
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
