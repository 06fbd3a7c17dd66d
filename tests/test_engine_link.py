"""What a window knows of its engine stays true after the engine came up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from engines import replay_profile

from server.completion import engine_link
from server.completion.engine_link import EngineLink, LinkListener
from server.engine.client import EngineClient
from server.engine.protocol import Endpoint, EngineHealth


class FakeClient:
    """An engine that runs short of memory at a moment of the test's choosing; the real ladder is tested in the core."""

    def __init__(self) -> None:
        self.state = EngineHealth(state="ready", target="T", draft="D")
        self.endpoint = Endpoint("unix:/nowhere", None)

    async def health(self) -> EngineHealth:
        return self.state

    async def aclose(self) -> None:
        pass


async def test_an_engine_that_degrades_later_is_told_after_the_next_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, heard = FakeClient(), list[EngineHealth]()

    async def connect(profile: object, on_health: object) -> EngineClient:
        return cast(EngineClient, fake)

    monkeypatch.setattr(engine_link, "ensure_engine", connect)
    link = EngineLink(replay_profile(tmp_path), LinkListener(changed=heard.append))
    await link.connect()
    fake.state = replace(fake.state, state="degraded", reason="out of memory: draft dropped", draft="")
    link.succeeded()
    await asyncio.sleep(0)
    assert heard[-1].state == "ready", "it is not asked after every completion"
    monkeypatch.setattr(engine_link, "LOOK_AGAIN_S", 0.0)
    link.succeeded()
    while heard[-1].state == "ready":  # noqa: ASYNC110 (the link looks in the background)
        await asyncio.sleep(0.01)
    assert (heard[-1].state, heard[-1].reason) == ("degraded", "out of memory: draft dropped")
    await link.aclose()
