"""A completion ends at the end of the unit, wherever the pieces it arrives in are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.completion.boundaries import syntax_scanner
from server.completion.boundaries.boundary import CursorText, Decision
from server.completion.boundaries.choice import boundary_for
from server.completion.boundaries.syntax_rows import SYNTAX_ROWS
from server.context.languages import language_for

CURSOR = "‸"


@dataclass(frozen=True)
class Case:
    """`text` holds the cursor sign; a model streams `generated` there, of which `expected` is to be kept."""

    id: str
    text: str
    generated: str
    expected: str
    language: str = "python"
    reason: str = "boundary"

    def cursor(self) -> CursorText:
        before, _, after = self.text.partition(CURSOR)
        return CursorText(before, after, language_for(self.language))


def pieces(text: str, size: str) -> Iterator[str]:
    """The growing text, one character, one line, or all of it at a time."""
    if size == "whole":
        yield text
    else:
        lines = text.splitlines(keepends=True) if size == "line" else text
        length = 0
        for piece in lines:
            length += len(piece)
            yield text[:length]


def decide(case: Case, size: str) -> Decision:
    """Stream the case through its boundary; checks that decisions only grow."""
    boundary, last = boundary_for(case.cursor()), Decision()
    for text in pieces(case.generated, size):
        decision = boundary.feed(text)
        assert decision.settled >= last.settled
        assert last.end is None or decision == last
        assert decision.settled <= len(text)
        last = decision
        if last.end is not None:
            break
    final = boundary.finish(case.generated)
    assert final.end is not None and final.end >= last.settled
    return final


PYTHON = [
    Case("rest-of-a-line", "total = ‸\n", "price * count\nprint(total)\n", "price * count"),
    Case("return-value", "def f(a):\n    return ‸", "a + 1\n\n\ndef g():\n", "a + 1"),
    Case(
        "block-that-the-line-opens",
        "def f(a):‸\n",
        "\n    b = a\n\n    return b\n\n\ndef g():\n    pass\n",
        "\n    b = a\n\n    return b",
    ),
    Case(
        "string-with-what-looks-like-comments",
        "class A:\n    def f(self):\n        s = ‸\n",
        'b"""\n# a\n1 2\n# b\n2 3\n"""\n        t = 1\n',
        'b"""\n# a\n1 2\n# b\n2 3\n"""',
    ),
    Case(
        "head-and-its-block",
        "def f‸\n",
        "(a):\n    return a\n\n\nprint(f(1))\n",
        "(a):\n    return a",
    ),
    Case(
        "empty-block-right-below-its-head",
        "def f(a):\n    ‸",
        "b = a\n\n    return b\n\n\ndef g():\n",
        "b = a\n\n    return b",
    ),
    Case(
        "empty-block-at-column-zero",
        "def f(a):\n‸",
        "    return a\n\ndef g():\n",
        "    return a",
    ),
    Case(
        "comment-between-head-and-block",
        "def f(a):\n    # say it\n    ‸",
        "print(a)\n\n    return a\nx = 1\n",
        "print(a)\n\n    return a",
    ),
    Case(
        "blank-line-in-a-body-stops-at-the-next-blank-line",
        "def f(a):\n    b = a\n    ‸",
        "c = b\n    d = c\n\n    return d\n",
        "c = b\n    d = c",
    ),
    Case(
        "blank-line-inside-a-nested-block-does-not-stop",
        "class A:\n    x = 1\n\n    ‸",
        "def f(self):\n        a = 1\n\n        return a\n\n    def g(self):\n        pass\n",
        "def f(self):\n        a = 1\n\n        return a",
    ),
    Case(
        "never-past-the-enclosing-block",
        "def f(a):\n    if a:\n        x = 1\n        ‸",
        "y = 2\n    return x\n",
        "y = 2",
    ),
    Case(
        "text-that-leaves-the-block-at-once",
        "def f(a):\n    return a\n    ‸",
        "\n\ndef g():\n    pass\n",
        "",
        reason="block complete",
    ),
    Case(
        "else-continues-the-statement",
        "if a:‸\n",
        "\n    b()\nelif c:\n    d()\nelse:\n    e()\nf()\n",
        "\n    b()\nelif c:\n    d()\nelse:\n    e()",
    ),
    Case(
        "except-and-finally-continue-a-try",
        "try:\n    ‸",
        "a()\nexcept OSError:\n    b()\nfinally:\n    c()\nd()\n",
        "a()\nexcept OSError:\n    b()\nfinally:\n    c()",
    ),
    Case(
        "else-of-the-file-is-not-repeated",
        "if a:\n    ‸\nelse:\n    c()\n",
        "b()\nelse:\n    d()\n",
        "b()",
    ),
    Case(
        "a-name-that-begins-like-else-does-not-continue",
        "if a:\n    ‸",
        "b()\nelsewhere = 1\n",
        "b()",
    ),
    Case(
        "one-line-compound-statement",
        "‸",
        "if a: b()\nelse: c()\nd()\n",
        "if a: b()\nelse: c()",
    ),
    Case("one-statement-at-module-level", "import os\n‸", "import sys\nimport re\n", "import sys"),
    Case(
        "one-definition-at-module-level",
        "import os\n\n\n‸",
        "def f():\n    return 1\n\n\ndef g():\n    return 2\n",
        "def f():\n    return 1",
    ),
    Case(
        "decorators-and-comments-lead-to-their-definition",
        "‸",
        "# the cache\n@cache\n@trace\ndef f():\n    return 1\n\nx = 1\n",
        "# the cache\n@cache\n@trace\ndef f():\n    return 1",
    ),
    Case("decorator-at-the-cursor", "@cache‸\n", "\ndef f():\n    pass\nx = 1\n", "\ndef f():\n    pass"),
    Case("open-bracket", "call(‸\n", "\n    a,\n    b,\n)\nother()\n", "\n    a,\n    b,\n)"),
    Case("closers-right-of-the-cursor", "call(‸)\n", "a, b)\nother()\n", "a, b)"),
    Case("function-head-with-closers-right", "def f(‸):\n", "a):\n    return a\nf(1)\n", "a):\n    return a"),
    Case(
        "element-above-a-closer-of-the-file",
        "a = [\n    1,\n    ‸\n]\n",
        "2,\n    3,\n]\nb = 1\n",
        "2,\n    3,",
    ),
    Case(
        "closer-on-the-last-line-that-the-file-has-already",
        "a = [\n    1,\n    ‸\n]\n",
        "2]\nb = 1\n",
        "2",
    ),
    Case(
        "dictionary-in-a-body",
        "def f():\n    x = 1\n    ‸",
        "y = {\n        'a': 1,\n\n        'b': [2],\n    }\n    z = 1\n\n    return z\n",
        "y = {\n        'a': 1,\n\n        'b': [2],\n    }\n    z = 1",
    ),
    Case(
        "inside-a-docstring",
        'def f():\n    """Return ‸',
        'one (or\n    two).\n\n    More.\n    """\n    return 1\n',
        'one (or\n    two).\n\n    More.\n    """',
    ),
    Case(
        "after-a-docstring",
        'def f():\n    """Return one."""‸\n',
        "\n    a = 1\n    return a\n\n\nx = 1\n",
        "\n    a = 1\n    return a",
    ),
    Case("brackets-inside-a-string", "print('a (‸\n", "b [')\nc()\n", "b [')"),
    Case("rest-of-a-comment", "# read the ‸\n", "file\n# and more\nx = 1\n", "file"),
    Case(
        "statement-below-a-comment",
        "# read the file‸\n",
        "\nwith open(f) as g:\n    h = g\nx = 1\n",
        "\nwith open(f) as g:\n    h = g",
    ),
    Case("finished-statement", "x = 1‸\n", "\ny = 2\n", "", reason="statement complete"),
    Case("joined-lines", "x = 1 + \\‸\n", "\n    2\ny = 1\n", "\n    2"),
    Case("expression-before-text", "x = ‸ + 1\n", "a * b + 1\ny = 2\n", "a * b"),
    Case("expression-before-text-closes-its-brackets", "x = ‸ + 1\n", "a * (\n    b)\n", "a * (\n    b)"),
    Case("argument-before-another", "call(‸, b)\n", "lambda: (\n    1, b), c)\n", "lambda: (\n    1, b), c"),
    Case("argument-in-a-head-with-a-body", "def f(‸):\n    return a\n", "a):\n    return a\n", "a"),
    Case("inside-a-string-of-the-file", 'print("a ‸ b", c)\n', 'd b", c)\ne()\n', "d"),
    Case("another-end-of-a-string-of-the-file", 'print("a ‸ b", c)\n', 'd", e)\nf()\n', "d"),
    Case("text-right-of-the-cursor-inside-a-string", "f(‸, b)\n", "', b', c, b)\n", "', b', c"),
    Case("no-text-before-text", "x = ‸ + 1\n", "\n\ny = 2\n", "", reason="no text"),
    Case(
        "line-that-stands-below-already",
        "def f(a):\n    ‸\n\n    return a\n",
        "a += 1\n    return a\n",
        "a += 1",
    ),
    Case(
        "only-a-line-that-stands-below",
        "def f(a):\n    ‸\n    return a\n",
        "return a\n",
        "",
        reason="already below",
    ),
    Case(
        "almost-equal-line-below-is-kept",
        "a = [\n    (1, 'x'),\n    ‸\n    (3, 'x'),\n]\n",
        "(2, 'x'),\n    (3, 'y'),\n    (3, 'x'),\n",
        "(2, 'x'),\n    (3, 'y'),",
    ),
    Case(
        "line-repeated-four-times",
        "def f():\n    ‸",
        "a()\n    b()\n    b()\n    b()\n    b()\n",
        "a()\n    b()",
        reason="repetition",
    ),
    Case(
        "lines-repeated-in-turn",
        "def f():\n    ‸",
        "a()\n" + "    b()\n    c()\n" * 5,
        "a()\n" + "    b()\n    c()\n" * 3 + "    b()",
        reason="repetition",
    ),
    Case(
        "equal-rows-of-a-table",
        "a = [\n    1,\n    ‸\n]\n",
        "0,\n    0,\n    0,\n    0,\n    0,\n    2,\n]\n",
        "0,\n    0,\n    0,\n    0,\n    0,\n    2,",
    ),
    Case(
        "line-repeated-twice-is-kept",
        "def f():\n    ‸",
        "b()\n    b()\n    return 1\nx = 1\n",
        "b()\n    b()\n    return 1",
    ),
    Case(
        "loop-within-a-line",
        "x = ‸",
        "y or " * 40,
        "y or y or y or",
        reason="repetition",
    ),
    Case("long-loop-within-a-line", "‸", "self.value.of(x)." * 9, "self.value.of(x)." * 3, reason="repetition"),
    Case("sum-of-equal-terms", "x = ‸", "1 + 1 + 1 + 1 + a + a + a\n", "1 + 1 + 1 + 1 + a + a + a"),
    Case("row-of-equal-numbers", "x = [‸]", "0, " * 60 + "1]\n", "0, " * 60 + "1]"),
    Case("escapes-in-a-string", "x = ‸", "'" + "\\x00" * 40 + "'\n", "'" + "\\x00" * 40 + "'"),
    Case("fence", "def f():\n    ‸", "return 1\n```\nThis function returns\n", "return 1"),
    Case("only-a-fence", "def f():\n    ‸", "```python\n", "", reason="prose"),
    Case("fence-inside-a-string", 'x = """‸', 'a\n```\nb\n"""\ny = 1\n', 'a\n```\nb\n"""'),
    Case("end-of-text-in-the-unit", "def f(a):\n    ‸", "return a", "return a"),
    Case("no-tokens-left-in-a-line", "def f():\n    ‸", "a = 1\n    b = ", "a = 1\n    b ="),
    Case("nothing", "x = ‸", "", "", reason="no text"),
    Case("only-blanks", "x = ‸", "  ", "", reason="no text"),
    Case("tabs", "def f():\n\tif a:\n\t\tx = 1\n\t\t‸", "y = 2\n\treturn y\n", "y = 2"),
    Case("line-separators-are-no-line-ends", "x = '‸", "a\u2028b\x0bc\x85d'\ny = 1\n", "a\u2028b\x0bc\x85d'"),
    Case(
        "match-and-case",
        "match a:\n    ‸",
        "case 1:\n        b()\n    case _:\n        c()\nd()\n",
        "case 1:\n        b()\n    case _:\n        c()",
    ),
    Case("semicolon-free-lambda", "f = ‸\n", "lambda x: x\ng = 1\n", "lambda x: x"),
]

OTHERS = [
    Case("block-that-the-line-opens", "function f(a) {‸\n", "\n  return a;\n}\n\nf(1);\n", "\n  return a;\n}"),
    Case(
        "block-below-its-opener-takes-its-closer",
        "function f(a) {\n  ‸",
        "const b = a;\n\n  return b;\n}\n\nf(1);\n",
        "const b = a;\n\n  return b;\n}",
    ),
    Case(
        "closer-that-the-file-has",
        "function f(a) {\n  ‸\n}\n",
        "if (a) {\n    b();\n  }\n  return a;\n}\nc();\n",
        "if (a) {\n    b();\n  }\n  return a;",
    ),
    Case(
        "closers-of-the-file-begin-alike",
        "on(function () {\n  ‸\n});\n",
        "a();\n}\nb();\n",
        "a();",
    ),
    Case(
        "else-after-the-closer",
        "if (a) {‸\n",
        "\n  b();\n} else {\n  c();\n}\nd();\n",
        "\n  b();\n} else {\n  c();\n}",
    ),
    Case(
        "else-on-its-own-line",
        "if (a) {‸\n",
        "\n  b();\n}\nelse {\n  c();\n}\nd();\n",
        "\n  b();\n}\nelse {\n  c();\n}",
    ),
    Case(
        "blank-line-in-a-body",
        "function f() {\n  a();\n  ‸\n  z();\n}\n",
        "b();\n  c();\n\n  d();\n",
        "b();\n  c();",
    ),
    Case(
        "never-past-the-enclosing-block",
        "function f() {\n  a();\n  ‸\n\n  z();\n}\n",
        "b();\n}\n\nfunction g() {\n",
        "b();",
    ),
    Case(
        "closer-that-the-file-lacks",
        "function f() {\n  a();\n  ‸\n",
        "b();\n}\n\nfunction g() {\n",
        "b();\n}",
    ),
    Case("statement-with-semicolon", "const a = ‸\n", "b + 1;\nconst c = 2;\n", "b + 1;"),
    Case("finished-statement", "a();‸\n", "\nb();\n", "", reason="statement complete"),
    Case(
        "call-with-a-function",
        "app.get('/', ‸)\n",
        "(req, res) => {\n  res.send('a (');\n})\napp.listen();\n",
        "(req, res) => {\n  res.send('a (');\n})",
    ),
    Case("brackets-in-strings-and-comments", "f(‸\n", "'(', // ((\n  /* { */ b)\ng();\n", "'(', // ((\n  /* { */ b)"),
    Case("template-literal", "const a = `‸\n", "x {\n${b}`;\nc();\n", "x {\n${b}`;"),
    Case("chained-calls", "a‸\n", "\n  .b()\n  .c();\nd();\n", "\n  .b()\n  .c();"),
    Case(
        "one-function-at-the-top",
        "import a from 'a';\n\n‸",
        "// adds\nfunction f() {\n  return 1;\n}\n\nfunction g() {}\n",
        "// adds\nfunction f() {\n  return 1;\n}",
    ),
    Case("middle-of-a-line", "f(‸, b);\n", "a[0]\n, c", "a[0]"),
    Case("comment", "// says ‸\n", "hello\n// again\na();\n", "hello"),
    Case("opener-on-its-own-line", "void f()‸\n", "\n{\n  a();\n}\nint b;\n", "\n{\n  a();\n}", "c"),
    Case(
        "statement-below-a-directive",
        "void f() {\n#ifdef A\n  if (a ‸\n#endif\n}\n",
        "> 1)\n    b();\n  else\n    c();\n#endif\n",
        "> 1)\n    b();\n  else\n    c();",
        "c",
    ),
    Case("directive", "#include <a.h>\n#include ‸\nint b;\n", "<c.h>\nint b;\n", "<c.h>", "c"),
    Case("go", "func f(a int) int {‸\n", "\n\treturn a\n}\n\nfunc g() {\n", "\n\treturn a\n}", "go"),
    Case("rust-lifetime", "fn f<'a>(x: &'a str) {‸\n", "\n    g(x);\n}\nfn h() {}\n", "\n    g(x);\n}", "rust"),
    Case(
        "rust-attribute",
        "‸",
        "#[derive(Debug)]\nstruct A {\n    b: u8,\n}\nfn c() {}\n",
        "#[derive(Debug)]\nstruct A {\n    b: u8,\n}",
        "rust",
    ),
    Case("ruby", "def f‸\n", "(a)\n  a + 1\nend\n\ndef g\n", "(a)\n  a + 1\nend", "ruby"),
    Case("ruby-below-its-head", "def f(a)\n  ‸", "a + 1\nend\n\ndef g\n", "a + 1\nend", "ruby"),
    Case("ruby-end-of-the-file", "def f(a)\n  ‸\nend\n", "a + 1\nend\n", "a + 1", "ruby"),
    Case("shell", "if a; then‸\n", "\n  b\nelse\n  c\nfi\nd\n", "\n  b\nelse\n  c\nfi", "shellscript"),
    Case("yaml", "key:‸\n", "\n  a: 1\n  b: 2\nother: 3\n", "\n  a: 1\n  b: 2", "yaml"),
    Case("json", '{\n  "a": ‸\n}\n', '[\n    1\n  ],\n  "b": 2\n}\n', "[\n    1\n  ],", "json"),
    Case("paragraph", "Some text.\n‸", "More of\nthe same.\n\nNext.\n", "More of\nthe same.", "markdown"),
    Case("fence-in-markdown", "Like so:\n\n‸", "```\ncode\n```\n\nMore.\n", "```\ncode\n```", "markdown"),
    Case("unknown-language", "proc f {‸\n", "\n  a\n}\nproc g {\n", "\n  a\n}", "tcl"),
]
CASES = [
    *PYTHON,
    *[case if case.language != "python" else Case(**{**vars(case), "language": "javascript"}) for case in OTHERS],
]


@pytest.mark.parametrize("size", ["character", "line", "whole"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.language}-{case.id}")
def test_the_completion_ends_with_its_unit(case: Case, size: str) -> None:
    decision = decide(case, size)
    assert case.generated[: decision.end] == case.expected
    assert decision.reason == case.reason


WORDS = [
    "a",
    "b()",
    " ",
    "    ",
    "\n",
    "\n\n",
    "if a:",
    "else:",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    '"""',
    "'",
    "```",
    "#",
    "@c",
    ":",
    ";",
    "def f():",
]


@example(text="", generated="\n)a", language="python")
@given(
    text=st.lists(st.sampled_from([*WORDS, CURSOR]), max_size=12).map("".join),
    generated=st.lists(st.sampled_from(WORDS), max_size=24).map("".join),
    language=st.sampled_from(["python", "javascript", "ruby", "markdown"]),
)
@settings(max_examples=400, deadline=None)
def test_pieces_never_change_the_result(text: str, generated: str, language: str) -> None:
    case = Case("random", text, generated, "", language)
    whole = decide(case, "whole")
    assert whole == decide(case, "character") == decide(case, "line")
    assert whole.reason and generated[: whole.end] == generated[: whole.end].rstrip()


def test_the_end_is_known_with_the_line_that_completes_a_statement() -> None:
    case = Case("early", "x = ‸", "f(1)\n", "f(1)")
    boundary = boundary_for(case.cursor())
    assert boundary.feed("f(1) +") == Decision(settled=6)
    boundary = boundary_for(case.cursor())
    assert boundary.feed("f(1)").end is None
    assert boundary.feed("f(1)\n") == Decision(4, 4, "boundary")


def test_the_end_is_known_with_the_first_character_of_a_line_outside() -> None:
    boundary = boundary_for(Case("early", "def f():\n    ‸", "", "").cursor())
    assert boundary.feed("return 1\n\n").end is None
    assert boundary.feed("return 1\n\nd") == Decision(8, 8, "boundary")


def test_a_parser_that_takes_too_long_leaves_brackets_and_indentation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syntax_scanner, "PARSE_LIMIT_S", -1.0)
    case = Case("slow", "def f(a):\n" + "    a = 1\n" * 2000 + "    ‸", "b = a\n\n    c()\n", "b = a")
    decision = decide(case, "character")
    assert case.generated[: decision.end] == case.expected


STRING = 'class A:\n    def f(self):\n        s = """\n# a\n1 2\n# b\n2 3\n"""\n        t = 1\n'


@pytest.mark.parametrize("known", ["", *(STRING[:end] for end in range(20, len(STRING), 7))])
def test_what_stands_above_a_cursor_is_read_alike_whatever_was_read_before(known: str) -> None:
    python, row = language_for("python"), SYNTAX_ROWS["python"]
    assert python.syntax is not None
    known_texts = syntax_scanner.KnownTexts(), syntax_scanner.KnownTexts()
    known_texts[0].read(python.syntax, row, known, "")
    found = [texts.read(python.syntax, row, STRING, "    ")[1] for texts in known_texts]
    assert found[0] == found[1]
    assert found[0].first == "t" and found[0].complete
