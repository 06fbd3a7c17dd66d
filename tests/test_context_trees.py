"""The tree of an open document follows every edit, and no parse holds a request up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import time
from pathlib import Path

import pytest

from server.context import grammars, trees
from server.context.grammars import LongStep, ParseLimit, parse_lines, parser_for
from server.context.languages import language_for
from server.context.long_steps import pieces
from server.context.open_documents import OpenDocuments
from server.context.syntax import Syntax
from server.context.tags import definitions, enclosing_scopes, import_rows, kind_at
from server.context.trees import DocumentTree
from server.documents.document import Change, Document
from server.documents.lines import split_lines
from server.documents.positions import Encoding, Position, Range

SOURCE = Path(json.__file__).with_name("decoder.py").read_text(encoding="utf-8")


def syntax_of(language: str) -> Syntax:
    syntax = language_for(language).syntax
    assert syntax is not None
    return syntax


PYTHON = syntax_of("python")


def parse(lines: list[str], syntax: Syntax = PYTHON) -> object:
    return parse_lines(parser_for(syntax), lines, 5.0)


def tree_of(text: str, language: str = "python") -> tuple[object, list[str]]:
    lines = split_lines(text)
    return parse(lines, syntax_of(language)), lines


def parsed(document: Document) -> DocumentTree:
    tree = DocumentTree(document, PYTHON)
    tree.tree = parse(document.lines)
    tree.fresh = True
    return tree


def shape(tree: object) -> list[tuple[str, int, int, tuple[int, int], tuple[int, int]]]:
    """Every node with its bytes and points."""
    found, cursor = [], tree.walk()  # type: ignore[attr-defined]
    while True:
        node = cursor.node
        found.append((node.type, node.start_byte, node.end_byte, tuple(node.start_point), tuple(node.end_point)))
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return found


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_after_any_edits_the_tree_is_that_of_the_text(ending: str) -> None:
    chance = random.Random(3)
    document = Document("file:///a.py", SOURCE[:6000].replace("\n", ending), encoding=Encoding.UTF32)
    tree = parsed(document)
    pieces = ["x", "é漢😀", "(", '"', ending, f"{ending}    y = 1{ending}", "", "", "\u2028", "'''", "def f():"]
    for number in range(60):
        line = chance.randrange(len(document.lines))
        end = min(len(document.lines) - 1, line + chance.choice([0, 0, 0, 1, 3]))
        start = Position(line, chance.randrange(len(document.lines[line]) + 1))
        place = Range(start, Position(end, chance.randrange(len(document.lines[end]) + 1)))
        document.apply([Change(chance.choice(pieces), place)])
        if number % 3 == 0:
            tree.refresh(5.0)
            assert tree.fresh
            assert shape(tree.tree) == shape(parse(document.lines))


def test_a_client_that_sends_whole_texts_costs_no_whole_parse() -> None:
    document = Document("file:///a.py", SOURCE)
    tree = parsed(document)
    read: list[int] = []
    document.apply([Change(SOURCE.replace("def scanstring", "def scan_string", 1))])
    reader = grammars._LineReader.__call__

    class Counting(grammars._LineReader):
        def __call__(self, offset: int, point: tuple[int, int]) -> bytes:
            data = reader(self, offset, point)
            read.append(len(data))
            return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grammars, "_LineReader", Counting)
        tree.refresh(5.0)
    assert tree.fresh and sum(read) < len(SOURCE) / 2


def test_a_line_of_half_a_megabyte_and_odd_characters_can_be_edited() -> None:
    text = "x = '" + "a" * 500_000 + "'\ny = 'a\0b\u2028c\x0bd\x0ce\x85f'\n"
    document = Document("file:///a.py", text, encoding=Encoding.UTF32)
    tree = parsed(document)
    document.apply([Change("b", Range(Position(0, 250_000), Position(0, 250_000)))])
    document.apply([Change("", Range(Position(1, 6), Position(1, 7)))])
    assert len(document.lines) == 3
    tree.refresh(5.0)
    assert shape(tree.tree) == shape(parse(document.lines))


async def test_a_parse_that_takes_too_long_goes_on_in_a_thread_while_edits_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trees, "FIRST_LIMIT_S", -1.0)
    monkeypatch.setattr(trees, "REQUEST_LIMIT_S", 5.0)
    document = Document("file:///a.py", SOURCE)
    tree = DocumentTree(document, PYTHON)
    assert tree.refresh() is None  # nobody waits
    document.apply([Change("import os\n", Range(Position(3, 0), Position(3, 0)))])
    assert await tree.ready() is not None and tree.fresh
    assert shape(tree.tree) == shape(parse(document.lines))


async def test_keys_are_not_parsed_until_a_pause_or_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "PAUSE_S", 1000.0)
    monkeypatch.setattr(trees, "AT_ENGINE_S", 0.0)
    document = Document("file:///a.py", "x = 1\n" * 20)
    tree = DocumentTree(document, PYTHON)
    assert tree.refresh(5.0) is not None
    document.apply([Change("y = 2\n", Range(Position(3, 0), Position(3, 0)))])
    await asyncio.sleep(0.01)
    assert not tree.fresh
    tree.shown()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await tree.ready() is not None and tree.fresh
    monkeypatch.setattr(trees, "PAUSE_S", 0.0)
    document.apply([Change("z = 3\n", Range(Position(3, 0), Position(3, 0)))])
    await asyncio.sleep(0.01)
    while tree._thread is not None:
        await asyncio.wait({tree._thread})
    assert tree.fresh and shape(tree.tree) == shape(parse(document.lines))


async def test_a_parse_in_a_thread_stands_still_while_a_key_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FIRST_LIMIT_S", -1.0)
    monkeypatch.setattr(trees, "GIVES_WAY_S", 1000.0)
    document = Document("file:///a.py", SOURCE)
    tree = DocumentTree(document, PYTHON)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        tree._edited_at = -math.inf  # the key was answered

    monkeypatch.setattr(trees.time, "sleep", sleep)
    document.apply([Change("import os\n", Range(Position(3, 0), Position(3, 0)))])
    assert await tree.ready() is not None and tree.fresh
    assert len(slept) == 1 and 900 < slept[0] <= 1000


async def test_a_text_that_takes_even_a_thread_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "FIRST_LIMIT_S", -1.0)
    monkeypatch.setattr(trees, "THREAD_LIMIT_S", -1.0)
    tries = []
    parse_once = trees.parse_lines
    monkeypatch.setattr(trees, "parse_lines", lambda *given: tries.append(1) or parse_once(*given))
    document = Document("file:///a.sh", SOURCE)
    tree = DocumentTree(document, PYTHON)
    assert await tree.ready() is None
    before = len(tries)
    document.apply([Change("x", Range(Position(0, 0), Position(0, 0)))])
    tree._rest_until = 0.0
    assert await tree.ready() is None
    assert len(tries) == before + 1  # the short one of the request, none in a thread


def test_shell_full_of_heredocs_ends_in_time() -> None:
    lines = split_lines("".join(f"cat <<EOF{n} <<-'END{n}'\n$(echo ${{x:-$(cat <<E)}}\n" for n in range(3000)))
    begun = time.monotonic()
    with contextlib.suppress(ParseLimit):
        parse_lines(parser_for(syntax_of("shellscript")), lines, 0.2)
    assert time.monotonic() - begun < 30  # ended by the limit, or done


HOLD_UP = {
    "python": [
        "/*\n" * 3000 + "y",
        "x = 1\n" * 300 + "/*\n" * 3000 + "y",
        "(" * 10_000,
        "{[" * 3000 + "?" + "]}" * 3000,
    ],
    "rust": ["%w(" * 3000, ")" * 3000 + "%w(" * 2000],
    "java": ["a<" * 4000 + "y", "".join(f"a{n}<" for n in range(2000))],
    "csharp": ["<a " * 3000],
    "swift": ["#" * 8000 + "y"],
    # YAML's scanner writes over the end of its room: the process would end.
    "yaml": ["- " * 400 + "y", "\n".join(" " * level + "a:" for level in range(400))],
}


@pytest.mark.parametrize(("language", "text"), [(name, text) for name, texts in HOLD_UP.items() for text in texts])
async def test_a_text_that_would_hold_up_the_process_has_no_tree_until_it_has_changed(language: str, text: str) -> None:
    """Some of these take a parser more than twenty seconds in one step, which nothing interrupts."""
    with pytest.raises(LongStep):
        grammars.parse(parser_for(syntax_of(language)), text.encode(), 30.0)
    opened = DocumentTree(Document("file:///a", text), syntax_of(language))
    assert await opened.ready() is None
    document = Document("file:///a", "")
    pasted = DocumentTree(document, syntax_of(language))
    assert pasted.refresh(5.0) is not None
    document.apply([Change(text, Range(Position(0, 0), Position(0, 0)))])
    pasted.refresh(5.0)
    assert await pasted.ready() is None
    document.apply([Change("x\n")])
    assert await pasted.ready() is not None and pasted.fresh


async def test_a_text_that_holds_up_the_process_more_and_more_as_it_is_typed_is_found_out() -> None:
    document = Document("file:///a.py", "\n")
    tree = DocumentTree(document, PYTHON)
    for _ in range(16):
        document.apply([Change("/*\n" * 150, Range(Position(0, 0), Position(0, 0)))])
        tree.refresh(5.0)
        tree._rest_until = 0.0
        await tree.ready()
    assert tree.tree is None


def test_a_parse_out_of_time_within_a_character_ends_no_process() -> None:
    """The parser asks again for a character of which it has seen a part, and does not look whether it gets one."""
    character = "\u2028".encode()

    def parse_out_of_time(cut: int) -> None:
        first = [character[:cut]]
        with pytest.raises(ParseLimit):
            grammars._parse(
                parser_for(syntax_of("swift")), lambda at, _: first.pop() if first else character[at:],
                0.0 if cut else 1.0, time.monotonic, None,
            )  # fmt: skip

    for cut in (1, 2):
        parse_out_of_time(cut)
    for limit_s in (0.0, 0.0001, 0.001):
        for text in ("\u2028" * 3000, "\u2028 é😀" * 2000):
            with contextlib.suppress(ParseLimit):
                grammars.parse(parser_for(syntax_of("swift")), text.encode(), limit_s)


def test_characters_near_a_watched_end_are_read_whole() -> None:
    data = "x = 1\ny = 'é漢😀é漢😀é漢😀é漢😀'\n".encode()
    tree = parser_for(PYTHON).parse(data)
    for tail in (0, 1, 2, 3, 40, 100):
        grammars.note_edit(tree, data[:4], b"1", b"2")
        changed = data[:4] + b"2" + data[5:]
        found, _ = grammars.parse_watched(parser_for(PYTHON), changed, 30.0, tree, tail)
        assert shape(found) == shape(parser_for(PYTHON).parse(changed))


def test_repetitive_text_is_parsed_like_any_other() -> None:
    for text in ("x = 1\n" * 3000, "f(0, " + "0, " * 5000 + "0)\n", "# " + "-" * 4000 + "\nx = 1\n"):
        data = text.encode()
        assert shape(grammars.parse(parser_for(PYTHON), data, 30.0)) == shape(parser_for(PYTHON).parse(data))
    assert len(pieces(b"x = 1\n" * 3000)) > 5 and len(pieces(SOURCE.encode())) == 1


DEFINED = {
    "python": ("@d\nclass A:\n    x = 1\n\n    def go(self):\n        pass\n\nLIMIT = 3\n", {"A", "go", "LIMIT"}),
    "javascript": ("export class A { go() {} }\nfunction f() {}\nconst g = 1;\n", {"A", "go", "f", "g"}),
    "typescript": ("interface I { a: string }\nexport type T = I;\nenum E { A }\n", {"I", "T", "E"}),
    "typescriptreact": ("export function F(): JSX.Element { return <p/>; }\n", {"F"}),
    "go": ("package p\nfunc F() {}\nfunc (s *S) M() {}\ntype S struct { a int }\n", {"F", "M", "S"}),
    "rust": ("struct S { a: i32 }\nimpl S { fn m(&self) {} }\ntrait T {}\nenum E { A }\n", {"S", "m", "T", "E"}),
    "java": ("class A { A() {} void go() {} }\ninterface I {}\n", {"A", "go", "I"}),
    "c": ("#define Q 1\nint *f(int a) { return 0; }\nstruct S { int a; };\nint g(void);\n", {"Q", "f", "S", "g"}),
    "cpp": ("class A { int m(); };\nint A::n() { return 1; }\ntemplate<class T> T id(T t) { return t; }\n",
            {"A", "m", "n", "id"}),
    "csharp": ("namespace N { class A { void Go() {} } interface I {} }\n", {"A", "Go", "I"}),
    "ruby": ("module M\n  class A\n    def go\n    end\n  end\nend\n", {"M", "A", "go"}),
    "php": ("<?php\nclass A { function go() {} }\nfunction f() {}\n", {"A", "go", "f"}),
    "shellscript": ("go() {\n  echo a\n}\n", {"go"}),
    "kotlin": ("class A { fun go() {} }\nobject O\n", {"A", "go", "O"}),
    "swift": ("class A { func go() {} }\nprotocol P {}\n", {"A", "go", "P"}),
    "scala": ("class A { def go = 1 }\nobject O\ntrait T\n", {"A", "go", "O", "T"}),
    "lua": ("function M.go(x) return x end\nlocal function f() end\n", {"go", "f"}),
    "sql": ("CREATE TABLE shop.users (id INT, name TEXT);\nCREATE VIEW adults AS SELECT 1;\n", {"users", "adults"}),
    "css": (":root { --main-color: red; }\n.card { a: b; }\n#top { a: b; }\n@keyframes spin { from { a: b; } }\n",
            {"--main-color", "card", "top", "spin"}),
    "yaml": ("base: &defaults\n  a: 1\nb: *defaults\n", {"defaults"}),
    "json": ('{"$defs": {"User": {"type": "object"}}, "other": {"Not": {}}}', {"User"}),
}  # fmt: skip


@pytest.mark.parametrize("language", sorted(DEFINED))
def test_definitions_are_found_by_name(language: str) -> None:
    text, names = DEFINED[language]
    tree, lines = tree_of(text, language)
    found = definitions(tree, lines, syntax_of(language))
    assert names <= {each.name for each in found}
    assert all(each.name in each.text for each in found)


def test_a_function_is_shown_by_its_head_and_a_short_one_whole() -> None:
    body = "".join(f"    x{n} = {n}\n" for n in range(20))
    tree, lines = tree_of(f"@cache\ndef long(\n    a: int,\n) -> str:\n{body}\n\ndef short():\n    return 1\n")
    by_name = {each.name: each.text for each in definitions(tree, lines, PYTHON)}
    assert by_name["long"] == "@cache\ndef long(\n    a: int,\n) -> str:"
    assert by_name["short"] == "def short():\n    return 1"


def test_scopes_and_imports_above_a_row() -> None:
    text = "import os\nfrom a import (\n    b,\n)\n\n\nclass A:\n    def go(self, x):\n        y = 1\n        z = 2\n"
    tree, _ = tree_of(text)
    assert list(enclosing_scopes(tree, 9, PYTHON)) == [(6, 6), (7, 7)]
    assert import_rows(tree, 9, PYTHON, 10) == [(0, 0), (1, 3)]
    assert import_rows(tree, 1, PYTHON, 10) == [(0, 0)]


@pytest.mark.parametrize(
    ("text", "inside", "several"),
    [
        ("x = 'a|b'", "string", False),
        ("x = 'ab'|", "", False),
        ("# no|te", "comment", False),
        ("# note|", "comment", False),
        ("x = 1  |", "", False),
        ('"""doc\nmore| text\n"""', "string", True),
        ("x = 'ü|b'", "string", False),
    ],
)
def test_what_a_place_is_inside_of(text: str, inside: str, several: bool) -> None:
    before, _, after = text.partition("|")
    tree, _ = tree_of(before + after)
    column = len(before.split("\n")[-1].encode())
    assert kind_at(tree, before.count("\n"), column, PYTHON) == (inside, several)


def test_a_closed_document_is_forgotten() -> None:
    documents = OpenDocuments()
    one = Document("file:///w/one.py", "x = 1\n")
    two = Document("file:///w/two.py", "y = 1\n")
    entry = documents.opened(one, "one.py", language_for("python"), Path("/w/one.py"))
    documents.opened(two, "two.py", language_for("python"), Path("/w/two.py"))
    assert [other.path for other in documents.others(entry)] == ["two.py"]
    documents.closed("file:///w/two.py")
    assert documents.others(entry) == []
    assert documents.get(two) is None
