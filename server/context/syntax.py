"""What the nodes of a tree-sitter grammar mean to us: the type of a language row's `syntax`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Syntax:
    """A tree-sitter grammar and the kinds of its named nodes that mean something to us.

    module, function: what gives the grammar. blocks: nodes whose named children are statements or members,
    the root among them. statements: endings of the kinds of statements. lists: nodes whose named children
    are arguments, parameters or elements. functions, imports, comments, strings: as they say.
    definitions: nodes that define their `name` (or the name at the end of their `declarator`s).
    types: those of them whose first members are shown, too. values: query patterns of what else defines a
    name, with @name and @definition. bodies: kinds of a scope's body where it has no field named so.
    wrappers: what a definition may stand in, to be shown with it.
    """

    module: str
    blocks: frozenset[str]
    functions: frozenset[str]
    imports: frozenset[str]
    comments: frozenset[str]
    strings: frozenset[str]
    lists: frozenset[str]
    statements: tuple[str, ...]
    definitions: frozenset[str]
    types: frozenset[str]
    values: tuple[str, ...]
    bodies: frozenset[str]
    wrappers: frozenset[str]
    function: str


def syntax(
    module: str,
    blocks: str,
    functions: str = "",
    imports: str = "",
    strings: str = "",
    lists: str = "",
    *,
    comments: str = "comment",
    statements: str = "_statement _declaration _definition",
    definitions: str = "",
    types: str = "",
    values: tuple[str, ...] = (),
    bodies: str = "",
    wrappers: str = "",
    function: str = "language",
) -> Syntax:
    """A `Syntax` from kinds separated by blanks, so that a row can be read; `types` are definitions as well."""
    return Syntax(
        f"tree_sitter_{module}",
        blocks=frozenset(blocks.split()),
        functions=frozenset(functions.split()),
        imports=frozenset(imports.split()),
        comments=frozenset(comments.split()),
        strings=frozenset(strings.split()),
        lists=frozenset(lists.split()),
        statements=tuple(statements.split()),
        definitions=frozenset(definitions.split()) | frozenset(types.split()),
        types=frozenset(types.split()),
        values=values,
        bodies=frozenset(bodies.split()),
        wrappers=frozenset(wrappers.split()),
        function=function,
    )
