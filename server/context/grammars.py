"""Grammars, loaded once each, and parsing through a read callback: only there may a parse be stopped.

Parsing bytes holds the interpreter's lock throughout and knows no time limit.
"""

from __future__ import annotations

import importlib
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from server.context.languages import Syntax

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Parser, Tree

READ_SIZE = 4096  # bytes handed to the parser at once


class ParseLimit(Exception):
    """The parser did not finish in time."""


@cache
def grammar(module: str, function: str = "language") -> Grammar:
    """The grammar that a wheel's module gives."""
    from tree_sitter import Language as Grammar

    return Grammar(getattr(importlib.import_module(module), function)())


def parser_for(syntax: Syntax) -> Parser:
    """A parser of its own, for one text at a time."""
    from tree_sitter import Parser

    return Parser(grammar(syntax.module, syntax.function))


def parse(parser: Parser, data: bytes, limit_s: float, old_tree: Tree | None = None) -> Tree:
    """Parse, from an edited old tree if there is one. Raises ParseLimit.

    limit_s: processor time of this thread; how busy the machine is must not change a completion.
    """
    limit = time.thread_time() + limit_s
    old: dict[str, Any] = {} if old_tree is None else {"old_tree": old_tree}
    try:
        return parser.parse(
            lambda offset, _: data[offset : offset + READ_SIZE],
            progress_callback=lambda offset, failing: time.thread_time() > limit,
            **old,
        )
    except ValueError as error:
        parser.reset()  # or the next parse would go on with this text
        raise ParseLimit from error


def error_count(tree: Tree) -> int:
    """How many nodes of a tree are errors or were made up by the parser."""
    count, cursor = 0, tree.walk()
    while True:
        node = cursor.node
        assert node is not None
        if node.is_error or node.is_missing:
            count += 1
        if node.has_error and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return count
