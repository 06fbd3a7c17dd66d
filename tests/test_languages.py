"""The table of languages: each row has a grammar that loads and knows every kind the row names."""

from __future__ import annotations

import pytest

from server.context.grammars import ParseLimit, error_count, grammar, parse, parser_for
from server.context.languages import LANGUAGES, Language, language_for
from server.context.tags import definition_query

WITH_GRAMMAR = [language for language in LANGUAGES if language.syntax is not None]


@pytest.mark.parametrize("language", WITH_GRAMMAR, ids=lambda language: language.name)
def test_a_rows_grammar_knows_the_kinds_that_the_row_names(language: Language) -> None:
    syntax = language.syntax
    assert syntax is not None
    loaded = grammar(syntax)
    known = {loaded.node_kind_for_id(number) for number in range(loaded.node_kind_count)}
    named = syntax.blocks | syntax.functions | syntax.imports | syntax.comments | syntax.strings | syntax.lists
    named |= syntax.definitions | syntax.types | syntax.bodies | syntax.wrappers
    assert named <= known
    definition_query(syntax)  # an error in a pattern is an exception
    assert any(kind and kind.endswith(syntax.statements) for kind in known)


def test_every_language_of_the_product_has_a_grammar() -> None:
    wanted = (
        "python javascript javascriptreact typescript typescriptreact go rust java c cpp csharp ruby php shellscript"
        " json yaml html css kotlin swift scala lua sql markdown"
    )
    assert set(wanted.split()) <= {language.name for language in WITH_GRAMMAR}


def test_a_file_name_finds_its_language_where_the_editor_names_none() -> None:
    assert language_for("", "a/b.TSX").name == "typescriptreact"
    assert language_for("", "Rakefile").name == "ruby"
    assert language_for("tcl", "a.tcl").syntax is None


def test_a_parse_that_takes_too_long_is_stopped_and_the_parser_is_usable_again() -> None:
    syntax = language_for("shellscript").syntax
    assert syntax is not None
    parser = parser_for(syntax)
    with pytest.raises(ParseLimit):
        parse(parser, b"cat <<A\n$(\n" * 20_000, 0.0)
    assert error_count(parse(parser, b"echo a\n", 5.0)) == 0


def test_errors_are_counted() -> None:
    syntax = language_for("python").syntax
    assert syntax is not None
    assert error_count(parse(parser_for(syntax), b"x = (1\n", 5.0)) > 0
    assert error_count(parse(parser_for(syntax), b"x = (1)\n", 5.0)) == 0
