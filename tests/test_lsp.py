"""The language server as an editor meets it: a real process on stdio, a real replay engine behind it."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from editor import SERVER, TRIES, URI, Editor, editor, options
from engines import CANCELLED, count, nothing_runs, replay_profile, rounds_when_ended
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled
from pygls.io_ import StdoutWriter

from server.completion.service import CompletionService
from server.documents.document import Document
from server.documents.positions import Position
from server.engine.client import EngineClient
from server.engine.launcher import stop_engine
from server.engine.protocol import EngineHealth
from server.lsp import create_server
from server.profiles import Profile, load_profile
from server.protocol import DflashProtocol
from server.settings import Settings, read_settings
from server.window import Window, path_in_workspace

LONG = [f"    x{number} = {number}\n" for number in range(200)]
ENTRIES: list[dict[str, object]] = [
    {
        "after": "def two(a):\n    ",
        "text": "b = a\n    return b\n\n\ndef three():\n    pass\n",
        "chunks": ["b = a\n", "    return b\n", "\n\ndef three():\n", "    pass\n"],
    },
    {"after": "def endless():\n", "text": "".join(LONG), "chunks": LONG, "delay_ms": 20},
    # No time, beside such a round, in which an engine is told on a busy machine.
    {"after": "def slow():\n", "text": "".join(LONG), "chunks": LONG, "delay_ms": 400},
    {"after": "call('漢😀', ", "text": "b)\nprint(1)\n", "chunks": ["b)", "\nprint(1)\n"]},
    {"after": "short = ", "text": "[1, 2]"},
]
INITIALIZE_S = 1.5


def place(line: int, start: int, end: int) -> types.Range:
    return types.Range(types.Position(line, start), types.Position(line, end))


async def test_a_completion_ends_with_its_unit_and_reports_its_acceptance(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("def two(a):\n    ")
        item = await ours.complete(1, 4)
        assert item.insert_text == "b = a\n    return b"
        assert item.range == place(1, 4, 4)
        assert item.command.command == "dflash.accepted"
        assert await ours.command(item.command.command, *item.command.arguments) is None
        status = ours.statuses[-1]
        assert (status.profile, status.target, status.reason) == ("taped", "replay", "")
        await ours.until(lambda: ours.statuses[-1].tokens_per_s > 0)
        assert ours.statuses[-1].acceptance_length == 1.0


@pytest.mark.parametrize(
    ("asks", "ours_comes", "copilots_comes"),
    [({}, False, False), ({"status": True}, True, False), ({"editorInfo": {"name": "Emacs"}}, False, True)],
)
async def test_the_status_is_told_only_to_who_asks_in_the_words_that_it_knows(
    profile: Profile, asks: dict[str, object], ours_comes: bool, copilots_comes: bool
) -> None:
    async with editor(options(profile, **asks), asks_for_status=False) as ours:
        ours.open("short = ")
        for _ in range(20):
            if (item := await ours.complete(0, 8)) is not None:  # by then the engine is there, and its state was told
                break
        assert item is not None and item.insert_text == "[1, 2]"
        assert await ours.command("dflash.counts")  # whatever was told before has come
        assert (bool(ours.statuses), bool(ours.copilots_statuses)) == (ours_comes, copilots_comes)
        assert not ours.messages


async def test_initialize_is_answered_in_time() -> None:
    """The best of three starts, less what each waited for a processor that others had."""
    seconds = []
    for _ in range(3):
        begun = time.monotonic()
        async with editor({"enable": False, "profile": "replay"}) as ours:
            seconds.append(time.monotonic() - begun - waited_for_processor(ours.process.pid))
        if seconds[-1] < INITIALIZE_S:
            return
    raise AssertionError(f"initialize was answered after {min(seconds):.2f} s")


def waited_for_processor(pid: int) -> float:
    """Seconds for which a process could run but had no processor; 0.0 where Linux does not tell."""
    schedule = Path(f"/proc/{pid}/schedstat")
    return int(schedule.read_text(encoding="ascii").split()[1]) / 1e9 if schedule.exists() else 0.0


async def test_the_server_never_imports_torch(profile: Profile) -> None:
    """The whole session runs in a process that lists its modules when it ends."""
    driver = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "from server.cli import main; sys.exit(main(['lsp']))"
    )
    async with editor(options(profile), command=[sys.executable, "-P", "-c", driver]) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        assert (await ours.complete(0, 8)).insert_text == "[1, 2]"
        assert await ours.leave() == 0
        assert ours.process.stderr is not None
        loaded = set((await ours.process.stderr.read()).decode().split())
    assert {"server.lsp", "server.completion.service", "tree_sitter"} <= loaded
    assert not {"torch", "transformers", "numpy", "dflash_core"} & loaded


async def test_what_is_advertised(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        assert ours.initialized is not None
        found = ours.initialized.capabilities
        assert isinstance(found.inline_completion_provider, types.InlineCompletionOptions)
        assert isinstance(found.text_document_sync, types.TextDocumentSyncOptions)
        assert found.text_document_sync.change == types.TextDocumentSyncKind.Incremental
        assert found.position_encoding == types.PositionEncodingKind.Utf16
        assert found.completion_provider is None
        assert found.execute_command_provider is not None
        assert set(found.execute_command_provider.commands) == {
            "dflash.accepted",
            "dflash.counts",
            "dflash.digest",
            "dflash.restartEngine",
            "dflash.setProfile",
            "dflash.snooze",
        }


@pytest.mark.parametrize(
    ("encodings", "units"), [(["utf-8", "utf-16"], 7), (["utf-16"], 3), (["utf-32"], 2), (None, 3)]
)
async def test_positions_are_right_beside_emoji_and_cjk(
    profile: Profile, encodings: list[str] | None, units: int
) -> None:
    async with editor(options(profile), encodings) as ours:
        await ours.until_state("ready")
        ours.open("😀 = 1\ncall('漢😀', )\n")
        character = len("call('") + units + len("', ")
        item = await ours.complete(1, character)
        # The editor's closing bracket stands right of the cursor: the text brings it along.
        assert (item.insert_text, item.range) == ("b)", place(1, character, character + 1))


async def test_edits_after_characters_that_python_takes_for_line_ends_stay_in_place(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("a = '\u2028\x0b\x0c\x85'\nlong = \n")
        ours.change("short", 1, 0, 4)
        assert (await ours.complete(1, 8)).insert_text == "[1, 2]"


async def test_a_position_outside_the_document_is_clamped(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        item = await ours.complete(10**6, 10**6)
        assert (item.insert_text, item.range) == ("[1, 2]", place(0, 8, 8))


async def test_a_file_with_carriage_returns_gets_text_with_them(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("def two(a):\r\n    \r\n")
        assert (await ours.complete(1, 4)).insert_text == "b = a\r\n    return b"


async def test_neovim_which_inserts_lines_between_line_feeds_alone_gets_no_carriage_returns(profile: Profile) -> None:
    def call_it_neovim(ours: Editor) -> None:
        ours.name = "Neovim"

    async with editor(options(profile), prepare=call_it_neovim) as ours:
        await ours.until_state("ready")
        ours.open("def two(a):\r\n    \r\n")
        assert (await ours.complete(1, 4)).insert_text == "b = a\n    return b"


async def test_a_superseded_request_is_answered_with_null(profile: Profile, engine: EngineClient) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("def endless():\n")
        cancelled, rounds = await count(engine, CANCELLED), await count(engine, "dflash_rounds_total")
        older = asyncio.create_task(ours.complete(1, 0))
        await begun(engine, rounds)
        ours.change("d", 0, 0, 0)  # what is generated does not go with it
        newer = asyncio.create_task(ours.complete(1, 0))
        assert await asyncio.wait_for(older, 10) is None
        await rounds_when_ended(engine, cancelled)
        newer.cancel()


async def test_a_cancelled_request_ends_in_an_error_and_the_engine_within_a_round(
    profile: Profile, engine: EngineClient
) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("def slow():\n")
        cancelled, rounds = await count(engine, CANCELLED), await count(engine, "dflash_rounds_total")
        request = asyncio.create_task(ours.complete(1, 0, id="mine"))
        await begun(engine, rounds)
        before = await count(engine, "dflash_rounds_total")
        ours.client.cancel_request(types.CancelParams("mine"))
        with pytest.raises(JsonRpcRequestCancelled) as caught:
            await asyncio.wait_for(request, 10)
        assert caught.value.code == -32800
        assert await rounds_when_ended(engine, cancelled) - before <= 1


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("file:///work/never-opened.py", "unknown document"),
        ("output:extension-output", "no completions for output documents"),
        ("git:/work/a.py?%7B%22ref%22%3A%22~%22%7D", "no completions for git documents"),
        ("file:///work/secret/keys.py", "excluded"),
    ],
)
async def test_silence_is_polite_and_has_a_reason(profile: Profile, uri: str, reason: str) -> None:
    async with editor(options(profile, exclude=["secret/*"])) as ours:
        await ours.until_state("ready")
        if reason != "unknown document":
            ours.open("short = ", uri)
        assert await ours.complete(0, 8, uri) is None
        assert ours.statuses[-1].reason == reason


async def test_an_untitled_document_is_completed(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("short = ", "untitled:Untitled-1")
        assert (await ours.complete(0, 8, "untitled:Untitled-1")).insert_text == "[1, 2]"


async def test_completions_can_be_disabled(profile: Profile) -> None:
    async with editor(options(profile, enable=False)) as ours:
        await ours.until_state("ready")
        ours.open("short = ")
        assert await ours.complete(0, 8) is None
        assert ours.statuses[-1].reason == "disabled"


async def test_wrong_options_are_named_in_one_message_and_the_rest_is_kept(profile: Profile) -> None:
    async with editor(options(profile, enable="yes", colour=1, editorInfo={}, surface="inline")) as ours:
        await ours.until_state("ready")
        assert ours.messages == ["dflash-lsp: settings: enable must be true or false; unknown option colour"]
        ours.open("short = ")
        assert await ours.complete(0, 8) is not None


async def test_a_profile_that_does_not_exist_is_one_message_and_no_completion() -> None:
    async with editor({"profile": "nowhere"}) as ours:
        await ours.until_state("failed")
        assert len(ours.messages) == 1 and "nowhere" in ours.messages[0]
        ours.open("short = ")
        assert await ours.complete(0, 8) is None
        assert ours.statuses[-1].reason in ours.messages[0]


async def test_an_engine_that_cannot_serve_is_one_message_and_no_completion(directories: Path) -> None:
    folder = directories / "broken"
    folder.mkdir()
    profile = replay_profile(folder, ENTRIES)
    (folder / "recording.jsonl").unlink()
    try:
        async with editor(options(profile)) as ours:
            await ours.until_state("failed")
            ours.open("short = ")
            assert await ours.complete(0, 8) is None
            assert "recording" in ours.statuses[-1].reason
            assert len(ours.messages) == 1 and "recording" in ours.messages[0]
    finally:
        await stop_engine(profile)


async def test_the_engine_can_be_restarted(directories: Path) -> None:
    folder = directories / "restarted"
    folder.mkdir()
    profile = replay_profile(folder, ENTRIES)
    try:
        async with editor(options(profile)) as ours:
            await ours.until_state("ready")
            told = len(ours.statuses)
            await ours.command("dflash.restartEngine")
            await ours.until(lambda: len(ours.statuses) > told and ours.statuses[-1].state == "ready")
            ours.open("short = ")
            assert (await ours.complete(0, 8)).insert_text == "[1, 2]"
    finally:
        await stop_engine(profile)


async def test_clients_made_for_copilot_find_what_they_ask_for(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        ask = ours.client.protocol.send_request_async
        assert (await ask("checkStatus", {})).status == "OK"
        assert (await ask("signIn", {})).status == "AlreadySignedIn"
        for method in ("didFocus", "didShowCompletion", "didPartiallyAcceptCompletion"):
            ours.client.protocol.notify(f"textDocument/{method}", {"item": {"insertText": "a"}, "acceptedLength": 1})
        assert (await ask("checkStatus", {})).status == "OK"


async def test_shutdown_and_exit_end_the_process(profile: Profile, engine: EngineClient) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        assert await ours.leave() == 0
    assert (await engine.health()).state == "ready"  # it serves other windows


@pytest.mark.parametrize("busy", [False, True])
async def test_a_client_that_is_gone_takes_its_server_with_it(
    profile: Profile, engine: EngineClient, busy: bool
) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("def endless():\n")
        rounds = await count(engine, "dflash_rounds_total")
        if busy:
            request = asyncio.create_task(ours.complete(1, 0))
            await begun(engine, rounds)
        assert ours.process.stdin is not None
        ours.process.stdin.close()
        assert await asyncio.wait_for(ours.process.wait(), 10) == 1
        if busy:
            await nothing_runs(engine)
            assert await count(engine, "dflash_rounds_total") - rounds < len(LONG) / 2
            request.cancel()


def test_a_message_that_cannot_be_read_is_answered_and_no_text_of_the_user_is_logged(profile: Profile) -> None:
    secret = "hunter2"
    messages: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": {"capabilities": {}, "initializationOptions": options(profile)}},
        {"method": "initialized", "params": {}},
        {"method": "textDocument/didChange", "params": {"textDocument": secret, "contentChanges": [{"text": secret}]}},
        {"method": secret, "params": {"text": secret}},
        {"id": 2, "method": "textDocument/inlineCompletion", "params": {"position": secret}},
        {"id": 3, "method": "shutdown"},
        {"method": "exit"},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    data = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
    done = subprocess.run(SERVER, input=data, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0
    answers = [json.loads(part.split(b"\r\n\r\n")[1]) for part in done.stdout.split(b"Content-Length: ")[1:]]
    errors = {answer["id"]: answer["error"]["code"] for answer in answers if "error" in answer}
    assert errors == {2: -32602}
    assert not [answer for answer in answers if answer.get("method") == "window/showMessage"]
    assert secret not in done.stderr.decode()


async def begun(engine: EngineClient, rounds: float) -> None:
    """Wait until the engine has run a round more than `rounds`."""
    for _ in range(TRIES):
        if await count(engine, "dflash_rounds_total") > rounds:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the generation did not begin")


async def test_a_mistake_of_ours_is_silence_with_a_reason_and_no_text_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    statuses: list[dict[str, object]] = []
    window = Window(statuses.append, lambda message: None)

    def place(self: Document, position: Position) -> None:
        raise ValueError(self.text)

    monkeypatch.setattr(Document, "place", place)
    window.documents.open(URI, "hunter2", "python", 1)
    service = CompletionService(load_profile("replay"))
    service.link.health = EngineHealth("ready")
    monkeypatch.setattr(window, "_own", service)
    assert await window.complete(URI, Position(0, 0)) == []
    assert statuses[-1]["reason"] == "internal error: ValueError"
    assert "internal error: ValueError in" in caplog.text and "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("given", "settings", "problems"),
    [
        (None, Settings(), []),
        ({}, Settings(), []),
        ([], Settings(), ["initializationOptions must be an object"]),
        ({"profile": ""}, Settings(), ["profile must be a name or a path"]),
        ({"exclude": ["*.env", 1]}, Settings(), ["exclude must be a list of globs"]),
        ({"excludeByLanguage": {"sql": ["*"]}}, Settings(exclude_by_language={"sql": ("*",)}), []),
        ({"excludeByLanguage": {"sql": "*"}}, Settings(), ["excludeByLanguage must be lists of globs by language"]),
        ({"status": "yes"}, Settings(), ["status must be true or false"]),
        ({"surface": "popup"}, Settings(), ['surface must be "stream" or "inline" or "menu"']),
        ({"surface": ["stream"]}, Settings(), ['surface must be "stream" or "inline" or "menu"']),
        ({"surface": "menu", "enable": False}, Settings(surface="menu", enable=False), []),
    ],
)
def test_options_are_read_once_into_settings(given: object, settings: Settings, problems: list[str]) -> None:
    assert read_settings(given) == (settings, problems)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///work/a/b.py", "a/b.py"),
        ("file:///work/inner/b.py", "b.py"),
        ("file:///working/b.py", "b.py"),
        ("file:///work/with%20space/%5Bid%5D.ts", "with space/[id].ts"),
        ("file:///c%3A/x/b.py", "x/b.py"),
        ("untitled:Untitled-1", "Untitled-1"),
    ],
)
def test_paths_are_told_from_the_innermost_workspace_folder(uri: str, path: str) -> None:
    assert path_in_workspace(uri, ["file:///work", "file:///work/inner/", "file:///c:"]) == path


async def test_a_notification_leaves_nothing_behind_in_the_protocol() -> None:
    server = create_server()
    protocol = server.protocol
    assert isinstance(protocol, DflashProtocol)
    protocol.set_writer(StdoutWriter(io.BytesIO()))

    def tell(method: str, params: object, **more: object) -> None:
        protocol.receive(json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode())

    tell("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, id=1)
    tell("textDocument/didOpen", {"textDocument": {"uri": URI, "languageId": "python", "version": 0, "text": ""}})
    for number in range(20):
        document = {"uri": URI, "version": number}
        tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": f"{number}\n"}]})
    tell("workspace/didChangeConfiguration", {"settings": None})
    for _ in range(5):
        await asyncio.sleep(0)
    assert server.window.documents.get(URI).text == "19\n"  # type: ignore[union-attr]
    assert not protocol._request_futures
