"""Which files of a package are source that a person wrote, and under which path a document shows itself."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

MIN_BYTES = 200
MAX_BYTES = 400_000
MAX_MEAN_LINE = 120
MAX_LINE = 2_000

LANGUAGES: dict[str, str] = {
    ".py": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".mts": "typescript",
    ".tsx": "typescript",
    ".go": "go",
    ".rs": "rust",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".java": "java",
}
# Copies of other packages, and output of generators.
_NOT_OWN = frozenset((
    "vendor", "vendored", "_vendor", "_vendored", "third_party", "thirdparty", "third-party",
    "3rdparty", "extern", "externals", "node_modules", "bower_components", "generated", "__generated__",
    "debian", "baselines", "fixtures", "testdata",
))  # fmt: skip
# Output of build steps, where the language has any.
_BUILT = frozenset(("dist", "build", "bundle", "bundles", "bundled", "out", "umd", "min", "deps", "coverage"))
_NOT_OWN_NAME = re.compile(
    r"(\.d\.[mc]?ts|[.-](min|bundle|bundled|prod|production)\.[mc]?js|_pb2(_grpc)?\.py|\.pb\.go|\.pb\.(h|cc)"
    r"|_generated\.\w+|\.generated\.\w+)$"
    r"|(^|/)zz_generated",
    re.IGNORECASE,
)
_GENERATED = re.compile(
    r"@generated|auto-?generated|automatically (generated|created)|generated (by|from|with|code|file)"
    r"|do not (edit|modify)|don't edit|code generator",
    re.IGNORECASE,
)
# TypeScript and Babel write it at the top of the modules that they translate.
_TRANSLATED = "__esModule"
_COPYLEFT = re.compile(r"GNU\s+(\w+\s+)?General\s+Public|SPDX-License-Identifier:\s*[AL]?GPL|Mozilla\s+Public")
# The top of a distribution's own file tree, which is not the project's.
_PREFIX = re.compile(
    r"^(\./)?(package/|usr/share/gocode/src/|usr/share/cargo/registry/[^/]+/|usr/src/rustc-[^/]+/"
    r"|usr/share/go-[^/]+/src/|usr/src/[^/]+/)"
)
# One module is often shipped in several builds: the earliest of these folders is what its authors wrote.
_BUILDS = ("src", "source", "", "lib", "es", "esm", "esnext", "modern", "mjs", "es6", "es5", "cjs", "commonjs",
           "_cjs", "_esm", "legacy")  # fmt: skip


@dataclass(frozen=True)
class Document:
    """One source file. path: as its project shows it; digest: of its text without white space."""

    path: str
    language: str
    text: str
    digest: bytes


def language_of(path: str) -> str | None:
    """Language by the file's ending, None for what the corpus does not hold."""
    dot = path.rfind(".")
    return LANGUAGES.get(path[dot:].lower()) if dot > 0 else None


def may_be_source(path: str, size: int) -> bool:
    """Whether path and size (bytes) allow the file; its text is judged by `read_document`."""
    if not MIN_BYTES <= size <= MAX_BYTES or language_of(path) is None or _NOT_OWN_NAME.search(path):
        return False
    folders = _PREFIX.sub("", path).lower().split("/")[:-1]
    refused = _NOT_OWN | _BUILT if language_of(path) in ("javascript", "typescript") else _NOT_OWN
    return not any(folder in refused or folder.startswith(".") for folder in folders)


def shown_path(path: str, *, has_top: bool) -> str:
    """Path inside the project. has_top: the archive puts everything into one folder of its own name."""
    shown = _PREFIX.sub("", path)
    if shown == path and has_top and "/" in path:
        shown = path.split("/", 1)[1]
    return shown


def read_document(path: str, data: bytes) -> Document | None:
    """The file as a document, or None for what nobody would complete: binary, minified, generated, data."""
    language = language_of(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if language is None or "\0" in text or len(text) > MAX_MEAN_LINE * len(lines):
        return None
    if max(map(len, lines)) > MAX_LINE or sum(map(str.isalpha, text)) < 0.3 * len(text):
        return None
    head = text[:1500]
    if _GENERATED.search(head) or _COPYLEFT.search(text[:3000]):
        return None
    if language == "javascript" and _TRANSLATED in head:
        return None
    digest = hashlib.blake2b("".join(text.split()).encode(), digest_size=16).digest()
    return Document(path, language, text, digest)


def one_build(paths: list[str]) -> list[str]:
    """Of JavaScript and TypeScript modules shipped in several builds keep the most original; others as they are."""
    best: dict[str, tuple[int, str]] = {}
    kept = []
    for path in paths:
        if language_of(path) not in ("javascript", "typescript"):
            kept.append(path)
            continue
        parts = path.rsplit(".", 1)[0].split("/")
        builds = [part for part in parts[:2] if part in _BUILDS]
        module = "/".join([*(part for part in parts[:2] if part not in _BUILDS), *parts[2:]])
        rank = max((_BUILDS.index(build) for build in builds), default=_BUILDS.index(""))
        if module not in best or rank < best[module][0]:
            best[module] = (rank, path)
    return kept + [path for _, path in best.values()]
