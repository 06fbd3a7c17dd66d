"""What the server knows of each language: its files, its comment signs, how its strings and blocks look."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class Language:
    """One language. `name` is its LSP language id; `extensions` and `file_names` find it for a file.

    comment: the signs around a one-line comment, the second "" where the line's end closes it.
    line_comments, block_comment, multiline_quotes: what hides brackets from the bracket scanner.
    prose: text in paragraphs, where a blank line is the only boundary.
    """

    name: str
    extensions: tuple[str, ...] = ()
    comment: tuple[str, str] = ("#", "")
    line_comments: tuple[str, ...] = ("#",)
    block_comment: tuple[str, str] | None = None
    multiline_quotes: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()
    prose: bool = False


def _slashes(name: str, *extensions: str, multiline_quotes: tuple[str, ...] = (), hashes: bool = False) -> Language:
    return Language(
        name,
        extensions,
        ("//", ""),
        ("//", "#") if hashes else ("//",),
        ("/*", "*/"),
        multiline_quotes,
    )


PLAIN_TEXT = Language("plaintext", ("txt",), line_comments=(), prose=True)

LANGUAGES = (
    Language("python", ("py", "pyi", "pyw"), multiline_quotes=('"""', "'''")),
    _slashes("javascript", "js", "mjs", "cjs", multiline_quotes=("`",)),
    _slashes("javascriptreact", "jsx", multiline_quotes=("`",)),
    _slashes("typescript", "ts", "mts", "cts", multiline_quotes=("`",)),
    _slashes("typescriptreact", "tsx", multiline_quotes=("`",)),
    _slashes("go", "go", multiline_quotes=("`",)),
    _slashes("rust", "rs"),
    _slashes("java", "java", multiline_quotes=('"""',)),
    _slashes("c", "c", "h"),
    _slashes("cpp", "cpp", "cc", "cxx", "hpp", "hh", "hxx"),
    _slashes("csharp", "cs", multiline_quotes=('"""',)),
    _slashes("kotlin", "kt", "kts", multiline_quotes=('"""',)),
    _slashes("swift", "swift", multiline_quotes=('"""',)),
    _slashes("scala", "scala", "sc", multiline_quotes=('"""',)),
    _slashes("php", "php", hashes=True),
    _slashes("jsonc", "jsonc"),
    Language("json", ("json",), ("//", ""), ()),
    Language("css", ("css",), ("/*", "*/"), (), ("/*", "*/")),
    Language("scss", ("scss",), ("//", ""), ("//",), ("/*", "*/")),
    Language("html", ("html", "htm"), ("<!--", "-->"), (), ("<!--", "-->")),
    Language("sql", ("sql",), ("--", ""), ("--",), ("/*", "*/")),
    Language("lua", ("lua",), ("--", ""), ("--",), ("--[[", "]]")),
    Language("ruby", ("rb",), file_names=("Gemfile", "Rakefile")),
    Language("shellscript", ("sh", "bash", "zsh")),
    Language("yaml", ("yaml", "yml")),
    Language("toml", ("toml",), multiline_quotes=('"""', "'''")),
    Language("makefile", ("mk",), file_names=("Makefile", "GNUmakefile")),
    Language("dockerfile", ("dockerfile",), file_names=("Dockerfile",)),
    Language("markdown", ("md", "markdown"), ("<!--", "-->"), (), prose=True),
    PLAIN_TEXT,
)

_BY_NAME = {language.name: language for language in LANGUAGES}
_BY_EXTENSION = {extension: language for language in LANGUAGES for extension in language.extensions}
_BY_FILE_NAME = {name: language for language in LANGUAGES for name in language.file_names}
# A language we do not know is more likely code than prose: brackets and indentation still tell.
_UNKNOWN = Language("", comment=("#", ""), line_comments=("//", "#"), block_comment=("/*", "*/"))


def language_for(name: str, path: str = "") -> Language:
    """The language of an LSP language id, else of a file's name, else one without a name of its own."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    file = PurePath(path)
    found = _BY_FILE_NAME.get(file.name) or _BY_EXTENSION.get(file.suffix[1:].lower())
    return found or _UNKNOWN
