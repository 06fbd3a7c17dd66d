"""Framing of messages: the same however the bytes come, and none is lost beside one that is framed wrongly."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.stdio import HEADER_LIMIT, Framing


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
