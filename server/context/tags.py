"""What of a syntax tree is worth showing elsewhere: definitions, scopes, imports. One row a language."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Node, Query, Tree

WHOLE_LINES = 6  # a definition so short is shown whole
MEMBER_LINES = 12  # of a type: its first fields and methods say most
LONGEST_TEXT = 800  # characters of one definition
MOST_DEFINITIONS = 5_000  # of one file
LONGEST_NAME = 100
_NAME_DEPTH = 6


@dataclass(frozen=True)
class TagRow:
    """What the context needs of a grammar, by node kind.

    grammar, function: module of the grammar's wheel, and what of it gives the language.
    definitions: nodes that define their `name` (or the name at the end of their `declarator`s).
    types: those of them whose first members are shown, too.
    values: query patterns of values that are defined by assignment, with @name and @definition.
    bodies: kinds of a scope's body where it has no field named so. wrappers: what a definition may stand in,
    to be shown with it. imports, strings, comments: what they say.
    """

    grammar: str
    definitions: frozenset[str]
    types: frozenset[str] = frozenset()
    values: tuple[str, ...] = ()
    bodies: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    comments: frozenset[str] = frozenset({"comment"})
    function: str = "language"


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition: its name, the row that it begins at, and the text that says what it is."""

    name: str
    row: int
    text: str


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _script(grammar: str, function: str = "language", types: str = "") -> TagRow:
    return TagRow(
        grammar,
        _kinds(f"function_declaration generator_function_declaration class_declaration method_definition {types}"),
        types=_kinds(f"class_declaration {types}"),
        values=(
            "(program (lexical_declaration (variable_declarator name: (identifier) @name)) @definition)",
            "(export_statement (lexical_declaration (variable_declarator name: (identifier) @name)) @definition)",
        ),
        wrappers=_kinds("export_statement"),
        imports=_kinds("import_statement"),
        strings=_kinds("string template_string"),
        function=function,
    )


_TYPESCRIPT = "interface_declaration type_alias_declaration enum_declaration abstract_class_declaration"
_C_KINDS = "function_definition declaration struct_specifier enum_specifier union_specifier type_definition"
_C_STRINGS = _kinds("string_literal char_literal raw_string_literal system_lib_string")
_C_VALUES = ("(preproc_def name: (identifier) @name) @definition",)
_JAVASCRIPT = _script("tree_sitter_javascript")

ROWS: Mapping[str, TagRow] = {
    "python": TagRow(
        "tree_sitter_python",
        _kinds("function_definition class_definition"),
        types=_kinds("class_definition"),
        values=("(module (expression_statement (assignment left: (identifier) @name)) @definition)",),
        wrappers=_kinds("decorated_definition"),
        imports=_kinds("import_statement import_from_statement future_import_statement"),
        strings=_kinds("string"),
    ),
    "javascript": _JAVASCRIPT,
    "javascriptreact": _JAVASCRIPT,
    "typescript": _script("tree_sitter_typescript", "language_typescript", _TYPESCRIPT),
    "typescriptreact": _script("tree_sitter_typescript", "language_tsx", _TYPESCRIPT),
    "go": TagRow(
        "tree_sitter_go",
        _kinds("function_declaration method_declaration type_spec type_alias"),
        types=_kinds("type_spec"),
        imports=_kinds("import_declaration package_clause"),
        strings=_kinds("interpreted_string_literal raw_string_literal rune_literal"),
    ),
    "rust": TagRow(
        "tree_sitter_rust",
        _kinds(
            "function_item function_signature_item struct_item enum_item union_item trait_item type_item"
            " const_item static_item macro_definition mod_item"
        ),
        types=_kinds("struct_item enum_item union_item trait_item"),
        imports=_kinds("use_declaration"),
        strings=_kinds("string_literal raw_string_literal char_literal"),
        comments=_kinds("line_comment block_comment"),
    ),
    "java": TagRow(
        "tree_sitter_java",
        _kinds(
            "class_declaration interface_declaration enum_declaration record_declaration method_declaration"
            " constructor_declaration annotation_type_declaration"
        ),
        types=_kinds("class_declaration interface_declaration enum_declaration record_declaration"),
        imports=_kinds("import_declaration package_declaration"),
        strings=_kinds("string_literal character_literal"),
        comments=_kinds("line_comment block_comment"),
    ),
    "c": TagRow(
        "tree_sitter_c",
        _kinds(f"{_C_KINDS} preproc_function_def"),
        types=_kinds("struct_specifier enum_specifier union_specifier type_definition"),
        values=_C_VALUES,
        imports=_kinds("preproc_include"),
        strings=_C_STRINGS - {"raw_string_literal"},
    ),
    "cpp": TagRow(
        "tree_sitter_cpp",
        _kinds(f"{_C_KINDS} class_specifier field_declaration alias_declaration preproc_function_def"),
        types=_kinds("struct_specifier enum_specifier union_specifier class_specifier"),
        values=_C_VALUES,
        wrappers=_kinds("template_declaration"),
        imports=_kinds("preproc_include using_declaration"),
        strings=_C_STRINGS,
    ),
    "csharp": TagRow(
        "tree_sitter_c_sharp",
        _kinds(
            "class_declaration interface_declaration struct_declaration record_declaration enum_declaration"
            " method_declaration constructor_declaration delegate_declaration property_declaration"
        ),
        types=_kinds("class_declaration interface_declaration struct_declaration enum_declaration"),
        imports=_kinds("using_directive"),
        strings=_kinds(
            "string_literal verbatim_string_literal raw_string_literal interpolated_string_expression character_literal"
        ),
    ),
    "ruby": TagRow(
        "tree_sitter_ruby",
        _kinds("method singleton_method class module"),
        types=_kinds("class module"),
        strings=_kinds("string"),
    ),
    "php": TagRow(
        "tree_sitter_php",
        _kinds(
            "function_definition method_declaration class_declaration interface_declaration trait_declaration"
            " enum_declaration"
        ),
        types=_kinds("class_declaration interface_declaration trait_declaration enum_declaration"),
        imports=_kinds("namespace_use_declaration namespace_definition"),
        strings=_kinds("string encapsed_string heredoc nowdoc"),
        function="language_php",
    ),
    "shellscript": TagRow(
        "tree_sitter_bash",
        _kinds("function_definition"),
        strings=_kinds("string raw_string heredoc_body"),
    ),
    "kotlin": TagRow(
        "tree_sitter_kotlin",
        _kinds("class_declaration object_declaration function_declaration"),
        types=_kinds("class_declaration object_declaration"),
        bodies=_kinds("class_body enum_class_body function_body"),
        imports=_kinds("import package_header"),
        strings=_kinds("string_literal multiline_string_literal character_literal"),
        comments=_kinds("line_comment block_comment"),
    ),
    "swift": TagRow(
        "tree_sitter_swift",
        _kinds("class_declaration protocol_declaration function_declaration protocol_function_declaration"),
        types=_kinds("class_declaration protocol_declaration"),
        imports=_kinds("import_declaration"),
        strings=_kinds("line_string_literal multi_line_string_literal raw_string_literal"),
        comments=_kinds("comment multiline_comment"),
    ),
    "scala": TagRow(
        "tree_sitter_scala",
        _kinds(
            "class_definition object_definition trait_definition function_definition function_declaration"
            " enum_definition"
        ),
        types=_kinds("class_definition object_definition trait_definition enum_definition"),
        imports=_kinds("import_declaration package_clause"),
        strings=_kinds("string interpolated_string_expression character_literal"),
        comments=_kinds("comment block_comment"),
    ),
    "lua": TagRow("tree_sitter_lua", _kinds("function_declaration"), strings=_kinds("string")),
    "sql": TagRow("tree_sitter_sql", frozenset(), strings=_kinds("literal"), comments=_kinds("comment marginalia")),
    "css": TagRow("tree_sitter_css", frozenset(), strings=_kinds("string_value")),
    "html": TagRow("tree_sitter_html", frozenset(), strings=_kinds("quoted_attribute_value")),
    "json": TagRow("tree_sitter_json", frozenset(), strings=_kinds("string")),
    "yaml": TagRow("tree_sitter_yaml", frozenset(), strings=_kinds("double_quote_scalar single_quote_scalar")),
}


@cache
def grammar(language: str) -> Grammar | None:
    """The grammar of a language, loaded once; None when it has no row."""
    from tree_sitter import Language as Grammar

    row = ROWS.get(language)
    if row is None:
        return None
    return Grammar(getattr(importlib.import_module(row.grammar), row.function)())


@cache
def definition_query(language: str) -> Query | None:
    """The query of a language that captures each definition; None when there is none to capture."""
    from tree_sitter import Query

    row, its_grammar = ROWS.get(language), grammar(language)
    if row is None or its_grammar is None or not row.definitions:
        return None
    kinds = " ".join(f"({kind})" for kind in sorted(row.definitions))
    return Query(its_grammar, "\n".join([f"[{kinds}] @definition", *row.values]))


def definitions(tree: Tree, lines: Sequence[str], language: str) -> list[Definition]:
    """The definitions of a file, in their order. `lines`: the text that the tree is of."""
    from tree_sitter import QueryCursor

    row, query = ROWS.get(language), definition_query(language)
    if row is None or query is None:
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
            found.setdefault(node.id, Definition(name, node.start_point.row, definition_text(node, lines, row)))
    return sorted(found.values(), key=lambda definition: definition.row)


def definition_text(node: Node, lines: Sequence[str], row: TagRow) -> str:
    """What is shown of a definition: all of a short one, the head of a function, the first lines of a type."""
    outer = _wrapped(node, row)
    first, last = outer.start_point.row, _last_row(outer)
    body = body_of(node, row)
    if last - first < WHOLE_LINES or body is None or node.type in row.types:
        last = min(last, first + MEMBER_LINES - 1)
    else:
        last = max(first, _last_row_of_head(body))
    text = "".join(lines[first : last + 1])[:LONGEST_TEXT]
    return _dedented(text).rstrip()


def enclosing_scopes(tree: Tree, row: int, language: str) -> Iterator[tuple[int, int]]:
    """Heads (first and last row) of the definitions that begin above `row` and reach into it, outermost first."""
    kinds = ROWS[language]
    node: Node | None = tree.root_node.descendant_for_point_range((row, 0), (row, 0))
    heads = []
    while node is not None:
        body = body_of(node, kinds) if node.type in kinds.definitions or _holds_members(node) else None
        if body is not None and node.start_point.row < row:
            first = _wrapped(node, kinds).start_point.row
            heads.append((first, min(max(first, _last_row_of_head(body)), row - 1)))
        node = node.parent
    yield from reversed(heads)


def import_rows(tree: Tree, row: int, language: str, most: int) -> list[tuple[int, int]]:
    """Rows (first and last) of the imports that stand above `row` at the top of the file's structure."""
    kinds = ROWS[language].imports
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


def kind_at(tree: Tree, row: int, column: int, language: str) -> tuple[Literal["", "string", "comment"], bool]:
    """What a place (row, byte column) is inside of, and whether that has several lines.

    Inside is between the first and the last character, or at the end of a comment.
    """
    kinds = ROWS[language]
    node: Node | None = tree.root_node.descendant_for_point_range((row, max(0, column - 1)), (row, column))
    while node is not None:
        if node.type in kinds.comments and node.start_point < (row, column):
            return "comment", _last_row(node) > node.start_point.row
        if node.type in kinds.strings and node.start_point < (row, column) < node.end_point:
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


def body_of(node: Node, row: TagRow) -> Node | None:
    """The body of a definition or of what holds members."""
    body = node.child_by_field_name("body")
    if body is None and row.bodies:
        body = next((child for child in node.children if child.type in row.bodies), None)
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


def _wrapped(node: Node, row: TagRow) -> Node:
    parent = node.parent
    return parent if parent is not None and parent.type in row.wrappers else node


def _name_node(node: Node) -> Node | None:
    name = node.child_by_field_name("name")
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
