"""The ways in which completions are offered: stream, inline or menu, one of them; and what may switch them off."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest
from editor import SERVER, URI, Editor, editor, options
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled

from server.completion.generation import RoundText
from server.completion.request import Growth
from server.completion.surroundings import surroundings
from server.documents.document import Document, Place
from server.engine.launcher import stop_engine
from server.profiles import Profile, load_profile
from server.streaming import GrowthStream, is_displayable
from server.surfaces import chosen_surface

BODY = "    total = 0\n    for each in items:\n        total += each\n    return total"
NEXT = "\n\n\ndef mean(items):\n"
ENTRIES: list[dict[str, object]] = [
    {"after": "def add(items):\n", "text": BODY + NEXT, "chunks": list(BODY + NEXT), "delay_ms": 5},
    {"after": "short = ", "text": "[1, 2]"},
    {"after": "tot", "text": "al = (1,\n    2)\n", "chunks": ["al = (1,\n", "    2)\n"]},
]


async def test_a_streamed_completion_grows_and_never_shrinks(profile: Profile) -> None:
    async with editor(options(profile, surface="stream")) as ours:
        assert ours.initialized is not None
        assert ours.initialized.capabilities.inline_completion_provider is None
        assert ours.initialized.capabilities.completion_provider is None
        await ours.until_state("ready")
        ours.open("def add(items):\n")
        whole = (await ours.stream(1, 0)).items[0]
        assert whole.insertText == BODY
        assert whole.command.command == "dflash.accepted"
        assert {each.token for each in ours.progress} == {"growth"}
        shown = [each.value["items"][0]["insertText"] for each in ours.progress]
        assert all(later.startswith(earlier) and later != earlier for earlier, later in pairwise(shown))
        # All of it may be there before it is known that it is all.
        assert shown and len(shown[0]) >= 12 and BODY.startswith(shown[-1])
        # 90 rounds of 5 ms: told one by one they would be nine times as many.
        assert len(shown) <= 12


async def test_a_cancelled_stream_ends_with_an_error_and_no_more_growth(profile: Profile) -> None:
    async with editor(options(profile, surface="stream")) as ours:
        await ours.until_state("ready")
        ours.open("def add(items):\n")
        request = asyncio.create_task(ours.stream(1, 0, id="mine"))
        await ours.until(lambda: bool(ours.progress))
        ours.client.cancel_request(types.CancelParams("mine"))
        with pytest.raises(JsonRpcRequestCancelled):
            await asyncio.wait_for(request, 10)
        told = len(ours.progress)
        await asyncio.sleep(0.25)
        assert len(ours.progress) == told


async def test_without_a_token_the_stream_is_one_answer(profile: Profile) -> None:
    async with editor(options(profile, surface="stream")) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        assert (await ours.stream(0, 8, token=None)).items[0].insertText == "[1, 2]"
        assert ours.progress == []


async def test_nothing_is_offered_on_a_selection(profile: Profile) -> None:
    async with editor(options(profile, surface="stream")) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        selection = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 8}}
        assert await ours.stream(0, 8, selection=selection, context={"triggerKind": 2}) is None
        assert ours.statuses[-1].reason == "text is selected"
        selection["start"] = selection["end"]
        assert (await ours.stream(0, 8, selection=selection)).items[0].insertText == "[1, 2]"


async def test_growth_is_told_ten_times_a_second_at_most() -> None:
    site = surroundings(Document("file:///a.py", ""), Place(0, 0), "a.py", 100)
    told: list[float] = []
    loop = asyncio.get_running_loop()
    begun = loop.time()
    stream = GrowthStream(lambda growth: told.append(loop.time()))
    rounds = [RoundText("x" * 12, "")]
    for _ in range(30):
        stream.grow(Growth(site, tuple(rounds), 0, 12 + len(rounds)))
        rounds.append(RoundText("y", ""))
        await asyncio.sleep(0.01)
    stream.end()
    assert 2 <= len(told) <= 2 + (loop.time() - begun) / 0.1


@pytest.mark.parametrize(
    ("text", "settled", "shown"),
    [
        ("", 0, False),
        ("abc", 3, False),
        ("abcdefghijk", 11, False),
        ("abcdefghijkl", 12, True),
        ("a", 1, False),
        ("a  \n", 1, True),
        ("\na", 2, False),
        ("\na\nb", 4, True),
        ("\n\n", 0, False),
    ],
)
def test_a_piece_is_shown_once_its_line_is_whole_or_long_enough(text: str, settled: int, shown: bool) -> None:
    site = surroundings(Document("file:///a.py", ""), Place(0, 0), "a.py", 100)
    assert is_displayable(Growth(site, (RoundText(text, ""),), 0, settled)) is shown


async def test_the_menu_has_one_item_of_several_lines_that_begins_with_the_word(profile: Profile) -> None:
    async with editor(options(profile, surface="menu")) as ours:
        assert ours.initialized is not None
        assert ours.initialized.capabilities.inline_completion_provider is None
        await ours.until_state("ready")
        ours.open("x = 1\ntot")
        found = await ours.client.text_document_completion_async(
            types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(1, 3))
        )
        assert isinstance(found, types.CompletionList) and found.is_incomplete
        (item,) = found.items
        assert isinstance(item.text_edit, types.TextEdit)
        assert item.text_edit.new_text == "total = (1,\n    2)"
        assert item.text_edit.range == types.Range(types.Position(1, 0), types.Position(1, 3))
        assert (item.label, item.filter_text) == ("total = (1,", "tot")


@pytest.mark.parametrize(
    ("capabilities", "given", "surface"),
    [
        (types.TextDocumentClientCapabilities(), None, "inline"),
        (types.TextDocumentClientCapabilities(completion=types.CompletionClientCapabilities()), None, "menu"),
        (
            types.TextDocumentClientCapabilities(completion=types.CompletionClientCapabilities()),
            {"editorInfo": {"name": "Emacs"}},
            "inline",
        ),
        (
            types.TextDocumentClientCapabilities(
                completion=types.CompletionClientCapabilities(),
                inline_completion=types.InlineCompletionClientCapabilities(),
            ),
            None,
            "inline",
        ),
    ],
)
def test_a_client_is_offered_what_it_declares(
    capabilities: types.TextDocumentClientCapabilities, given: object, surface: str
) -> None:
    params = types.InitializeParams(types.ClientCapabilities(text_document=capabilities), initialization_options=given)
    assert chosen_surface(None, params) == surface
    assert chosen_surface("stream", params) == "stream"


async def test_snooze_ends_offers_for_a_while(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        await ours.command("dflash.snooze", 1)
        assert await ours.complete(0, 8) is None
        assert ours.statuses[-1].reason == "snoozed"
        await ours.command("dflash.snooze", 0)
        assert await ours.complete(0, 8) is not None


async def test_a_workspaces_configuration_can_exclude_but_not_choose_a_profile(profile: Profile) -> None:
    asked: list[str | None] = []

    def configure(ours: Editor) -> None:
        @ours.client.feature(types.WORKSPACE_CONFIGURATION)
        def configuration(params: types.ConfigurationParams) -> list[object]:
            asked.extend(item.section for item in params.items)
            return [{"exclude": ["secret.py"], "profile": "/tmp/evil.toml", "enable": True}]

    async with editor(options(profile), prepare=configure) as ours:
        await ours.until_state("ready")
        assert asked == ["dflash"]
        assert ours.statuses[-1].profile == "taped"
        ours.open("short = ", "file:///work/secret.py")
        assert await ours.complete(0, 8, "file:///work/secret.py") is None
        assert ours.statuses[-1].reason == "excluded"
        ours.open("short = ")
        assert await ours.complete(0, 8) is not None
        assert ours.messages == []


async def test_the_users_file_is_read_and_the_options_win(profile: Profile, directories: Path) -> None:
    folder = directories / "config_home" / "dflash-lsp"
    folder.mkdir(exist_ok=True)
    file = folder / "settings.toml"
    file.write_text(f'profile = "{profile.file}"\nenable = false\ncolour = 1\n')
    try:
        async with editor({"enable": True}) as ours:
            await ours.until_state("ready")
            assert ours.messages == [f"dflash-lsp: settings: unknown option colour in {file}"]
            assert ours.statuses[-1].profile == "taped"
            ours.open("short = ")
            assert await ours.complete(0, 8) is not None
    finally:
        file.unlink()


async def test_acceptance_is_counted_by_language_and_holds_no_text(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        item = await ours.complete(0, 8)
        ours.client.protocol.notify(
            "textDocument/didPartiallyAcceptCompletion",
            {"item": {"insertText": "[1, 2]", "command": {"arguments": [URI]}}, "acceptedLength": 2},
        )
        await ours.command(item.command.command, *item.command.arguments)
        counts = (await ours.command("dflash.counts"))["python"]
        assert (counts["shown"], counts["accepted"], counts["partly_accepted"]) == (1, 1, 1)
        assert counts["accepted_characters"] == counts["shown_characters"] == 6


async def test_counts_of_all_windows_are_kept_across_restarts_and_hold_no_text(
    profile: Profile, tmp_path: Path
) -> None:
    command = ["env", f"XDG_STATE_HOME={tmp_path}", *SERVER]
    file = tmp_path / "dflash-lsp" / "counts.json"
    for windows in (1, 2, 3):
        if windows == 3:
            file.write_text(file.read_text()[:-1] + ', "c": 7}')  # damage is not ours, and costs only counts
        async with editor(options(profile), command=command) as ours:
            await ours.until_state("ready")
            ours.open("short = ")
            item = await ours.complete(0, 8)
            await ours.command(item.command.command, *item.command.arguments)
            kept = await ours.command("dflash.counts", "all")
            assert kept["python"]["accepted"] == (windows if windows < 3 else 1)
            assert await ours.leave() == 0
    assert set(json.loads(file.read_text())) == {"python"}
    assert "short" not in file.read_text() and "[1, 2]" not in file.read_text()


async def test_a_profile_can_be_changed_while_the_editor_goes_on(profile: Profile) -> None:
    async with editor({"profile": "replay"}) as ours:
        await ours.until_state("ready")
        await ours.command("dflash.setProfile", str(profile.file))
        await ours.until(lambda: ours.statuses[-1].profile == "taped" and ours.statuses[-1].state == "ready")
        ours.open("short = ")
        assert (await ours.complete(0, 8)).insert_text == "[1, 2]"
    # The engine of the profile that was left goes on for other windows; here there are none.
    assert await stop_engine(load_profile("replay"))
