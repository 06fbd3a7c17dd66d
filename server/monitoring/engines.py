"""Which engines run, and what they say about themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from server.engine.launcher import running_engine
from server.engine.protocol import EngineHealth
from server.errors import DflashError
from server.profiles import load_profile


async def engine_states(profiles: Iterable[str]) -> dict[str, EngineHealth]:
    """Health of each profile's engine, by profile name; those without a running engine are left out.

    Nothing is started. A profile that cannot be read has no engine.
    """
    names = list(profiles)
    found = await asyncio.gather(*(_state(name) for name in names))
    return {name: health for name, health in zip(names, found, strict=True) if health}


async def _state(name: str) -> EngineHealth | None:
    try:
        client = await running_engine(load_profile(name))
        if client is None:
            return None
        try:
            return await client.health()
        finally:
            await client.aclose()
    except DflashError:
        return None


def describe(health: EngineHealth) -> str:
    """One line about an engine."""
    if health.kind == "replay":
        return ", ".join(part for part in (health.state, "replays recorded text, no model", health.reason) if part)
    done = "" if health.progress is None or health.state != "loading" else f" {health.progress:.0%}"
    pair = " with draft ".join(name for name in (health.target, health.draft) if name)
    where = " ".join(part for part in (health.device, health.dtype) if part)
    memory = "" if health.memory is None else f"{health.memory / 1e6:.0f} MB"
    return ", ".join(part for part in (health.state + done, pair, where, memory, health.reason) if part)
