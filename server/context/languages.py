"""The one table of languages: a row holds a language's files, signs, grammar, and what the grammar's nodes mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from server.context.syntax import Syntax, syntax


@dataclass(frozen=True)
class Language:
    """One language. `name` is its LSP language id; `extensions` and `file_names` find it for a file.

    comment: the signs around a one-line comment, the second "" where the line's end closes it.
    line_comments, block_comment, multiline_quotes, quotes, literals: what hides brackets from the bracket
    scanner. quotes: the quotes of strings that end on their line; literals: a pattern of others, characters;
    a string that begins with one of `raw_quotes` knows no backslash; raw_strings: patterns of what opens strings of
    several lines that know none either, with a mark as its group, and what closes one, with the mark in it; regexes:
    `/` may begin a regular expression.
    markup: a line may begin with the end of a tag. prose: text in paragraphs, where a blank line is the only
    boundary. continuing: first words of lines that carry a statement on at its own indentation, behind its block;
    heads: the same before its block. joints: signs that begin no statement, so that a line which begins with one
    carries on the statement above. ending: first words of lines that end a block.
    word_blocks: patterns of what opens a block that a word closes, and that word.
    lone_closers: a closing bracket may stand without an opening one.
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
    raw_strings: tuple[tuple[str, str], ...] = ()
    interpolations: tuple[tuple[str, str], ...] = ()
    heredocs: str = ""
    regexes: bool = False
    markup: bool = False
    continuing: frozenset[str] = frozenset({"else", "elif", "elsif", "elseif", "catch", "except", "finally"})
    heads: frozenset[str] = frozenset()
    joints: str = ""
    ending: frozenset[str] = frozenset()
    word_blocks: tuple[tuple[str, str], ...] = ()
    lone_closers: bool = False
    terminated: bool = False
    directives: bool = False
    syntax: Syntax | None = None


_JOINTS = ">?|&.,=:"
_HEADS = frozenset({"where", "throws", "extends", "implements", "permits", "requires", "with"})
_CHARACTER = r"'(?:\\[^'\n]*|\\'|[^'\\\n])'"  # one character; a quote alone may be a lifetime or an apostrophe
# A loop's `do` opens nothing more.
_RUBY_BLOCK = (
    r"^\s*(?:while|until|for)\b.*|(?:^\s*|=\s*)(?:if|unless|case|begin)\b"
    r"|^\s*(?:private |protected )?def\b(?![^=]*\s=\s)|^\s*(?:class|module)\b|\bdo\b(?=\s*(?:\|[^|]*\|)?\s*$)"
)
_COMMAND = r"(?:^|[;&|({!]|\b(?:do|then|else)\b)\s*"  # where a command begins in a shell
_DOLLAR_BRACES = (('"', r"\$\{"), ('"""', r"\$\{"))
_EXPORTED = (
    "(program (lexical_declaration (variable_declarator name: (identifier) @name)) @definition)",
    "(export_statement (lexical_declaration (variable_declarator name: (identifier) @name)) @definition)",
)
_DEFINES = ("(preproc_def name: (identifier) @name) @definition",)
_STYLES = (
    "(rule_set (selectors (class_selector (class_name (identifier) @name)))) @definition",
    "(rule_set (selectors (id_selector (id_name) @name))) @definition",
    '((declaration (property_name) @name) @definition (#match? @name "^--"))',
    "(keyframes_statement (keyframes_name) @name) @definition",
)
_SCHEMAS = (
    "(pair key: (string (string_content) @part) value: (object (pair key: (string (string_content) @name)) @definition)"
    ' (#any-of? @part "$defs" "definitions"))',
)
_CLIKE = (
    "translation_unit compound_statement declaration_list field_declaration_list enumerator_list case_statement"
    " preproc_if preproc_ifdef preproc_else",
    "function_definition",
    "preproc_include",
    "string_literal char_literal system_lib_string",
    "argument_list parameter_list initializer_list",
)


def _script_syntax(grammar: str, function: str = "language") -> Syntax:
    """JavaScript's; TypeScript's grammar has more kinds."""
    typed = grammar == "typescript"
    blocks = "program statement_block class_body switch_case switch_default"
    types = " interface_declaration type_alias_declaration enum_declaration abstract_class_declaration"
    return syntax(
        grammar,
        blocks + " interface_body object_type enum_body" * typed,
        "function_declaration function_expression generator_function_declaration method_definition arrow_function",
        "import_statement",
        "string template_string",
        "arguments formal_parameters array object named_imports export_clause",
        types="class_declaration" + types * typed,
        definitions="function_declaration generator_function_declaration method_definition",
        values=_EXPORTED,
        wrappers="export_statement",
        function=function,
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
        interpolations=(("`", r"\$\{"),),
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
    raw_strings: tuple[tuple[str, str], ...] = (),
    interpolations: tuple[tuple[str, str], ...] = (),
    heredocs: str = "",
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
        raw_strings=raw_strings,
        interpolations=interpolations,
        heredocs=heredocs,
        terminated=terminated,
        directives=directives,
        heads=_HEADS,
        joints=_JOINTS,
        syntax=syntax,
    )


PLAIN_TEXT = Language("plaintext", ("txt",), line_comments=(), prose=True, lone_closers=True)

LANGUAGES = (
    Language(
        "python",
        ("py", "pyi", "pyw"),
        multiline_quotes=('"""', "'''"),
        quotes="\"'",
        syntax=syntax(
            "python",
            "module block",
            "function_definition lambda",
            "import_statement import_from_statement future_import_statement",
            "string",
            "argument_list parameters list tuple set dictionary",
            types="class_definition",
            definitions="function_definition",
            values=("(module (expression_statement (assignment left: (identifier) @name)) @definition)",),
            wrappers="decorated_definition",
        ),
    ),
    _script("javascript", "js", "mjs", "cjs", syntax=_script_syntax("javascript")),
    _script("javascriptreact", "jsx", syntax=_script_syntax("javascript"), markup=True),
    _script("typescript", "ts", "mts", "cts", syntax=_script_syntax("typescript", "language_typescript")),
    _script("typescriptreact", "tsx", syntax=_script_syntax("typescript", "language_tsx"), markup=True),
    _slashes(
        "go",
        "go",
        multiline_quotes=("`",),
        raw_quotes="`",
        syntax=syntax(
            "go",
            "source_file block statement_list import_spec_list field_declaration_list interface_type",
            "function_declaration method_declaration func_literal",
            "import_declaration package_clause",
            "interpreted_string_literal raw_string_literal rune_literal",
            "argument_list parameter_list literal_value",
            types="type_spec",
            definitions="function_declaration method_declaration type_alias",
        ),
    ),
    _slashes(
        "rust",
        "rs",
        terminated=True,
        literals="b?" + _CHARACTER,
        raw_strings=((r'\b[bc]?r(#*)"', '"{}'),),
        syntax=syntax(
            "rust",
            "source_file block declaration_list field_declaration_list enum_variant_list match_block",
            "function_item closure_expression",
            "use_declaration extern_crate_declaration",
            "string_literal raw_string_literal char_literal",
            "arguments parameters array_expression tuple_expression field_initializer_list use_list",
            comments="line_comment block_comment",
            statements="_statement _declaration _definition _item macro_invocation field_declaration enum_variant",
            types="struct_item enum_item union_item trait_item",
            definitions="function_item function_signature_item type_item const_item static_item macro_definition"
            " mod_item",
        ),
    ),
    _slashes(
        "java",
        "java",
        terminated=True,
        multiline_quotes=('"""',),
        syntax=syntax(
            "java",
            "program block class_body interface_body enum_body_declarations constructor_body"
            " switch_block_statement_group annotation_type_body",
            "method_declaration constructor_declaration lambda_expression",
            "import_declaration package_declaration",
            "string_literal character_literal",
            "argument_list formal_parameters array_initializer annotation_argument_list",
            comments="line_comment block_comment",
            types="class_declaration interface_declaration enum_declaration record_declaration",
            definitions="method_declaration constructor_declaration annotation_type_declaration",
        ),
    ),
    _slashes(
        "c",
        "c",
        "h",
        terminated=True,
        directives=True,
        syntax=syntax(
            "c",
            *_CLIKE,
            types="struct_specifier enum_specifier union_specifier type_definition",
            definitions="function_definition declaration preproc_function_def",
            values=_DEFINES,
        ),
    ),
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
        literals=r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])|" + _CHARACTER,
        raw_strings=((r'(?:u8|[uUL])?\bR"([^\s()\\"]{0,16})\(', '){}"'),),
        syntax=syntax(
            "cpp",
            _CLIKE[0],
            "function_definition lambda_expression",
            _CLIKE[2] + " using_declaration",
            "string_literal raw_string_literal char_literal system_lib_string",
            _CLIKE[4] + " template_argument_list field_initializer_list",
            types="struct_specifier enum_specifier union_specifier class_specifier",
            definitions="function_definition declaration type_definition field_declaration alias_declaration"
            " preproc_function_def",
            values=_DEFINES,
            wrappers="template_declaration",
        ),
    ),
    _slashes(
        "csharp",
        "cs",
        terminated=True,
        directives=True,
        multiline_quotes=('"""',),
        syntax=syntax(
            "c_sharp",
            "compilation_unit block declaration_list enum_member_declaration_list switch_section",
            "method_declaration constructor_declaration local_function_statement lambda_expression",
            "using_directive",
            "string_literal verbatim_string_literal raw_string_literal character_literal"
            " interpolated_string_expression",
            "argument_list parameter_list initializer_expression",
            types="class_declaration interface_declaration struct_declaration enum_declaration",
            definitions="record_declaration method_declaration constructor_declaration delegate_declaration"
            " property_declaration",
        ),
    ),
    _slashes(
        "kotlin",
        "kt",
        "kts",
        multiline_quotes=('"""',),
        interpolations=_DOLLAR_BRACES,
        syntax=syntax(
            "kotlin",
            "source_file block class_body enum_class_body lambda_literal",
            "function_declaration anonymous_function secondary_constructor lambda_literal",
            "import package_header",
            "string_literal multiline_string_literal character_literal",
            "value_arguments function_value_parameters class_parameters",
            comments="line_comment block_comment",
            types="class_declaration object_declaration",
            definitions="function_declaration",
            bodies="class_body enum_class_body function_body",
        ),
    ),
    _slashes(
        "swift",
        "swift",
        raw_strings=((r'(?<!#)(#+)"(?:"")?', '"{}'),),
        multiline_quotes=('"""',),
        interpolations=(('"', r"\\\("), ('"""', r"\\\(")),
        syntax=syntax(
            "swift",
            "source_file statements class_body enum_class_body protocol_body",
            "function_declaration init_declaration lambda_literal",
            "import_declaration",
            "line_string_literal multi_line_string_literal raw_string_literal",
            "value_arguments array_literal dictionary_literal",
            comments="comment multiline_comment",
            types="class_declaration protocol_declaration",
            definitions="function_declaration protocol_function_declaration",
        ),
    ),
    _slashes(
        "scala",
        "scala",
        "sc",
        multiline_quotes=('"""',),
        interpolations=_DOLLAR_BRACES,
        syntax=syntax(
            "scala",
            "compilation_unit block indented_block template_body case_block enum_body",
            "function_definition lambda_expression",
            "import_declaration package_clause",
            "string interpolated_string_expression interpolated_string character_literal",
            "arguments parameters class_parameters",
            comments="comment block_comment",
            types="class_definition object_definition trait_definition enum_definition",
            definitions="function_definition function_declaration",
        ),
    ),
    _slashes(
        "php",
        "php",
        terminated=True,
        hashes=True,
        quotes="\"'`",
        literals="",
        heredocs=r"<<<[ \t]*[\"']?(?P<mark>[A-Za-z_]\w*)[\"']?",
        syntax=syntax(
            "php",
            "program compound_statement declaration_list enum_declaration_list switch_block",
            "function_definition method_declaration anonymous_function arrow_function",
            "namespace_use_declaration namespace_definition",
            "string encapsed_string heredoc nowdoc nowdoc_string",
            "arguments formal_parameters array_creation_expression",
            function="language_php",
            types="class_declaration interface_declaration trait_declaration enum_declaration",
            definitions="function_definition method_declaration",
        ),
    ),
    _slashes(
        "jsonc",
        "jsonc",
        literals="",
        syntax=syntax("json", "document object", "", "", "string", "object array", statements="pair", values=_SCHEMAS),
    ),
    Language(
        "json",
        ("json",),
        ("//", ""),
        (),
        quotes='"',
        syntax=syntax("json", "document object", "", "", "string", "object array", statements="pair", values=_SCHEMAS),
    ),
    Language(
        "css",
        ("css",),
        ("/*", "*/"),
        (),
        ("/*", "*/"),
        quotes="\"'",
        syntax=syntax(
            "css",
            "stylesheet block keyframe_block_list",
            "",
            "import_statement",
            "string_value",
            "arguments",
            statements="_statement declaration rule_set at_rule",
            values=_STYLES,
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
        lone_closers=True,
        syntax=syntax("html", "document element", "", "", "quoted_attribute_value", "", statements="element"),
    ),
    Language(
        "sql",
        ("sql",),
        ("--", ""),
        ("--",),
        ("/*", "*/"),
        quotes="\"'`",
        ending=frozenset({"end", "END"}),
        syntax=syntax(
            "sql",
            "program block",
            "function_declaration create_function",
            "",
            "literal",
            "column_definitions list select_expression",
            comments="comment marginalia",
            statements="statement",
            types="create_table create_type",
            definitions="create_view create_materialized_view create_function",
        ),
    ),
    Language(
        "lua",
        ("lua",),
        ("--", ""),
        ("--",),
        ("--[[", "]]"),
        raw_strings=((r"(?:--)?\[(=*)\[", "]{}]"),),
        quotes="\"'",
        continuing=frozenset({"else", "elseif"}),
        ending=frozenset({"end", "until"}),
        word_blocks=((r"\b(?:function|if|do)\b", "end"),),
        syntax=syntax(
            "lua",
            "chunk block",
            "function_declaration function_definition",
            "",
            "string",
            "arguments parameters table_constructor",
            definitions="function_declaration",
        ),
    ),
    Language(
        "ruby",
        ("rb",),
        file_names=("Gemfile", "Rakefile"),
        interpolations=(('"', r"#\{"), ("`", r"#\{")),
        heredocs=r"(?<![\w)\]])<<(?:[~-]|(?=[\"'`]?[A-Z]))[\"'`]?(?P<mark>[A-Za-z_]\w*)[\"'`]?",
        continuing=frozenset({"else", "elsif", "when", "in", "rescue", "ensure"}),
        ending=frozenset({"end"}),
        word_blocks=((_RUBY_BLOCK, "end"),),
        syntax=syntax(
            "ruby",
            "program body_statement block_body then else do",
            "method singleton_method lambda",
            "",
            "string string_array symbol_array heredoc_body",
            "argument_list method_parameters array hash",
            statements="call assignment method class module if unless while until for case return",
            types="class module",
            definitions="method singleton_method",
        ),
    ),
    Language(
        "shellscript",
        ("sh", "bash", "zsh"),
        interpolations=(('"', r"\$[({]"),),
        heredocs=r"(?<![<\w])<<-?(?:[ \t]+(?=[\"'\\]?[A-Z]{2}))?[\"'\\]?(?P<mark>[A-Za-z_]\w*)[\"']?",
        continuing=frozenset({"else", "elif", "do", "then"}),
        ending=frozenset({"fi", "done", "esac"}),
        lone_closers=True,
        word_blocks=((rf"{_COMMAND}if\b", "fi"), (rf"{_COMMAND}do\b", "done"), (rf"{_COMMAND}case\b", "esac")),
        syntax=syntax(
            "bash",
            "program compound_statement do_group else_clause",
            "function_definition",
            "",
            "string raw_string ansi_c_string heredoc_body",
            "array",
            statements="_statement command pipeline list variable_assignment",
            definitions="function_definition",
        ),
    ),
    Language(
        "yaml",
        ("yaml", "yml"),
        quotes="\"'",
        lone_closers=True,
        syntax=syntax(
            "yaml",
            "stream document block_mapping block_sequence",
            "",
            "",
            "double_quote_scalar single_quote_scalar block_scalar",
            "flow_mapping flow_sequence",
            statements="block_mapping_pair block_sequence_item",
            values=("(block_mapping_pair value: (block_node (anchor (anchor_name) @name))) @definition",),
        ),
    ),
    Language("toml", ("toml",), multiline_quotes=('"""', "'''")),
    Language(
        "makefile",
        ("mk",),
        lone_closers=True,
        file_names=("Makefile", "GNUmakefile"),
        ending=frozenset({"endif", "endef"}),
    ),
    Language("dockerfile", ("dockerfile",), lone_closers=True, file_names=("Dockerfile",)),
    Language(
        "markdown",
        ("md", "markdown"),
        ("<!--", "-->"),
        (),
        prose=True,
        lone_closers=True,
        syntax=syntax(
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
    lone_closers=True,
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
