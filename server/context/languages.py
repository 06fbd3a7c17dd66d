"""The one table of languages: a row holds a language's files, signs, grammar, and what the grammar's nodes mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class Syntax:
    """A tree-sitter grammar and the kinds of its named nodes that mean something to us.

    module, function: what gives the grammar. blocks: nodes whose named children are statements or members,
    the root among them. statements: endings of the kinds of statements. lists: nodes whose named children
    are arguments, parameters or elements. functions, imports, comments, strings: as they say.
    """

    module: str
    blocks: frozenset[str]
    functions: frozenset[str]
    imports: frozenset[str]
    comments: frozenset[str]
    strings: frozenset[str]
    lists: frozenset[str]
    statements: tuple[str, ...] = ("_statement", "_declaration", "_definition")
    function: str = "language"


def _syntax(
    module: str,
    blocks: str,
    functions: str = "",
    imports: str = "",
    strings: str = "",
    lists: str = "",
    *,
    comments: str = "comment",
    statements: str = "_statement _declaration _definition",
    function: str = "language",
) -> Syntax:
    """A `Syntax` from kinds separated by blanks, so that a row can be read."""
    return Syntax(
        f"tree_sitter_{module}",
        blocks=frozenset(blocks.split()),
        functions=frozenset(functions.split()),
        imports=frozenset(imports.split()),
        comments=frozenset(comments.split()),
        strings=frozenset(strings.split()),
        lists=frozenset(lists.split()),
        statements=tuple(statements.split()),
        function=function,
    )


@dataclass(frozen=True)
class Language:
    """One language. `name` is its LSP language id; `extensions` and `file_names` find it for a file.

    comment: the signs around a one-line comment, the second "" where the line's end closes it.
    line_comments, block_comment, multiline_quotes, quotes, literals: what hides brackets from the bracket
    scanner. quotes: the quotes of strings that end on their line; literals: a pattern of others, raw strings
    or characters; a string that begins with one of `raw_quotes` knows no backslash; regexes: `/` may begin a
    regular expression.
    markup: a line may begin with the end of a tag. prose: text in paragraphs, where a blank line is the only
    boundary. continuing: first words of lines that carry a statement on at its own indentation, behind its block;
    heads: the same before its block. joints: signs that begin no statement, so that a line which begins with one
    carries on the statement above. ending: first words of lines that end a block.
    terminated: a statement without a block ends with `;`. directives: lines that begin with `#` are for a
    preprocessor, and their column means nothing. syntax: the grammar; None where there is none.
    """

    name: str
    extensions: tuple[str, ...] = ()
    comment: tuple[str, str] = ("#", "")
    line_comments: tuple[str, ...] = ("#",)
    block_comment: tuple[str, str] | None = None
    multiline_quotes: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()
    prose: bool = False
    quotes: str = "\"'`"
    literals: str = ""
    raw_quotes: str = ""
    regexes: bool = False
    markup: bool = False
    continuing: frozenset[str] = frozenset({"else", "elif", "elsif", "elseif", "catch", "except", "finally"})
    heads: frozenset[str] = frozenset()
    joints: str = ""
    ending: frozenset[str] = frozenset()
    terminated: bool = False
    directives: bool = False
    syntax: Syntax | None = None


_JOINTS = ">?|&.,=:"
_HEADS = frozenset({"where", "throws", "extends", "implements", "permits", "requires", "with"})
_CHARACTER = r"'(?:\\[^'\n]*|\\'|[^'\\\n])'"  # one character; a quote alone may be a lifetime or an apostrophe
_TAGS = "program statement_block class_body switch_case switch_default interface_body object_type enum_body"
_SCRIPT = (
    _TAGS,
    "function_declaration function_expression generator_function_declaration method_definition arrow_function",
    "import_statement",
    "string template_string",
    "arguments formal_parameters array object named_imports export_clause",
)
_CLIKE = (
    "translation_unit compound_statement declaration_list field_declaration_list enumerator_list case_statement"
    " preproc_if preproc_ifdef preproc_else",
    "function_definition",
    "preproc_include",
    "string_literal char_literal",
    "argument_list parameter_list initializer_list",
)


def _script(name: str, *extensions: str, syntax: Syntax, markup: bool = False) -> Language:
    return Language(
        name,
        extensions,
        ("//", ""),
        ("//",),
        ("/*", "*/"),
        ("`",),
        quotes="\"'",
        regexes=True,
        markup=markup,
        heads=_HEADS,
        joints=_JOINTS,
        syntax=syntax,
    )


def _slashes(
    name: str,
    *extensions: str,
    syntax: Syntax | None = None,
    multiline_quotes: tuple[str, ...] = (),
    hashes: bool = False,
    quotes: str = '"',
    literals: str = _CHARACTER,
    raw_quotes: str = "",
    terminated: bool = False,
    directives: bool = False,
) -> Language:
    return Language(
        name,
        extensions,
        ("//", ""),
        ("//", "#") if hashes else ("//",),
        ("/*", "*/"),
        multiline_quotes,
        quotes=quotes,
        literals=literals,
        raw_quotes=raw_quotes,
        terminated=terminated,
        directives=directives,
        heads=_HEADS,
        joints=_JOINTS,
        syntax=syntax,
    )


PLAIN_TEXT = Language("plaintext", ("txt",), line_comments=(), prose=True)

LANGUAGES = (
    Language(
        "python",
        ("py", "pyi", "pyw"),
        multiline_quotes=('"""', "'''"),
        quotes="\"'",
        syntax=_syntax(
            "python",
            "module block",
            "function_definition lambda",
            "import_statement import_from_statement future_import_statement",
            "string",
            "argument_list parameters list tuple set dictionary",
        ),
    ),
    _script(
        "javascript", "js", "mjs", "cjs", syntax=_syntax("javascript", _TAGS.rpartition(" interface")[0], *_SCRIPT[1:])
    ),
    _script(
        "javascriptreact",
        "jsx",
        syntax=_syntax("javascript", _TAGS.rpartition(" interface")[0], *_SCRIPT[1:]),
        markup=True,
    ),
    _script("typescript", "ts", "mts", "cts", syntax=_syntax("typescript", *_SCRIPT, function="language_typescript")),
    _script("typescriptreact", "tsx", syntax=_syntax("typescript", *_SCRIPT, function="language_tsx"), markup=True),
    _slashes(
        "go",
        "go",
        multiline_quotes=("`",),
        raw_quotes="`",
        syntax=_syntax(
            "go",
            "source_file block statement_list import_spec_list field_declaration_list interface_type",
            "function_declaration method_declaration func_literal",
            "import_declaration",
            "interpreted_string_literal raw_string_literal rune_literal",
            "argument_list parameter_list literal_value",
        ),
    ),
    _slashes(
        "rust",
        "rs",
        terminated=True,
        literals=r"b?c?r(?P<hashes>#*)\"[^\n]*?\"(?P=hashes)|b?" + _CHARACTER,
        syntax=_syntax(
            "rust",
            "source_file block declaration_list field_declaration_list enum_variant_list match_block",
            "function_item closure_expression",
            "use_declaration extern_crate_declaration",
            "string_literal raw_string_literal char_literal",
            "arguments parameters array_expression tuple_expression field_initializer_list use_list",
            comments="line_comment block_comment",
            statements="_statement _declaration _definition _item macro_invocation field_declaration enum_variant",
        ),
    ),
    _slashes(
        "java",
        "java",
        terminated=True,
        multiline_quotes=('"""',),
        syntax=_syntax(
            "java",
            "program block class_body interface_body enum_body_declarations constructor_body"
            " switch_block_statement_group annotation_type_body",
            "method_declaration constructor_declaration lambda_expression",
            "import_declaration package_declaration",
            "string_literal character_literal",
            "argument_list formal_parameters array_initializer annotation_argument_list",
            comments="line_comment block_comment",
        ),
    ),
    _slashes("c", "c", "h", terminated=True, directives=True, syntax=_syntax("c", *_CLIKE)),
    _slashes(
        "cpp",
        "cpp",
        "cc",
        "cxx",
        "hpp",
        "hh",
        "hxx",
        terminated=True,
        directives=True,
        literals=r'(?:u8|[uUL])?R"(?P<mark>\w*)\([^\n]*?\)(?P=mark)"|(?<=[0-9a-fA-F])\'(?=[0-9a-fA-F])|' + _CHARACTER,
        syntax=_syntax(
            "cpp",
            _CLIKE[0],
            "function_definition lambda_expression",
            _CLIKE[2] + " using_declaration",
            "string_literal raw_string_literal char_literal",
            _CLIKE[4] + " template_argument_list field_initializer_list",
        ),
    ),
    _slashes(
        "csharp",
        "cs",
        terminated=True,
        directives=True,
        multiline_quotes=('"""',),
        syntax=_syntax(
            "c_sharp",
            "compilation_unit block declaration_list enum_member_declaration_list switch_section",
            "method_declaration constructor_declaration local_function_statement lambda_expression",
            "using_directive",
            "string_literal verbatim_string_literal raw_string_literal character_literal"
            " interpolated_string_expression",
            "argument_list parameter_list initializer_expression",
        ),
    ),
    _slashes(
        "kotlin",
        "kt",
        "kts",
        multiline_quotes=('"""',),
        syntax=_syntax(
            "kotlin",
            "source_file block class_body enum_class_body lambda_literal",
            "function_declaration anonymous_function secondary_constructor lambda_literal",
            "import",
            "string_literal multiline_string_literal character_literal",
            "value_arguments function_value_parameters class_parameters",
            comments="line_comment block_comment",
        ),
    ),
    _slashes(
        "swift",
        "swift",
        multiline_quotes=('"""',),
        syntax=_syntax(
            "swift",
            "source_file statements class_body enum_class_body protocol_body",
            "function_declaration init_declaration lambda_literal",
            "import_declaration",
            "line_string_literal multi_line_string_literal raw_string_literal",
            "value_arguments array_literal dictionary_literal",
            comments="comment multiline_comment",
        ),
    ),
    _slashes(
        "scala",
        "scala",
        "sc",
        multiline_quotes=('"""',),
        syntax=_syntax(
            "scala",
            "compilation_unit block indented_block template_body case_block enum_body",
            "function_definition lambda_expression",
            "import_declaration",
            "string interpolated_string character_literal",
            "arguments parameters class_parameters",
            comments="comment block_comment",
        ),
    ),
    _slashes(
        "php",
        "php",
        terminated=True,
        hashes=True,
        quotes="\"'`",
        literals="",
        syntax=_syntax(
            "php",
            "program compound_statement declaration_list enum_declaration_list switch_block",
            "function_definition method_declaration anonymous_function arrow_function",
            "namespace_use_declaration",
            "string encapsed_string heredoc nowdoc_string",
            "arguments formal_parameters array_creation_expression",
            function="language_php",
        ),
    ),
    _slashes(
        "jsonc",
        "jsonc",
        literals="",
        syntax=_syntax("json", "document object", "", "", "string", "object array", statements="pair"),
    ),
    Language(
        "json",
        ("json",),
        ("//", ""),
        (),
        quotes='"',
        syntax=_syntax("json", "document object", "", "", "string", "object array", statements="pair"),
    ),
    Language(
        "css",
        ("css",),
        ("/*", "*/"),
        (),
        ("/*", "*/"),
        quotes="\"'",
        syntax=_syntax(
            "css",
            "stylesheet block keyframe_block_list",
            "",
            "import_statement",
            "string_value",
            "arguments",
            statements="_statement declaration rule_set at_rule",
        ),
    ),
    Language("scss", ("scss",), ("//", ""), ("//",), ("/*", "*/"), quotes="\"'"),
    Language(
        "html",
        ("html", "htm"),
        ("<!--", "-->"),
        (),
        ("<!--", "-->"),
        quotes='"',
        markup=True,
        syntax=_syntax("html", "document element", "", "", "quoted_attribute_value", "", statements="element"),
    ),
    Language(
        "sql",
        ("sql",),
        ("--", ""),
        ("--",),
        ("/*", "*/"),
        quotes="\"'`",
        ending=frozenset({"end", "END"}),
        syntax=_syntax(
            "sql",
            "program block",
            "function_declaration create_function",
            "",
            "literal",
            "column_definitions list select_expression",
            comments="comment marginalia",
            statements="statement",
        ),
    ),
    Language(
        "lua",
        ("lua",),
        ("--", ""),
        ("--",),
        ("--[[", "]]"),
        multiline_quotes=("[[",),
        raw_quotes="[[",
        quotes="\"'",
        literals=r"\[(?P<level>=*)\[[^\n]*?\](?P=level)\]",
        continuing=frozenset({"else", "elseif"}),
        ending=frozenset({"end", "until"}),
        syntax=_syntax(
            "lua",
            "chunk block",
            "function_declaration function_definition",
            "",
            "string",
            "arguments parameters table_constructor",
        ),
    ),
    Language(
        "ruby",
        ("rb",),
        file_names=("Gemfile", "Rakefile"),
        continuing=frozenset({"else", "elsif", "when", "in", "rescue", "ensure"}),
        ending=frozenset({"end"}),
        syntax=_syntax(
            "ruby",
            "program body_statement block_body then else do",
            "method singleton_method lambda",
            "",
            "string string_array symbol_array heredoc_body",
            "argument_list method_parameters array hash",
            statements="call assignment method class module if unless while until for case return",
        ),
    ),
    Language(
        "shellscript",
        ("sh", "bash", "zsh"),
        continuing=frozenset({"else", "elif", "do", "then"}),
        ending=frozenset({"fi", "done", "esac"}),
        syntax=_syntax(
            "bash",
            "program compound_statement do_group else_clause",
            "function_definition",
            "",
            "string raw_string ansi_c_string heredoc_body",
            "array",
            statements="_statement command pipeline list variable_assignment",
        ),
    ),
    Language(
        "yaml",
        ("yaml", "yml"),
        quotes="\"'",
        syntax=_syntax(
            "yaml",
            "stream document block_mapping block_sequence",
            "",
            "",
            "double_quote_scalar single_quote_scalar block_scalar",
            "flow_mapping flow_sequence",
            statements="block_mapping_pair block_sequence_item",
        ),
    ),
    Language("toml", ("toml",), multiline_quotes=('"""', "'''")),
    Language("makefile", ("mk",), file_names=("Makefile", "GNUmakefile"), ending=frozenset({"endif", "endef"})),
    Language("dockerfile", ("dockerfile",), file_names=("Dockerfile",)),
    Language(
        "markdown",
        ("md", "markdown"),
        ("<!--", "-->"),
        (),
        prose=True,
        syntax=_syntax(
            "markdown",
            "document section list list_item",
            "",
            "",
            "fenced_code_block",
            "",
            comments="html_block",
            statements="paragraph list_item",
        ),
    ),
    PLAIN_TEXT,
)

_BY_NAME = {language.name: language for language in LANGUAGES}
_BY_EXTENSION = {extension: language for language in LANGUAGES for extension in language.extensions}
_BY_FILE_NAME = {name: language for language in LANGUAGES for name in language.file_names}
# A language we do not know is more likely code than prose: brackets and indentation still tell.
_UNKNOWN = Language(
    "",
    comment=("#", ""),
    line_comments=("//", "#"),
    block_comment=("/*", "*/"),
    ending=frozenset({"end", "fi", "done", "esac", "endif"}),
)


def language_for(name: str, path: str = "") -> Language:
    """The language of an LSP language id, else of a file's name, else one without a name of its own."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    file = PurePath(path)
    found = _BY_FILE_NAME.get(file.name) or _BY_EXTENSION.get(file.suffix[1:].lower())
    return found or _UNKNOWN
