"""What stands near a place never calls a text sound that leaves the whole file with more errors than it had."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from server.benchmarks.cases import read_cases
from server.context.file_errors import FileErrors, encoded
from server.context.grammars import note_edit, parse, parser_for
from server.context.languages import language_for
from server.context.syntax import Syntax
from server.context.vicinity import Vicinity

CASES = Path(__file__).parent / "cases"
LIMIT_S = 10.0
PLACES = 32  # of a language
BREAKS = ("(", "}", "{", '"', "/*", "zz 1\n", "'''", "else", "[", "`", "= =")
TEXTS = ("(", "x", "1\n", "}\n", "{", "else {\n", '"', "/*", "return", "'''")
FAR = {"c": "/* far */\n", "python": "x = '''far'''\n"}
# Enough of them have grammars that tell things of a top level.
LANGUAGES = (
    "c",
    "cpp",
    "css",
    "go",
    "java",
    "javascript",
    "lua",
    "php",
    "python",
    "ruby",
    "rust",
    "shellscript",
    "typescript",
)


def syntax_of(language: str) -> Syntax:
    syntax = language_for(language).syntax
    assert syntax is not None
    return syntax


def files(language: str) -> list[str]:
    """What the cases become, where that is sound, one below the other: files of many things."""
    syntax = syntax_of(language)
    whole = [case.prefix + case.expected + case.suffix for case in read_cases(CASES / f"{language}.jsonl")]
    whole = [text if text.endswith("\n") else text + "\n" for text in whole if "\r" not in text]
    whole = [text for text in whole if not parse(parser_for(syntax), encoded(text), LIMIT_S).root_node.has_error]
    return ["\n".join(whole[begin::3]) * 6 for begin in range(3)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_that_is_surely_sound_leaves_the_file_no_worse(language: str) -> None:
    rng, syntax, sure, texts = random.Random(language), syntax_of(language), 0, files(language)
    for _ in range(PLACES):
        text = rng.choice(texts)
        for _ in range(rng.choice([0, 0, 1, 2])):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(BREAKS) + text[at + rng.choice([0, 0, 1, 30]) :]
        place, gone = (
            rng.choice([text.find("\n", rng.randrange(len(text))) + 1, rng.randrange(len(text))]),
            rng.randrange(40),
        )
        before, after = encoded(text[:place]), encoded(text[place + gone :])
        tree = parse(parser_for(syntax), encoded(text), LIMIT_S)
        note_edit(tree, before, encoded(text[place : place + gone]), b"")
        near = Vicinity.of(syntax, before, after, tree, LIMIT_S)
        if near is None:
            continue
        line = rng.choice(text.splitlines())
        file = FileErrors(syntax, before, after, tree)
        for written in (text[place : place + gone], line, line[: len(line) // 2], *rng.sample(TEXTS, 4)):
            if near.is_sound(encoded(written), 0, LIMIT_S):
                sure += 1
                errors, now = file.errors_with(written), file.errors_with("")
                assert errors is not None and now is not None
                assert errors <= now, (written, text[:place], text[place + gone :])
    assert sure > PLACES // 8, "hardly anything is told without the whole file"


@pytest.mark.parametrize(
    ("language", "above", "here", "below", "text", "sound"),
    [
        # The comment ends far below, where nobody looks: it is no division with a dereference.
        (
            "c",
            "int v{n};\n",
            "int f(int a) {\n    return a |p;\n}\n",
            "int f{n}(int a) {{ return a; }}\n",
            "/*",
            False,
        ),
        (
            "c",
            "int v{n};\n",
            "int f(int a) {\n    return a |p;\n}\n",
            "int f{n}(int a) {{ return a; }}\n",
            "+ ",
            True,
        ),
        # Comments do not tell that the parser is where it was: nothing may stand behind a `return` of the file's own.
        ("lua", "local a{n} = {n}\n", "|\n", "-- {n}\n-- {n}\n-- {n}\nlocal b{n} = {n}\n", "return", False),
        ("lua", "local a{n} = {n}\n", "|\n", "-- {n}\n-- {n}\n-- {n}\nlocal b{n} = {n}\n", "local c = 1", True),
        (
            "python",
            "def a{n}():\n    pass\n",
            "def f():\n    x = |\n",
            "def b{n}():\n    return '''{n}'''\n",
            "'''",
            False,
        ),
        (
            "python",
            "def a{n}():\n    pass\n",
            "def f():\n    x = |\n",
            "def b{n}():\n    return {n}\n",
            "g(1)",
            True,
        ),
        # An error far above is no matter.
        ("python", "zz {n}\n" + "a{n} = 1\n" * 8, "x = |\n", "b{n} = 1\n" * 8, "1", True),
    ],
)
def test_what_stands_far_away_decides_only_where_it_can(
    language: str, above: str, here: str, below: str, text: str, sound: bool
) -> None:
    before, _, after = here.partition("|")
    before = "".join(above.format(n=n) for n in range(40)) + before
    after += "".join(below.format(n=n) for n in range(40)) + FAR.get(language, "")
    syntax = syntax_of(language)
    tree = parse(parser_for(syntax), encoded(before + after), LIMIT_S)
    near = Vicinity.of(syntax, encoded(before), encoded(after), tree, LIMIT_S)
    assert near is not None
    assert near.is_sound(encoded(text), 0, LIMIT_S) is sound
