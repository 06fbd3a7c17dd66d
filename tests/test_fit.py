"""A completion's text and range always belong together, and repeat nothing that stands there already."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.completion.cut import Cut
from server.completion.fit import fit
from server.completion.indentation import doubled_blanks
from server.completion.surroundings import Surroundings, surroundings, text_before
from server.documents.document import Change, Document, Place
from server.documents.lines import split_lines
from server.documents.positions import Encoding, Position, Range

CURSOR = "‸"


def at_cursor(
    text: str, language: str = "python", encoding: Encoding = Encoding.UTF16
) -> tuple[Document, Surroundings]:
    """The document without its cursor sign, and the surroundings of where that stood."""
    before, _, after = text.partition(CURSOR)
    lines = split_lines(before)
    document = Document("file:///a", before + after, language=language, encoding=encoding)
    return document, surroundings(document, Place(len(lines) - 1, len(lines[-1])), "a", 1000)


def applied(text: str, completion: str, language: str = "python") -> str:
    """The document after the completion was accepted."""
    document, site = at_cursor(text, language)
    insertion = fit(completion, site)
    assert insertion.range.start == document.position(site.place)
    assert insertion.range.end.line == insertion.range.start.line
    document.apply([Change(insertion.text, insertion.range)])
    return document.text


@pytest.mark.parametrize(
    ("text", "completion", "expected"),
    [
        ("x = ‸\ny\n", "1", "x = 1\ny\n"),
        ("x = ‸   \ny\n", "1", "x = 1\ny\n"),
        ("call(‸)\n", "a, b)", "call(a, b)\n"),
        ("call(‸)\n", "a, b", "call(a, b)\n"),
        ("call(‸)\n", "b()", "call(b())\n"),
        ("call(‸)\n", "b())", "call(b())\n"),
        ("a(b(‸))\n", "x)", "a(b(x))\n"),
        ("a(b(‸))\n", "x))", "a(b(x))\n"),
        ("a([‸])\n", "x, y])", "a([x, y])\n"),
        ("def f(‸):\n", "a):\n    return a", "def f(a):\n    return a\n"),
        ("def f(‸):\n", "a) -> int:\n    return a", "def f(a) -> int:\n    return a\n"),
        ("def f(‸):\n", "a", "def f(a):\n"),
        ("def f(‸):\n", "a)", "def f(a):\n"),
        ("x = {‸}\n", "\n    1: 2,\n}", "x = {\n    1: 2,\n}\n"),
        ('print("‸")\n', 'hello")', 'print("hello")\n'),
        ('print("‸")\n', 'hello"', 'print("hello")\n'),
        ('print("‸")\n', "hello", 'print("hello")\n'),
        ('print("‸")\n', 'a", "b")', 'print("a", "b")\n'),
        ("print('‸')\n", "it (", "print('it (')\n"),
        ('"""‸"""\n', 'Doc."""', '"""Doc."""\n'),
        ("x = ‸ + 1\n", "a + 1", "x = a + 1\n"),
        ("f(‸, b)\n", "a, b)", "f(a, b)\n"),
        ("f(‸, b)\n", "a,", "f(a, b)\n"),
        ("x = ‸abc\n", "a", "x = aabc\n"),
    ],
)
def test_what_stands_right_of_the_cursor_is_not_repeated(text: str, completion: str, expected: str) -> None:
    assert applied(text, completion) == expected


def test_statement_marks_behind_closers_are_not_repeated() -> None:
    assert applied("foo(‸);\n", "a);", "javascript") == "foo(a);\n"
    assert applied("foo(‸);\n", "a)", "javascript") == "foo(a);\n"
    assert applied("on(() => {‸});\n", "\n  a();\n});", "javascript") == "on(() => {\n  a();\n});\n"


@pytest.mark.parametrize(
    ("text", "completion", "expected"),
    [
        ("a = '‸'\n", "it\\'s'", "a = 'it\\'s'\n"),
        ("a = [f(‸)]\n", "b)]  # )", "a = [f(b)]  # )\n"),
        ("f(‸)\n", "'a)'", "f('a)')\n"),
    ],
)
def test_the_range_is_such_that_the_file_parses_no_worse(text: str, completion: str, expected: str) -> None:
    assert applied(text, completion) == expected


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_inserted_lines_end_as_the_documents_own(ending: str) -> None:
    assert applied(f"if a:{ending}    ‸{ending}x", "b\n    c") == f"if a:{ending}    b{ending}    c{ending}x"
    assert applied(f"if a:{ending}    ‸", "b\n    c") == f"if a:{ending}    b{ending}    c"


@pytest.mark.parametrize("encoding", list(Encoding))
def test_the_range_counts_in_the_negotiated_encoding(encoding: Encoding) -> None:
    document, site = at_cursor("f('漢😀‸')", encoding=encoding)
    units = {Encoding.UTF8: 7, Encoding.UTF16: 3, Encoding.UTF32: 2}[encoding]
    insertion = fit("é')", site)
    assert insertion.range == Range(Position(0, 3 + units), Position(0, 5 + units))
    document.apply([Change(insertion.text, insertion.range)])
    assert document.text == "f('漢😀é')"


@pytest.mark.parametrize(
    ("text", "blanks", "doubled"),
    [
        ("x = ‸", " ", 1),
        ("x =‸", " ", 0),
        ("def f():\n    ‸", "    ", 4),
        ("def f():\n‸", "    ", 0),
        ("def f():\n  ‸", "  ", 0),
        ("def f():\n  ‸", "    ", 2),
        ("class A:\n    def f(self):\n    ‸", "    ", 0),
        ("class A:\n    def f(self):\n    ‸", "        ", 4),
        ("class A:\n  def f(self):\n  ‸", "    ", 2),
        ("class A:\n\tdef f(self):\n\t‸", "\t\t", 1),
        ("    x = 1\n    ‸", "    ", 4),
        ("\n\n    ‸", "  ", 2),
    ],
)
def test_blanks_before_the_cursor_are_not_doubled(text: str, blanks: str, doubled: int) -> None:
    assert doubled_blanks(at_cursor(text)[1].cursor, blanks) == doubled


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("text", "generated", "kept"),
    [
        ("if a {\n\tb()\n\t‸\n}\n", "if c {\n        d()\n    }\n\n", "if c {\n\t\td()\n\t}"),
        ("if a {\n\tb()\n\t‸\n}\n", "if c {\n    d()\n  }\n\n", "if c {\n\t\td()\n\t}"),
        ("if a {\n\tb()\n‸\n}\n", "   c()\n   d()\n\n", "\tc()\n\td()"),
        ("if a {\n  b()\n  ‸\n}\n", "if c {\n\t\td()\n\t}\n\n", "if c {\n    d()\n  }"),
        ("if a {\n\tb()\n\t‸\n}\n", "/*\n\t * c\n\t */\n\td()\n\n", "/*\n\t * c\n\t */\n\td()"),
        ("if a {\n  b()\n  ‸\n}\n", "c(`\n\td`)\n\n", "c(`\n\td`)"),
        ("\ta()\n  b()\n\ta()\n  ‸\n", "if c {\n\t\td()\n  }\n\n", "if c {\n\t\td()\n  }"),
    ],
)
def test_lines_are_indented_in_the_files_own_style(text: str, generated: str, kept: str, size: int) -> None:
    line = text.split("\n")[1]
    cut = Cut(at_cursor((line + "\n") * 5 + text, "go")[1].cursor)
    for start in range(0, len(generated), size):
        cut.add(generated[start : start + size])
    cut.finish()
    assert cut.kept() == kept


def test_few_lines_make_no_style() -> None:
    cut = Cut(at_cursor("if a {\n\tb()\n\t‸\n}\n", "go")[1].cursor)
    cut.add("if c {\n    d()\n")
    cut.finish()
    assert cut.kept() == "if c {\n    d()"


@given(
    st.text(alphabet="a(){}[]'\",:; ", max_size=8),
    st.text(alphabet="a(){}[]'\",:; ", max_size=8),
    st.text(alphabet="a(){}[]'\",:; \n", min_size=1, max_size=12),
)
def test_only_what_the_completion_brings_along_is_replaced(before: str, after: str, completion: str) -> None:
    result = applied(before + CURSOR + after, completion)
    assert result.startswith(before + completion)
    assert after.rstrip(" \t").endswith(result[len(before + completion) :].rstrip(" \t"))


def test_the_windows_are_the_same_with_any_line_ending() -> None:
    text = "".join(f"line {number}\n" for number in range(3000))
    windows = set()
    for ending in ("\n", "\r\n", "\r"):
        lines = split_lines(text.replace("\n", ending))
        windows.add(text_before(lines, Place(2500, 4), 2000))
    (window,) = windows
    assert len(window.text) == 2000
    assert text[window.skipped :].startswith(window.text) and window.text.endswith("line 2499\nline")


def test_windows_of_a_long_line_stay_small() -> None:
    line = "x" * 500_000
    window = text_before([line], Place(0, 400_000), 2000)
    assert (len(window.text), window.skipped) == (2000, 398_000)
    document = Document("file:///a", line)
    cursor = surroundings(document, Place(0, 400_000), "a", 2000).cursor
    assert len(cursor.before) == 8_000 and len(cursor.after) == 4_000
