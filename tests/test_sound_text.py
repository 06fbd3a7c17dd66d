"""What is offered of a text leaves the file with no more errors than it had, and what was shown is never taken back."""

from __future__ import annotations

import pytest

from server.completion.boundaries.boundary import CursorText
from server.completion.request import CompletionOptions
from server.completion.result import CompletionResult
from server.completion.service import CompletionService
from server.completion.sound_text import WOULD_NOT_PARSE, Ending, may_be_kept, sound_text
from server.completion.soundness import errors_around, parses_worse
from server.completion.surroundings import surroundings
from server.context.file_errors import Snapshot
from server.context.grammars import parse_lines, parser_for
from server.context.languages import language_for
from server.documents.document import Document, Place
from server.documents.lines import split_lines
from server.documents.positions import Position
from server.profiles import Profile, load_profile

ENTRIES: list[dict[str, object]] = [
    {"after": "x = ", "text": 'foo(a, [1, "b', "chunks": ["foo(a,", ' [1, "b']},
    {"after": "y = f(1)\n", "text": "def def 1\n", "chunks": ["def def 1\n"]},
    {"after": "# y\n", "text": "z or " * 60, "chunks": ["z or "] * 60},
]


def cursor(text: str, language: str) -> CursorText:
    before, _, after = text.partition("|")
    return CursorText(before, after, language_for(language))


def offered(text: str, at: CursorText, *, off: bool = True, shown: str = "") -> str:
    return sound_text(text, at, errors_around(at), Ending(off), shown)


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
def test_what_broke_off_is_closed(text: str, language: str, broken_off: str, whole: str) -> None:
    at = cursor(text, language)
    assert offered(broken_off, at) == whole
    assert offered(broken_off, at, shown=broken_off) == whole
    assert may_be_kept(broken_off, at, errors_around(at))
    assert not parses_worse(whole, at)


def test_a_bracket_that_was_open_before_is_left_to_who_opened_it() -> None:
    assert offered("1, 2", cursor("x = [|", "python")) == "1, 2"


def test_a_bracket_behind_a_comment_goes_below_it() -> None:
    assert offered("f(1,  # no", cursor("x = |", "python")) == "f(1,  # no\n)"


def test_prose_and_sound_texts_stay_as_they_are() -> None:
    assert offered("it's (so", cursor("Well |", "markdown")) == "it's (so"
    assert offered("f(1)", cursor("x = |\n", "python")) == "f(1)"


@pytest.mark.parametrize(
    ("text", "language", "written", "kept"),
    [
        ("def f(a):\n    |\n", "python", "x = 1\n    if x", "x = 1"),
        ("f(|)\n", "python", "foo bar baz", "foo"),
        ("def f(a):\n    |\n", "python", "b = a\n    return b c\n    d = 1", "b = a"),
        ("function f() {\n  |\n}\n", "typescript", "let a = 1;\n  let let let b;", "let a = 1;"),
        ("f(|);\n", "javascript", "b + + * c", "b"),
        ("fn f() {\n    |\n}\n", "rust", "let a = 1;\n    fn fn b", "let a = 1;"),
        ("func f() {\n\t|\n}\n", "go", "a := 1\n\tfunc func b", "a := 1"),
        ("int f(void) {\n    |\n}\n", "c", "int a = 1;\n    int int int 3 b;", "int a = 1;"),
        ("void f() {\n    |\n}\n", "java", "int a = 1;\n    int int 3 b;", "int a = 1;"),
    ],
)
@pytest.mark.parametrize("off", [True, False])
def test_what_does_not_belong_to_the_place_is_cut_off(
    text: str, language: str, written: str, kept: str, off: bool
) -> None:
    at = cursor(text, language)
    assert offered(written, at, off=off) == kept
    assert not parses_worse(kept, at)


@pytest.mark.parametrize(
    ("text", "language", "written"),
    [
        ("x = f(|)\n", "python", "= ) ="),
        ("fn f() {\n    |\n}\n", "rust", "} } fn {"),
        ("x = 1\n|\n", "python", "]]] 1"),
    ],
)
def test_nothing_is_offered_of_what_fits_nowhere(text: str, language: str, written: str) -> None:
    assert offered(written, cursor(text, language), off=False) == ""


def test_a_file_that_has_errors_is_no_worse_with_as_many() -> None:
    at = cursor("def f():\n    return g(|\n", "python")
    assert parses_worse("", at) is False and offered("a, b", at, off=False) == "a, b"


def test_a_bracket_of_the_line_is_closed_where_the_lines_below_would_be_taken_for_its_own() -> None:
    at = cursor("foo(|\nx = 1\n", "python")
    assert offered("a, b", at, off=False) == "a, b)"
    assert offered("a, b)", at, off=False) == "a, b)"


def test_of_what_was_seen_nothing_is_taken_back() -> None:
    at = cursor("def f(a):\n    |\n", "python")
    written, seen = "x = 1\n    y = g(x)\n    return y z", "x = 1\n    y = g("
    assert offered(written, at) == "x = 1\n    y = g(x)"
    assert may_be_kept(seen, at, errors_around(at))
    assert offered(written, at, shown=seen).startswith(seen)
    assert not may_be_kept("return y z", at, errors_around(at))


def test_the_whole_file_is_judged_and_not_what_stands_near() -> None:
    """A bracket left open far above the place and one left open here would be one error in either window."""
    above = "void g() {\n" + "    a(b);\n" * 1000
    lines = split_lines(above + "    \n" + "    a(b);\n" * 1000 + "}\n")
    syntax = language_for("c").syntax
    assert syntax is not None
    tree = parse_lines(parser_for(syntax), lines, 3.0)
    whole = Snapshot(lines, Place(1001, 4), syntax, tree).errors
    assert whole is not None and whole.errors_with("") == 0
    assert whole.errors_with("if (c) {\n") == 1
    assert Snapshot(lines * 6, Place(1001, 4), syntax).errors is None, "a long file is not parsed for a key"


@pytest.mark.parametrize(
    ("language", "begin", "end", "inner"),
    [
        ("html", "<html>\n<script>\n", "</script>\n</html>\n", "javascript"),
        ("markdown", "# A\n\n```js\n", "```\n\nB\n", "javascript"),
    ],
)
async def test_a_region_of_another_language_is_judged_whole(language: str, begin: str, end: str, inner: str) -> None:
    """As a file is: judged by what stands near, 13 of 539 random texts left the region with more errors."""
    above = "function g() {\n" + "  a(b);\n" * 1500
    code = above + "  \n" + "  a(b);\n" * 1500 + "}\n"
    text = begin + code + end
    document = Document("untitled:a", text, language=language)
    place = Place((begin + above).count("\n"), 2)
    service = CompletionService(load_profile("embedded"))
    try:
        service.opened(document, "a")
        at = surroundings(document, place, "a", 2000).cursor
        snapshot = service.context.snapshot(document, place, at.language)
        assert at.language.name == inner and snapshot is not None
        file = snapshot.errors
        assert file is not None and file.errors_with("") == 0 and file.errors_with("if (c) {\n") == 1
        assert "".join(snapshot.lines).strip() == code.strip()
    finally:
        await service.aclose()


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_the_file_before_what_was_typed_has_the_errors_that_it_had(ending: str) -> None:
    syntax = language_for("python").syntax
    assert syntax is not None
    lines = split_lines(f"x = 1{ending}é = f({ending}1){ending}")
    typed = Snapshot(lines, Place(2, 1), syntax).errors
    assert typed is not None and typed.errors_with("") == 0
    before = typed.before_typed("\n1")
    assert before is not None and before.errors_with("") == 0 and before.errors_with("g(") > 0  # type: ignore[operator]
    assert typed.before_typed("2") is None


async def test_an_answer_that_would_not_parse_is_none_and_says_so(profile: Profile) -> None:
    result = await completed(profile, "y = f(1)\n")
    assert (result.text, result.finish, result.reason) == ("", "empty", WOULD_NOT_PARSE)


async def complete(profile: Profile, text: str) -> str:
    return (await completed(profile, text)).text


async def completed(profile: Profile, text: str) -> CompletionResult:
    service = CompletionService(profile)
    await service.link.connect()
    document = Document("file:///a.py", text, language="python")
    try:
        return await service.complete(document, document.place(Position(9, 0)), "a.py", CompletionOptions())
    finally:
        await service.aclose()


async def test_an_answer_that_its_target_ended_too_soon_is_closed(profile: Profile) -> None:
    assert await complete(profile, "x = ") == 'foo(a, [1, "b"])'


async def test_a_loop_that_leaves_nothing_whole_is_not_shown(profile: Profile) -> None:
    assert await complete(profile, "# y\n") == ""
