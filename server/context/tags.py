"""What of a syntax tree is worth showing elsewhere: definitions, scopes, imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from server.context.grammars import grammar
from server.context.syntax import Syntax

if TYPE_CHECKING:
    from tree_sitter import Node, Query, Tree

WHOLE_LINES = 6  # a definition so short is shown whole
MEMBER_LINES = 12  # of a type: its first fields and methods say most
LONGEST_TEXT = 800  # characters of one definition
MOST_DEFINITIONS = 5_000  # of one file
LONGEST_NAME = 100
_NAME_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition: its name, the row that it begins at, and the text that says what it is."""

    name: str
    row: int
    text: str


@cache
def definition_query(syntax: Syntax) -> Query | None:
    """The query that captures each definition of a language; None when there is none to capture."""
    from tree_sitter import Query

    if not syntax.definitions and not syntax.values:
        return None
    kinds = " ".join(f"({kind})" for kind in sorted(syntax.definitions))
    return Query(grammar(syntax), "\n".join([*([f"[{kinds}] @definition"] if kinds else []), *syntax.values]))


def definitions(tree: Tree, lines: Sequence[str], syntax: Syntax) -> list[Definition]:
    """The definitions of a file, in their order. `lines`: the text that the tree is of."""
    from tree_sitter import QueryCursor

    query = definition_query(syntax)
    if query is None:
        return []
    found: dict[int, Definition] = {}
    for _, captures in QueryCursor(query).matches(tree.root_node):
        node = captures["definition"][0]
        given = captures.get("name")
        name_node = given[0] if given else _name_node(node)
        if name_node is None or len(found) >= MOST_DEFINITIONS:
            continue
        name = text_of(name_node, lines)
        if name and len(name) <= LONGEST_NAME:
            found.setdefault(node.id, Definition(name, node.start_point.row, definition_text(node, lines, syntax)))
    return sorted(found.values(), key=lambda definition: definition.row)


def definition_text(node: Node, lines: Sequence[str], syntax: Syntax) -> str:
    """What is shown of a definition: all of a short one, the head of a function, the first lines of a type."""
    outer = _wrapped(node, syntax)
    first, last = outer.start_point.row, _last_row(outer)
    body = body_of(node, syntax)
    if last - first < WHOLE_LINES or body is None or node.type in syntax.types:
        last = min(last, first + MEMBER_LINES - 1)
    else:
        last = max(first, _last_row_of_head(body))
    text = "".join(lines[first : last + 1])[:LONGEST_TEXT]
    return _dedented(text).rstrip()


def enclosing_scopes(tree: Tree, row: int, syntax: Syntax) -> Iterator[tuple[int, int]]:
    """Heads (first and last row) of the definitions that begin above `row` and reach into it, outermost first."""
    node: Node | None = tree.root_node.descendant_for_point_range((row, 0), (row, 0))
    heads = []
    while node is not None:
        body = body_of(node, syntax) if node.type in syntax.definitions or _holds_members(node) else None
        if body is not None and node.start_point.row < row:
            first = _wrapped(node, syntax).start_point.row
            heads.append((first, min(max(first, _last_row_of_head(body)), row - 1)))
        node = node.parent
    yield from reversed(heads)


def import_rows(tree: Tree, row: int, syntax: Syntax, most: int) -> list[tuple[int, int]]:
    """Rows (first and last) of the imports that stand above `row` at the top of the file's structure."""
    kinds = syntax.imports
    rows: list[tuple[int, int]] = []
    if not kinds:
        return rows
    cursor = tree.root_node.walk()
    if not cursor.goto_first_child():
        return rows
    while (node := cursor.node) is not None and node.start_point.row < row and len(rows) < most:
        if node.type in kinds:
            rows.append((node.start_point.row, _last_row(node)))
        if not cursor.goto_next_sibling():
            break
    return rows


def kind_at(tree: Tree, row: int, column: int, syntax: Syntax) -> tuple[Literal["", "string", "comment"], bool]:
    """What a place (row, byte column) is inside of, and whether that has several lines.

    Inside is between the first and the last character, or at the end of a comment.
    """
    node: Node | None = tree.root_node.descendant_for_point_range((row, max(0, column - 1)), (row, column))
    while node is not None:
        if node.type in syntax.comments and node.start_point < (row, column):
            return "comment", _last_row(node) > node.start_point.row
        if node.type in syntax.strings and node.start_point < (row, column) < node.end_point:
            return "string", _last_row(node) > node.start_point.row
        node = node.parent
    return "", False


def begins_a_node(tree: Tree, row: int, column: int) -> bool:
    """Whether something begins at a place, which is not so within strings and comments of several lines."""
    node = tree.root_node.descendant_for_point_range((row, column), (row, column + 1))
    return node is not None and node.start_point == (row, column)


def text_of(node: Node, lines: Sequence[str]) -> str:
    """The text of a node that lies in one line; "" for one that does not."""
    start, end = node.start_point, node.end_point
    if start.row != end.row or start.row >= len(lines):
        return ""
    line = lines[start.row]
    if line.isascii():
        return line[start.column : end.column]
    return line.encode("utf-8", "replace")[start.column : end.column].decode("utf-8", "replace")


def body_of(node: Node, syntax: Syntax) -> Node | None:
    """The body of a definition or of what holds members."""
    body = node.child_by_field_name("body")
    if body is None and syntax.bodies:
        body = next((child for child in node.children if child.type in syntax.bodies), None)
    if body is None and node.type in ("type_spec", "type_definition"):
        return node.child_by_field_name("type")
    return body


def _holds_members(node: Node) -> bool:
    # `impl` blocks, namespaces and the like define nothing that is looked up, but enclose what is.
    return node.type in ("impl_item", "namespace_definition", "namespace_declaration")


def _last_row_of_head(body: Node) -> int:
    """The row on which a definition's head ends: with its body's opening bracket, or above its body."""
    first = body.children[0].type if body.child_count else ""
    return body.start_point.row if first in ("{", "(") else body.start_point.row - 1


def _last_row(node: Node) -> int:
    """The last row with text of the node: one that ends with its line break ends on the row below."""
    start, end = node.start_point, node.end_point
    return end.row - (end.column == 0 and end.row > start.row)


def _wrapped(node: Node, syntax: Syntax) -> Node:
    parent = node.parent
    return parent if parent is not None and parent.type in syntax.wrappers else node


def _name_node(node: Node) -> Node | None:
    name = node.child_by_field_name("name")
    if name is None and node.type.startswith("create_"):  # SQL: `schema.name`
        reference = next((child for child in node.named_children if child.type == "object_reference"), None)
        return reference.child_by_field_name("name") if reference is not None else None
    if name is not None:
        field = name.child_by_field_name("field")  # Lua: `function module.name()`
        return field or name
    is_function = node.type in ("type_definition",)
    inner = node.child_by_field_name("declarator")
    for _ in range(_NAME_DEPTH):
        if inner is None:
            return None
        is_function = is_function or inner.type == "function_declarator"
        below = inner.child_by_field_name("declarator")
        if below is None:
            # What is declared but no function is a variable, which says nothing elsewhere.
            return (inner.child_by_field_name("name") or inner) if is_function else None
        inner = below
    return None


def _dedented(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    blanks = min((len(line) - len(line.lstrip(" \t")) for line in lines if line.strip()), default=0)
    return "\n".join(line[blanks:] for line in lines)
