"""The text store mirrors the client's text through any edits, and places positions as LSP counts them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.documents.document import Change, Document, Place, PositionError
from server.documents.lines import split_lines, to_line_feeds
from server.documents.positions import Encoding, Position, Range
from server.documents.store import DocumentStore, scheme

ENCODINGS = list(Encoding)
# Python's splitlines() ends lines at all of these; LSP only at \n, \r and \r\n.
NOT_LINE_ENDS = "\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x85"
PIECES = ["a", "  ", "\n", "\r", "\r\n", "é", "漢", "😀", "👩‍👩‍👧", "x = 1", *NOT_LINE_ENDS]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def client_position(text: str, offset: int, encoding: Encoding) -> Position | None:
    """The position of a code-point offset, counted one character at a time; None between \\r and \\n."""
    if text[offset - 1 : offset + 1] == "\r\n" and offset > 0:
        return None
    line = character = 0
    for index in range(offset):
        if text[index] == "\n" or (text[index] == "\r" and text[index + 1 : index + 2] != "\n"):
            line, character = line + 1, 0
        elif text[index] != "\r":
            units = {Encoding.UTF8: len(text[index].encode()), Encoding.UTF32: 1}
            character += units.get(encoding, 2 if ord(text[index]) > 0xFFFF else 1)
    return Position(line, character)


@given(data=st.data(), start=texts, encoding=st.sampled_from(ENCODINGS))
@settings(max_examples=300, deadline=None)
def test_the_mirror_equals_the_clients_text_after_every_edit(
    data: st.DataObject, start: str, encoding: Encoding
) -> None:
    document, text = Document("file:///a", start, encoding=encoding), start
    for version in range(data.draw(st.integers(1, 8), label="edits")):
        fresh = data.draw(texts, label="text")
        if data.draw(st.integers(0, 9), label="full when 0") == 0:
            change, text = Change(fresh), fresh
        else:
            begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2), label="offsets"))
            first, last = client_position(text, begin, encoding), client_position(text, end, encoding)
            if first is None or last is None:
                continue
            change, text = Change(fresh, Range(first, last)), text[:begin] + fresh + text[end:]
        document.apply([change], version)
        assert document.text == text
        assert document.lines == split_lines(text)
        assert document.version == version


@given(text=texts, encoding=st.sampled_from(ENCODINGS))
@settings(max_examples=200, deadline=None)
def test_positions_and_places_are_inverses(text: str, encoding: Encoding) -> None:
    document = Document("file:///a", text, encoding=encoding)
    for offset in range(len(text) + 1):
        position = client_position(text, offset, encoding)
        if position is not None:
            place = document.exact_place(position)
            assert len("".join(document.lines[: place.line])) + place.column == offset
            assert document.position(place) == position


@given(text=texts)
def test_lines_join_to_the_text_and_end_only_where_lsp_says(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(line.endswith(("\n", "\r")) for line in lines[:-1])
    assert len(lines) == 1 + to_line_feeds(text).count("\n")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_position_outside_the_text_is_clamped(encoding: Encoding) -> None:
    document = Document("file:///a", "one\r\n漢😀\nlast", encoding=encoding)
    assert document.place(Position(0, 10**6)) == Place(0, 3)
    assert document.place(Position(1, 10**6)) == Place(1, 2)
    assert document.place(Position(10**6, 0)) == Place(2, 4)
    assert document.place(Position(10**6, 10**6)) == Place(2, 4)


@pytest.mark.parametrize(("encoding", "inside"), [(Encoding.UTF16, 2), (Encoding.UTF8, 4)])
def test_a_position_inside_a_character_is_its_beginning(encoding: Encoding, inside: int) -> None:
    document = Document("file:///a", "漢😀x", encoding=encoding)
    assert document.place(Position(0, inside)) == Place(0, 1)
    with pytest.raises(PositionError, match="inside a character"):
        document.exact_place(Position(0, inside))


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (Position(2, 0), "line 2 is outside the file, whose last line is 1, counted from 0"),
        (Position(0, 4), "character 4 is outside line 0, which has 3"),
        (Position(-1, 0), "line -1 is outside"),
        (Position(0, -1), "character -1 is outside"),
    ],
)
def test_an_exact_position_outside_the_text_is_an_error(position: Position, message: str) -> None:
    with pytest.raises(PositionError, match=message):
        Document("file:///a", "a😀\nb").exact_place(position)


def test_half_a_surrogate_pair_becomes_one_replacement_character() -> None:
    document = Document("file:///a", "a\ud83db")
    assert document.text == "a\ufffdb"
    document.apply([Change("\ude00", Range(Position(0, 2), Position(0, 2)))], 1)
    assert document.text == "a\ufffd\ufffdb"
    document.text.encode("utf-8")


def test_inserted_text_uses_the_line_ending_in_use_at_its_place() -> None:
    document = Document("file:///a", "a\r\nb\nc")
    assert [document.line_ending_near(line) for line in range(3)] == ["\r\n", "\n", "\n"]
    assert Document("file:///a", "a").line_ending_near(0) == "\n"


def test_uris_that_differ_in_percent_encoding_are_one_document() -> None:
    store = DocumentStore()
    store.open("file:///c%3A/a%20b.py", "x", "python", 1)
    store.change("file:///c:/a b.py", [Change("y")], 2)
    document = store.get("file:///c:/a%20b.py")
    assert document is not None and document.text == "y"
    store.close("file:///c%3A/a b.py")
    assert store.get("file:///c%3A/a%20b.py") is None
    store.change("file:///never-opened", [Change("y")], 1)


def test_the_scheme_of_a_uri_is_read_in_lower_case() -> None:
    assert [scheme(uri) for uri in ("file:///a", "Untitled:b", "plain")] == ["file", "untitled", ""]
