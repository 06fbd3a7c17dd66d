"""Framing of messages: the same however the bytes come, and none is lost beside one that is framed wrongly."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import pairwise
from typing import Any

import pytest
from engines import own_directories, replay_profile, stop
from hypothesis import given, settings
from hypothesis import strategies as st

from server.lsp import create_server
from server.stdio import HEADER_LIMIT, Framing

SMALL, LARGE = "file:///work/small.py", "file:///work/large.py"


def framed(body: bytes, length: int | None = None, more: bytes = b"") -> bytes:
    return b"Content-Length: %d\r\n%s\r\n%s" % (len(body) if length is None else length, more, body)


def read(*parts: bytes) -> tuple[list[bytes], int]:
    """The messages that are JSON, as the server finds them, and how often something was refused."""
    framing, bodies, problems = Framing(), [], 0
    for part in parts:
        framing.add(part)
        while (body := framing.next()) is not None or framing.problem:
            if body is not None:
                try:
                    json.loads(body)
                    bodies.append(body)
                except ValueError:
                    framing.put_back(body)
            problems += bool(framing.problem)
            framing.problem = ""
    return bodies, problems


MESSAGES = [b'{"a": 1}', "{}", b"[]", '"\u2028 漢字"'.encode(), b'"Content-Length: 5\\r\\n\\r\\n"']
WHOLE = [each.encode() if isinstance(each, str) else each for each in MESSAGES]


@settings(deadline=None)
@given(st.lists(st.sampled_from(WHOLE), max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_messages_do_not_depend_on_how_their_bytes_come(bodies: list[bytes], cuts: list[int]) -> None:
    more = b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n"
    data = b"".join(framed(body, more=more if number % 2 else b"") for number, body in enumerate(bodies))
    edges = [0, *sorted(cuts), len(data)]
    parts = [data[begin:end] for begin, end in pairwise(edges) if begin < end]
    assert read(*parts) == (bodies, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        framed(b"{nope"),
        framed(b'{"short": 1}', length=4),
        framed(b"", length=10**14),
        framed(b'{"some": "of it"}', length=10**14),
        b"Content-Length: 99999999999999999999999999\r\n\r\n",
        b"Content-Length: wrong\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"no header at all\r\n\r\n",
        b"\r\n\r\n",
        b"\0" * (2 * HEADER_LIMIT),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_after_what_is_framed_wrongly_the_next_message_is_found(wrong: bytes, at_once: bool) -> None:
    data = framed(b"[1]") + wrong + framed(b"[2]") + framed(b"[3]")
    parts = [data] if at_once else [data[place : place + 1] for place in range(len(data))]
    bodies, problems = read(*parts)
    assert bodies == [b"[1]", b"[2]", b"[3]"] and problems > 0


def test_a_message_that_claims_to_be_longer_gives_back_what_it_has_swallowed() -> None:
    bodies, problems = read(framed(b"[1]", length=20) + framed(b"[2]") + framed(b"[3]"))
    assert bodies == [b"[2]", b"[3]"] and problems == 1


async def test_messages_are_read_and_answered_while_a_large_file_is_parsed() -> None:
    """The order of answers tells, not a clock: the tree is not there yet when they have come."""
    server = create_server()
    to_server, to_client = os.pipe(), os.pipe()
    with (
        os.fdopen(to_server[0], "rb", buffering=0) as source,
        os.fdopen(to_client[1], "wb") as output,
        own_directories() as root,
    ):
        profile = replay_profile(root, [{"after": "short = ", "text": "[1, 2]"}])
        serving = asyncio.create_task(server.serve(source, output))
        answers = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(answers), os.fdopen(to_client[0], "rb", buffering=0)
        )

        async def tell(method: str, params: object, id: int | None = None) -> Any:
            message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
            # A pipe holds less than a large file.
            await asyncio.to_thread(os.write, to_server[1], framed(json.dumps(message).encode()))
            while id is not None:
                header = await asyncio.wait_for(answers.readuntil(b"\r\n\r\n"), 60)
                found = json.loads(await answers.readexactly(int(header.split(b":")[1].split()[0])))
                if found.get("id") == id and "method" not in found:
                    return found["result"]

        def opened(uri: str, text: str) -> dict[str, object]:
            return {"textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": text}}

        options = {"profile": str(profile.file), "surface": "inline"}
        await tell("initialize", {"processId": None, "capabilities": {}, "initializationOptions": options}, 1)
        await tell("initialized", {})
        await tell("textDocument/didOpen", opened(SMALL, "short = "))
        site = {"textDocument": {"uri": SMALL}, "position": {"line": 0, "character": 8}, "context": {"triggerKind": 1}}
        assert (await tell("textDocument/inlineCompletion", site, 2))["items"][0]["insertText"] == "[1, 2]"

        await tell("textDocument/didOpen", opened(LARGE, "def f(a, b=(1, [2])):\n    return {a: b}\n" * 40_000))
        edit = {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "x = 1\n"}
        document = {"textDocument": {"uri": SMALL, "version": 2}, "contentChanges": [edit]}
        await tell("textDocument/didChange", document)
        site["position"] = {"line": 1, "character": 8}
        assert (await tell("textDocument/inlineCompletion", site, 3))["items"][0]["insertText"] == "[1, 2]"
        large = server.window.documents.get(LARGE)
        assert large is not None and server.window._service is not None
        entry = server.window._service.context.documents.get(large)
        assert entry is not None and entry.tree is not None
        assert entry.tree.tree is None and entry.tree._thread is not None, "it was parsed before the answer came"
        await tell("shutdown", None, 4)
        os.close(to_server[1])
        await serving
        transport.close()
        await asyncio.to_thread(stop, profile)
