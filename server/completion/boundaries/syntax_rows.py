"""One row a language whose blocks are told by indentation: what the nodes of its grammar mean to the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SyntaxRow:
    """What the boundary rules need of a grammar.

    statement_parents: nodes whose children are statements.
    string, string_start, string_end: a string, and the tokens that open and close it.
    multiline_quotes: the endings of `string_start` tokens whose strings may span lines.
    comment: a comment.
    line_joint: the token that joins a line with the next.
    block_opener: the token that ends a line which opens a block.
    leader: the first token of a line that belongs to the statement below it, such as a decorator.
    continuations: first word of a statement -> the words that may continue it at its indentation.
    """

    statement_parents: frozenset[str]
    string: str
    string_start: str
    string_end: str
    multiline_quotes: tuple[str, ...]
    comment: str
    line_joint: str
    block_opener: str
    leader: str
    continuations: Mapping[str, frozenset[str]]


_PYTHON_HANDLERS = frozenset({"except", "else", "finally"})

SYNTAX_ROWS: Mapping[str, SyntaxRow] = {
    "python": SyntaxRow(
        statement_parents=frozenset({"module", "block"}),
        string="string",
        string_start="string_start",
        string_end="string_end",
        multiline_quotes=('"""', "'''"),
        comment="comment",
        line_joint="line_continuation",
        block_opener=":",
        leader="@",
        continuations={
            "if": frozenset({"elif", "else"}),
            "elif": frozenset({"elif", "else"}),
            "for": frozenset({"else"}),
            "while": frozenset({"else"}),
            "async": frozenset({"else"}),
            "try": _PYTHON_HANDLERS,
            "except": _PYTHON_HANDLERS,
            "else": frozenset({"finally"}),
        },
    ),
}
