"""Several editor windows at once: real servers, and real engines that they share or do not share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from editor import Editor, editor, options
from engines import own_directories, replay_profile, stop

from server.engine.launcher import running_engine
from server.profiles import Profile

TEXTS = ("[1, 2]", "other")


@pytest.fixture
def profiles() -> Iterator[list[Profile]]:
    with own_directories() as root:
        made = []
        for name, text in zip(("one", "two"), TEXTS, strict=True):
            (root / name).mkdir()
            made.append(replay_profile(root / name, [{"after": "short = ", "text": text, "delay_ms": 20}]))
        yield made
        for each in made:
            stop(each)


async def engine_of(profile: Profile) -> int | None:
    client = await running_engine(profile)
    if client is None:
        return None
    try:
        return (await client.health()).pid
    finally:
        await client.aclose()


async def completed(window: Editor) -> str | None:
    """What is offered once the window's engine is there."""
    await window.until_state("ready")
    item = await window.complete(0, 8)
    return None if item is None else item.insert_text


async def test_windows_that_start_at_once_with_two_profiles_get_an_engine_for_each_profile(
    profiles: list[Profile],
) -> None:
    async with AsyncExitStack() as stack:
        wanted = [profiles[number % 2] for number in range(4)]
        windows = await asyncio.gather(
            *[stack.enter_async_context(editor(options(profile, surface="inline"))) for profile in wanted]
        )
        for window in windows:
            window.open("short = ")
        assert await asyncio.gather(*map(completed, windows)) == [TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[1]]
        one, two = [await engine_of(profile) for profile in profiles]
        assert one is not None and two is not None and one != two

        # A window that goes over to the other profile takes nothing from those that stay.
        await windows[0].command("dflash.setProfile", str(profiles[1].file))
        assert await completed(windows[0]) == TEXTS[1]
        assert await completed(windows[2]) == TEXTS[0]
        assert [await engine_of(profile) for profile in profiles] == [one, two]
        assert [window.messages for window in windows] == [[], [], [], []]
