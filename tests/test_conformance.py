"""The protocol as clients see it that we did not write: pytest-lsp's, and VS Code's own in Node."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_lsp
from editor import SERVER, options
from engines import own_directories, replay_profile, stop
from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled
from pytest_lsp.checks import LspSpecificationWarning

from server.profiles import Profile

ROOT = Path(__file__).parents[1]
MODULES = ROOT / "node_modules"
LONG = [f"    x{number} = {number}\n" for number in range(200)]
ENTRIES: list[dict[str, object]] = [
    {"after": "def endless():\n", "text": "".join(LONG), "chunks": LONG, "delay_ms": 20},
    {"after": "short = ", "text": "[1, 2]"},
]
URI = "file:///work/a.py"
AUTOMATIC = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)


@pytest.fixture(scope="module")
def profile() -> Iterator[Profile]:
    with own_directories() as root:
        found = replay_profile(root, ENTRIES)
        yield found
        stop(found)


@pytest.fixture
async def client(profile: Profile) -> AsyncIterator[pytest_lsp.LanguageClient]:
    """A started server; the test begins and ends the session."""
    config = pytest_lsp.ClientServerConfig(server_command=SERVER)
    client = await config.start()
    assert isinstance(client, pytest_lsp.LanguageClient)
    ready = asyncio.Event()
    client.feature("dflash/status")(lambda params: ready.set() if params.state == "ready" else None)
    client.ready = ready  # type: ignore[attr-defined]
    yield client
    await client.shutdown_session()
    await client.stop()


async def begin(
    client: pytest_lsp.LanguageClient, profile: Profile, capabilities: str, **more: object
) -> types.InitializeResult:
    found = await client.initialize_session(
        types.InitializeParams(
            capabilities=pytest_lsp.client_capabilities(capabilities),
            workspace_folders=[types.WorkspaceFolder("file:///work", "work")],
            initialization_options=options(profile, status=True, **more),
        )
    )
    await asyncio.wait_for(client.ready.wait(), 30)  # type: ignore[attr-defined]
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(URI, "python", 1, "short")))
    change = types.TextDocumentContentChangePartial(types.Range(types.Position(0, 5), types.Position(0, 5)), " = ")
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(2, URI), [change])
    )
    return found


async def test_pytest_lsp_as_vs_code_gets_a_completion_and_no_word_against_the_specification(
    client: pytest_lsp.LanguageClient, profile: Profile
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LspSpecificationWarning)
        initialized = await begin(client, profile, "visual-studio-code", surface="inline")
        assert initialized.server_info is not None and initialized.server_info.name == "dflash-lsp"
        assert initialized.capabilities.position_encoding == types.PositionEncodingKind.Utf16
        place = types.InlineCompletionParams(AUTOMATIC, types.TextDocumentIdentifier(URI), types.Position(0, 8))
        found = await client.text_document_inline_completion_async(place)
        assert isinstance(found, types.InlineCompletionList)
        (item,) = found.items
        assert item.insert_text == "[1, 2]"
        assert item.range == types.Range(types.Position(0, 8), types.Position(0, 8))
        assert item.command is not None
        await client.workspace_execute_command_async(
            types.ExecuteCommandParams(item.command.command, arguments=item.command.arguments)
        )


async def test_pytest_lsp_as_neovim_gets_a_menu_in_its_own_encoding(
    client: pytest_lsp.LanguageClient, profile: Profile
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LspSpecificationWarning)
        initialized = await begin(client, profile, "neovim")
        assert initialized.capabilities.completion_provider is not None
        assert initialized.capabilities.inline_completion_provider is None
        found = await client.text_document_completion_async(
            types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(0, 8))
        )
        assert isinstance(found, types.CompletionList)
        (item,) = found.items
        assert item.text_edit is not None and item.text_edit.new_text == "[1, 2]"


async def test_pytest_lsp_is_told_that_its_request_was_cancelled(
    client: pytest_lsp.LanguageClient, profile: Profile
) -> None:
    await begin(client, profile, "visual-studio-code", surface="inline")
    change = types.TextDocumentContentChangeWholeDocument("def endless():\n")
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(3, URI), [change])
    )
    request = asyncio.create_task(
        client.protocol.send_request_async(
            types.TEXT_DOCUMENT_INLINE_COMPLETION,
            types.InlineCompletionParams(AUTOMATIC, types.TextDocumentIdentifier(URI), types.Position(1, 0)),
            msg_id="mine",
        )
    )
    await asyncio.sleep(0.1)
    client.cancel_request(types.CancelParams("mine"))
    with pytest.raises(JsonRpcRequestCancelled):
        await asyncio.wait_for(request, 20)


@pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "vscode-languageserver-protocol").is_dir(),
    reason="needs Node.js and `make extension`, which installs VS Code's client",
)
def test_vs_codes_own_protocol_layer_in_node_goes_through_a_whole_session(profile: Profile) -> None:
    script = Path(__file__).parent / "conformance" / "vscode_client.cjs"
    command = ["node", str(script), str(MODULES), json.dumps(options(profile, status=True)), "--", *SERVER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["early"], found["unknown"], found["cancelled"], found["late"]) == (-32002, -32601, -32800, -32600)
    assert found["capabilities"]["positionEncoding"] == "utf-16"
    assert "inlineCompletionProvider" in found["capabilities"]
    assert [item["insertText"] for item in found["inline"]["items"]] == ["[1, 2]"]
    assert found["exit"] == 0
    assert found["complaints"] == []
