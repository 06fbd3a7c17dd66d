"""Hundreds of random keys, requests, cancellations, acceptances and undos, with an engine that is killed now and then.

Whatever the order, a request is answered once, with text of its own place or with nothing, and what grows never
shrinks. The recorded texts say what belongs to a place.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from editor import URI, Editor, editor, options
from engines import own_directories, replay_profile, stop
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from server.engine.launcher import running_engine
from server.profiles import Profile

CANCELLED = -32800
STEPS = 250
KILL_EVERY = 120  # steps
TEXTS = {
    "def add(items):\n": "    total = 0\n    for each in items:\n        total += each\n    return total\n\n\nx = 1\n",
    "call(": "one, two(three), [four])\nnext_one = 2\n",
    "table = ": "[\n    1,\n    2,\n    3,\n]\nother = table\n",
    "short = ": "[1, 2]",
    "name = ": "'ä 漢字 😀 end'\n",
}


def pieces(text: str) -> list[str]:
    dice = random.Random(len(text))
    found = []
    while text:
        length = dice.randint(1, 9)
        found.append(text[:length])
        text = text[length:]
    return found


@pytest.fixture(scope="module")
def profile() -> Iterator[Profile]:
    entries = [
        {"after": after, "text": text, "chunks": pieces(text), "delay_ms": 4 + number}
        for number, (after, text) in enumerate(TEXTS.items())
    ]
    with own_directories() as root:
        found = replay_profile(root, entries)
        yield found
        stop(found)


@dataclass
class Asked:
    """A request, and what the text was when it was sent. grown: what it has been shown by now."""

    text: str
    place: int
    was_undone: bool
    grown: str = ""
    was_cancelled: bool = False


def belongs(before: str, text: str) -> bool:
    """Whether a text, closers at its end aside, goes on with what was recorded where `before` ends."""
    for after, recorded in TEXTS.items():
        whole = after + recorded
        for length in range(len(after), len(whole)):
            if not before.endswith(whole[:length]):
                continue
            # Blanks that stand there already are left out.
            for rest in (whole[length:], whole[length:].lstrip(" ")):
                if rest.startswith(text) or (text[:1] and rest.startswith(text.rstrip(")]'\"\n "))):
                    return True
    return False


class User:
    """Types into one document; knows its text and what is shown at the cursor."""

    def __init__(self, window: Editor, dice: random.Random) -> None:
        self.window, self.dice = window, dice
        self.text, self.place = "import os\n", len("import os\n")
        self.shown = ""
        self.was_undone = False
        self.done: list[tuple[int, str, str]] = []
        self.asked: dict[str, Asked] = {}
        self.waiting: dict[str, asyncio.Task[None]] = {}
        self.told = 0
        window.open(self.text)

    def edit(self, start: int, end: int, text: str, *, undo: bool = False) -> None:
        if not undo:
            self.done.append((start, self.text[start:end], text))
        place = types.Range(self.position(start), self.position(end))
        self.text = self.text[:start] + text + self.text[end:]
        self.place, self.shown, self.was_undone = start + len(text), "", False
        document = types.VersionedTextDocumentIdentifier(len(self.text), URI)
        change = types.TextDocumentContentChangePartial(place, text)
        self.window.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def undo(self) -> None:
        if self.done:
            start, before, after = self.done.pop()
            self.edit(start, start + len(after), before, undo=True)
            self.was_undone = len(before) != 1  # one character that comes back may have been typed

    def position(self, place: int) -> types.Position:
        begin = self.text.rfind("\n", 0, place) + 1
        return types.Position(self.text.count("\n", 0, place), len(self.text[begin:place].encode("utf-16-le")) // 2)

    def ask(self) -> None:
        id = f"request-{len(self.asked)}"
        self.asked[id] = Asked(self.text, self.place, self.was_undone)
        self.waiting[id] = asyncio.create_task(self.answer(id))

    async def answer(self, id: str) -> None:
        asked, place = self.asked[id], self.position(self.place)
        try:
            found = await asyncio.wait_for(self.window.stream(place.line, place.character, token=id, id=id), timeout=60)
        except JsonRpcException as error:
            assert error.code == CANCELLED and asked.was_cancelled
            found = None
        del self.waiting[id]
        self.hear()
        if found is not None:
            self.see(asked, found.items[0].insertText)

    def hear(self) -> None:
        """What has been told of growth since."""
        for each in self.window.progress[self.told :]:
            asked = self.asked[each.token]
            text = each.value["items"][0]["insertText"]
            assert text != asked.grown, "growth that is none"
            self.see(asked, text)
            asked.grown = text
        self.told = len(self.window.progress)

    def see(self, asked: Asked, text: str) -> None:
        before, after = asked.text[: asked.place], asked.text[asked.place :]
        assert belongs(before, text), f"not for its place: {before[-30:]!r} {text!r}"
        assert text.startswith(asked.grown), f"shrunk: {asked.grown!r} {text!r}"
        assert not asked.was_undone, f"offered after an undo: {before[-30:]!r} {text!r}"
        assert len(text.strip()) <= 3 or not after.startswith(text), f"is there already: {text!r}"
        if (asked.text, asked.place) == (self.text, self.place):
            self.shown = text

    async def act(self) -> None:
        self.hear()
        what = self.dice.choices(
            ("type", "other", "ask", "cancel", "accept", "undo", "start", "wait"), (40, 2, 5, 2, 5, 3, 10, 20)
        )[0]
        if what == "type" and self.shown:
            self.edit(self.place, self.place, self.shown[0])
            self.ask()
        elif what == "other":
            self.edit(self.place, self.place, self.dice.choice("qz =("))
            self.ask()
        elif what == "ask":
            self.ask()
        elif what == "cancel" and self.waiting:
            id = self.dice.choice(list(self.waiting))
            self.asked[id].was_cancelled = True
            self.window.client.cancel_request(types.CancelParams(id))
        elif what == "accept" and self.shown:
            self.edit(self.place, self.place, self.shown)
            self.window.client.workspace_execute_command(types.ExecuteCommandParams("dflash.accepted", [URI]))
            self.ask()
        elif what == "undo":
            self.undo()
            self.ask()
        elif what == "start":
            self.edit(len(self.text), len(self.text), "\n" + self.dice.choice(list(TEXTS)))
            self.ask()
        await asyncio.sleep(self.dice.choice((0, 0, 0.002, 0.01, 0.06)))


async def kill_engine(profile: Profile) -> None:
    client = await running_engine(profile)
    if client is not None:
        pid = (await client.health()).pid
        await client.aclose()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_the_order_every_request_is_answered_with_text_of_its_place_or_nothing(
    profile: Profile, seed: int
) -> None:
    async with editor(options(profile, surface="stream")) as window:
        await window.until_state("ready")
        user = User(window, random.Random(seed))
        for step in range(1, STEPS + 1):
            await user.act()
            if step % KILL_EVERY == 0:
                await kill_engine(profile)
        results: list[Any] = await asyncio.gather(*user.waiting.values())
        assert not any(results) and not user.waiting
        user.hear()
        assert await window.command("dflash.digest", URI) == hashlib.sha256(user.text.encode()).hexdigest()
        counts = (await window.command("dflash.counts")).get("python", {})
        assert counts and min(counts.values()) >= 0
        assert counts["accepted"] + counts["dismissed"] + counts["typed_through"] <= counts["shown"]
        assert counts["accepted_characters"] <= counts["shown_characters"]
