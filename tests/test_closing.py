"""A text that broke off leaves the file with no more errors than it had."""

from __future__ import annotations

import pytest

from server.completion.boundaries.boundary import CursorText
from server.completion.closing import closed, parses_worse
from server.completion.request import CompletionOptions
from server.completion.service import CompletionService
from server.context.languages import language_for
from server.documents.document import Document
from server.documents.positions import Position
from server.profiles import Profile

ENTRIES: list[dict[str, object]] = [
    {"after": "x = ", "text": 'foo(a, [1, "b', "chunks": ["foo(a,", ' [1, "b']},
    {"after": "# y\n", "text": "z or " * 60, "chunks": ["z or "] * 60},
]


def cursor(text: str, language: str) -> CursorText:
    before, _, after = text.partition("|")
    return CursorText(before, after, language_for(language))


@pytest.mark.parametrize(
    ("text", "language", "broken_off", "whole"),
    [
        ("x = |\n", "python", 'foo(a, [1, "b', 'foo(a, [1, "b"])'),
        ("foo(|)\n", "python", "a, b(", "a, b()"),
        ("function f() |\n", "typescript", "{\n  if (a) {\n    b(c", "{\n  if (a) {\n    b(c)\n  }\n}"),
        ("function f() {\n|\n}\n", "typescript", "  if (a) {\n    b(c", "  if (a) {\n    b(c)\n  }"),
        ("fn f() {\n    let s = |;\n}\n", "rust", 'g(r#"a ("b', 'g(r#"a ("b"#)'),
        ("proc f |", "tcl", "{\n  a", "{\n  a\n}"),
        ("const a = |;\n", "javascript", "`x ${b(", "`x ${b()}`"),
        ("const a = |;\n", "typescript", "f(`x ${b.map((c) => `y ${c", "f(`x ${b.map((c) => `y ${c}`)}`)"),
        ("x = |\n", "python", 'f"x {b(c', 'f"x {b(c)}"'),
        ("x = f(|)\n", "ruby", '"x #{b(c', '"x #{b(c)}"'),
        ("val a = |\n", "kotlin", '"x ${b("c', '"x ${b("c")}"'),
        ("val a = |\n", "scala", 's"""x ${b', 's"""x ${b}"""'),
        ("let a = |\n", "swift", '"x \\(b(c', '"x \\(b(c))"'),
        ("var a = |;\n", "csharp", '$"x {b', '$"x {b}"'),
        ("a=|\n", "shellscript", '"x $(b "c', '"x $(b "c")"'),
        ("|\necho b\n", "shellscript", "cat <<EOF\nx (", "cat <<EOF\nx (\nEOF"),
        ("a = |\nb = 1\n", "ruby", "<<~EOF\n  x (", "<<~EOF\n  x (\nEOF"),
        ("<?php\n$a = |\n", "php", "<<<EOT\n  x (", "<<<EOT\n  x (\nEOT"),
        ("|\n", "ruby", "def f(a)\n  a.each do |b|\n    c(b", "def f(a)\n  a.each do |b|\n    c(b)\n  end\nend"),
        ("def f|\nend\n", "ruby", "\n  if a\n    b", "\n  if a\n    b\n  end"),
        (
            "|\n",
            "lua",
            "local function f(a)\n  if a then\n    g(a",
            "local function f(a)\n  if a then\n    g(a)\n  end\nend",
        ),
        (
            "|\n",
            "shellscript",
            "if a; then\n  for b in c; do\n    d",
            "if a; then\n  for b in c; do\n    d\n  done\nfi",
        ),
    ],
)
@pytest.mark.parametrize("shown", [True, False])
def test_what_broke_off_is_closed(text: str, language: str, broken_off: str, whole: str, shown: bool) -> None:
    assert closed(broken_off, cursor(text, language), shown=shown) == whole
    assert not parses_worse(whole, cursor(text, language))


def test_a_bracket_that_was_open_before_is_left_to_who_opened_it() -> None:
    assert closed("1, 2", cursor("x = [|", "python"), shown=False) == "1, 2"


def test_a_bracket_behind_a_comment_goes_below_it() -> None:
    assert closed("f(1,  # no", cursor("x = |", "python"), shown=True) == "f(1,  # no\n)"


def test_a_line_that_cannot_be_made_whole_goes_unless_it_was_seen() -> None:
    broken_off = "x = 1\n    if x"
    at = cursor("def f(a):\n    |\n", "python")
    assert closed(broken_off, at, shown=False) == "x = 1"
    assert closed(broken_off, at, shown=True) == broken_off


def test_prose_and_sound_texts_stay_as_they_are() -> None:
    assert closed("it's (so", cursor("Well |", "markdown"), shown=False) == "it's (so"
    assert closed("f(1)", cursor("x = |\n", "python"), shown=False) == "f(1)"


async def complete(profile: Profile, text: str) -> str:
    service = CompletionService(profile)
    await service.link.connect()
    document = Document("file:///a.py", text, language="python")
    try:
        return (await service.complete(document, document.place(Position(9, 0)), "a.py", CompletionOptions())).text
    finally:
        await service.aclose()


async def test_an_answer_that_its_target_ended_too_soon_is_closed(profile: Profile) -> None:
    assert await complete(profile, "x = ") == 'foo(a, [1, "b"])'


async def test_a_loop_that_leaves_nothing_whole_is_not_shown(profile: Profile) -> None:
    assert await complete(profile, "# y\n") == ""
