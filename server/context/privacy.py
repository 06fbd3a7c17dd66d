"""The one place that decides whether a file, or a piece of one, may enter a prompt, and says why not.

Files: excluded by the user, secret by name, ignored (`.gitignore`, `.ignore`, `.dflashignore`), outside the
workspace, too large, binary, generated, minified. Pieces: a text with a secret in it never leaves its file, and where
that file is completed itself its secrets are masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from server.context.languages import language_for

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ignore", ".dflashignore")  # the later ones win
LARGEST_FILE = 1_000_000  # bytes of a file that may lend text to a prompt
LONGEST_MEAN_LINE = 250  # characters; what has longer lines was not written by hand
HEAD = 1_000  # characters in which a file says that it was generated
MOST_IGNORE_LINES = 5_000
MOST_SEARCHED = 16  # texts around cursors whose secrets are remembered
SHORT_WORD = 6  # characters; shorter quoted words are hardly secrets

# Names (in lower case) of files that hold secrets, whatever their folder.
_SECRET_NAMES = tuple(
    """
    .env .env.* *.env .envrc .netrc _netrc .pgpass .htpasswd .pypirc .npmrc .git-credentials .dockercfg .s3cfg .boto
    *.pem *.key *.p8 *.p12 *.pfx *.pkcs12 *.jks *.keystore *.kdbx *.crt *.cer *.der *.asc *.gpg *.ppk *.age *.ovpn
    id_rsa* id_dsa* id_ecdsa* id_ed25519* known_hosts authorized_keys shadow kubeconfig .vault-token *.mobileprovision
    credentials credentials.* *credentials.json service-account*.json serviceaccount*.json
    secrets secrets.* *.secret *.secrets *secret*.json *secret*.y*ml token token.* *.token
    *.tfstate *.tfstate.* *.tfvars
    """.split()  # noqa: SIM905 - one a line would fill a page
)
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".password-store", ".secrets"})
# Examples of secret files are made to be read.
_EXAMPLES = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")
# What editors and people add to the name of a file that they keep a copy of.
_COPY = re.compile(
    r"(?:~|#|[.~](?:bak|backup|old|orig|saved?|sw[a-p]|tmp|copy|disabled|\d+)|[ _-](?:copy|old|backup)| ?\(\d+\))+$"
)
_NEVER_FOLDERS = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})
_GENERATED_NAMES = ("*.min.js", "*.min.css", "*.lock", "package-lock.json", "*_pb2.py", "*_pb2_grpc.py", "*.pb.go",
                    "*.map", "*.designer.cs", "*.g.dart", "*.freezed.dart", "go.sum", "*.snap")  # fmt: skip
_GENERATED = re.compile(
    r"@generated\b|\b(?:auto[- ]?|automatically |code |file is )generated\b"
    r"|\bgenerated (?:by|from|file|code)\b|\bdo not (?:edit|modify)\b",
    re.IGNORECASE,
)

# A secret inside a text, by the forms that services give their keys, and by what the name before it says.
_SECRET_TEXT = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY(?:\ BLOCK)?-----
    | \bAGE-SECRET-KEY-1[0-9A-Z]{30,}
    | \b(?:AKIA|ASIA|AGPA|AROA)[0-9A-Z]{16}\b                     # AWS
    | \bgh[pousr]_[A-Za-z0-9]{30,} | \bgithub_pat_[A-Za-z0-9_]{30,}
    | \bglpat-[A-Za-z0-9_-]{18,}
    | \b(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,} | hooks\.slack\.com/services/T\w+/B\w+/\w{16,}
    | \b(?:dckr_pat_|dop_v1_|shp(?:at|ca|pa|ss)_|gsk_|whsec_)[A-Za-z0-9_-]{20,} | \bhvs\.[A-Za-z0-9_-]{20,}
    | \bsk-(?:ant-|proj-|live-)?[A-Za-z0-9_-]{20,} | \b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}
    | \bAIza[0-9A-Za-z_-]{30,} | \bya29\.[0-9A-Za-z_-]{20,}        # Google
    | \bhf_[A-Za-z0-9]{30,} | \bnpm_[A-Za-z0-9]{30,} | \bpypi-[A-Za-z0-9_-]{30,}
    | \bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}                 # SendGrid
    | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}  # JSON web token
    | \b[a-z][a-z0-9+.-]*://[^\s:/@'"]+:[^\s@/'"{}$<]{3,}@             # a password in an address
    | (?i:authorization["']?\s*[:=]\s*["']?(?:basic|bearer)\s+[a-z0-9._~+/=-]{12,})
    """,
    re.VERBOSE,
)
_SECRET_VALUE = re.compile(
    r"""(?ix)
    (?P<name>passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?token|access[_-]?token
       |account[_-]?key|(?<=_)pass(?![a-z_])|pwd|refresh[_-]?token|client[_-]?secret|encryption[_-]?key|signing[_-]?key|token|credential)s?
    [\w.-]{0,40}["']?\]?\s{0,40}(?::\s{0,40}\w{1,40}\s{0,40})?(?:=>|:=|[:=])\s{0,40}
    (?:(?P<quote>["'`])(?P<quoted>[^"'`\n]{4,100})(?P=quote) | (?P<bare>[^\s"'`,;]{8,}))
    """
)
# What stands for a secret rather than being one: a call, a name, a placeholder.
_PLACEHOLDER = re.compile(r"[{}<>$%*]|^(?:example|changeme|your|xxx|placeholder|dummy|password)", re.IGNORECASE)
# A password may hold any sign.
_NO_PASSWORD = re.compile(
    r"\$[{(]|^\$\w+$|\{\w*\}|\{\{|<[\w -]+>|%\(|^%\w*%?$|^(.)\1*$"
    r"|^(?:example|changeme|your|xxx|placeholder|dummy|password)",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(rf"{_PLACEHOLDER.pattern}|[()\[\]\s]|^[a-z_][a-z_.]*$", re.IGNORECASE)
_TEMPLATE = re.compile(r"\s|\$\{|\$\(|\{\{|%\(|<[\w -]+>|\{\w*\}|^[\w.]+\(.*\)$|://")
# Without one of these (in lower case) a text need not be searched: there is a great deal of text.
_HINTS = tuple(
    """
    -----begin akia asia agpa aroa ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox xapp- sk- k_live_ k_test_ aiza ya29.
    hf_ npm_ pypi- sg. eyj dckr_pat_ dop_v1_ shpat_ shpca_ shppa_ shpss_ gsk_ whsec_ hvs. hooks.slack :// authorization
    _pass pwd passw passphrase secret key token credential
    """.split()  # noqa: SIM905 - as above
)
# A private key, of which the window may show the beginning or the end alone.
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?P<key>.*?)(?:-----END|\Z)"
    r"|\A(?P<rest>(?:[^-\n]*\n)*?)[^-\n]*-----END [A-Z ]*PRIVATE KEY",
    re.DOTALL,
)
_SHOWN = re.compile(r"[^\s\\\"']")
_LETTER, _SIGN = re.compile(r"[A-Za-z]"), re.compile(r"[^\w\s.:/-]")
_CHARACTER_CLASSES = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"), re.compile(r"[^A-Za-z0-9]"))


_searched: tuple[tuple[str, frozenset[tuple[int, int]]], ...] = ()  # texts, the latest last, with their secrets


@dataclass(frozen=True)
class Verdict:
    """Whether something may enter a prompt; `reason` says why not, in a few words, and is "" when it may."""

    allowed: bool
    reason: str = ""


ALLOWED = Verdict(True)


@dataclass
class Privacy:
    """Decides for one window's workspace folders.

    exclude: the user's globs of paths, by posix path in the workspace or file name; `*` matches `/` as well.
    exclude_by_language: more globs, that only count for files of a language.
    """

    folders: Sequence[Path] = ()
    exclude: Sequence[str] = ()
    exclude_by_language: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _specs: dict[Path, tuple[tuple[float, ...], GitIgnoreSpec | None]] = field(default_factory=dict, repr=False)
    _ways: dict[Path, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def may_be_completed(self, path: str | os.PathLike[str], language: str = "") -> Verdict:
        """Whether a document may be completed at all, which puts its own text into a prompt.

        An ignored file may: its author is at work on it. `path` is absolute, or in the workspace.
        """
        return self._by_name(PurePosixPath(Path(path).as_posix()), language)

    def may_be_context(self, path: Path) -> Verdict:
        """Whether a file may lend text to the prompts of others, by all that its path and folders say."""
        verdict = self._by_name(PurePosixPath(path.as_posix()), "")
        if not verdict.allowed:
            return verdict
        folder = self._folder_of(path)
        if folder is None:
            return Verdict(False, "outside the workspace")
        inner = path.relative_to(folder)
        if not _NEVER_FOLDERS.isdisjoint(inner.parts[:-1]):
            return Verdict(False, f"in {next(part for part in inner.parts if part in _NEVER_FOLDERS)}")
        if _matches(path.name.lower(), _GENERATED_NAMES):
            return Verdict(False, "generated file")
        return self._by_ignore_files(folder, inner.parts)

    def may_enter(self, folder: Path, directory: Path) -> bool:
        """Whether a directory is worth walking into: what is in it is not excluded as a whole."""
        if directory.name in _NEVER_FOLDERS or directory.name in _SECRET_FOLDERS:
            return False
        return self._by_ignore_files(folder, (*directory.relative_to(folder).parts, "")).allowed

    def read(self, path: Path) -> tuple[str, Verdict]:
        """The text of a file that may lend text, and ALLOWED; or "" and why it may not, which never raises."""
        verdict = self.may_be_context(path)
        if not verdict.allowed:
            return "", verdict
        try:
            if path.stat().st_size > LARGEST_FILE:
                return "", Verdict(False, "too large")
            real = path.resolve()
            if self._folder_of(real) is None:
                return "", Verdict(False, "a link out of the workspace")
            if real != path and not (verdict := self.may_be_context(real)).allowed:
                return "", verdict  # a link is what it points to
            data = path.read_bytes()
        except OSError as error:
            return "", Verdict(False, (error.strerror or "cannot be read").lower())
        if b"\0" in data:
            return "", Verdict(False, "binary file")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return "", Verdict(False, "not UTF-8 text")
        verdict = text_verdict(text)
        return (text if verdict.allowed else ""), verdict

    def _by_name(self, path: PurePosixPath, language: str) -> Verdict:
        if _is_secret(path.name.lower()) or not _SECRET_FOLDERS.isdisjoint(path.parts[:-1]):
            return Verdict(False, "secret file")
        language = language or language_for("", path.name).name
        globs = [*self.exclude, *self.exclude_by_language.get(language, ())]
        if globs and any(_matches(text, globs) for text in self._names(path)):
            return Verdict(False, "excluded")
        return ALLOWED

    def _names(self, path: PurePosixPath) -> list[str]:
        names = [path.as_posix(), path.name]
        folder = self._folder_of(Path(path))
        if folder is not None:
            names.append(Path(path).relative_to(folder).as_posix())
        return names

    def _folder_of(self, path: Path) -> Path | None:
        inside = [folder for folder in self.folders if path.is_relative_to(folder)]
        return max(inside, key=lambda folder: len(folder.parts), default=None)

    def _by_ignore_files(self, folder: Path, parts: Sequence[str]) -> Verdict:
        """Whether ignore files in the folder, above it in its repository, and below exclude the path or its directory.

        That the folder itself is ignored does not count: the user has opened it.
        """
        above = self._above(folder)
        folder, parts = folder.parents[len(above) - 1] if above else folder, [*above, *parts]
        for depth in range(len(above) + 1, len(parts) + 1):
            name = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
            if depth == len(parts) and not parts[-1]:
                break  # a directory was asked for
            for level in range(depth - 1, -1, -1):
                spec = self._spec(folder.joinpath(*parts[:level]))
                if spec is None:
                    continue
                if level < len(above) and spec.check_file("/".join(parts[level : len(above)]) + "/").include:
                    continue
                inner = "/".join(parts[level:depth]) + ("/" if name.endswith("/") else "")
                decided = spec.check_file(inner).include
                if decided:
                    return Verdict(False, "ignored")
                if decided is False:
                    break
        return ALLOWED

    def _above(self, folder: Path) -> tuple[str, ...]:
        """The way from the root of the folder's repository down to it; () when it is the root, or in none."""
        if folder not in self._ways:
            root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
            self._ways[folder] = folder.relative_to(root).parts
        return self._ways[folder]

    def _spec(self, directory: Path) -> GitIgnoreSpec | None:
        """The ignore rules that stand in one directory; read again when one of its files has changed."""
        files = [directory / ".git" / "info" / "exclude", *(directory / name for name in IGNORE_FILES)]
        stamp = tuple(_changed(file) for file in files)
        known = self._specs.get(directory)
        if known is None or known[0] != stamp:
            known = self._specs[directory] = (stamp, _read_spec(files) if any(stamp) else None)
        return known[1]


def text_verdict(text: str) -> Verdict:
    """Whether a text, by itself, may lend to prompts: not when it was generated, minified, or holds a key."""
    if "\0" in text:
        return Verdict(False, "binary file")
    lines = text.count("\n") + 1
    if len(text) > 2_000 and len(text) / lines > LONGEST_MEAN_LINE:
        return Verdict(False, "minified file")
    if _GENERATED.search(text, 0, HEAD):
        return Verdict(False, "generated file")
    if "PRIVATE KEY" in text and _SECRET_TEXT.search(text):
        return Verdict(False, "holds a private key")
    return ALLOWED


def holds_secret(text: str) -> bool:
    """Whether a key, token or password stands in the text. Rather one too many found than one too few."""
    return next(_secrets(text), None) is not None


def masked(text: str) -> str:
    """The text with `x` for each character of a secret, so that all else of it keeps its place."""
    # A key changes the last line; what stands above is mostly that of the request before.
    begin = text.rfind("\n") + 1
    found = set(_secrets_of_text(text[:begin]))
    before = text.rfind("\n", 0, max(0, begin - 1)) + 1
    found.update((before + start, before + end) for start, end in _secrets_of_lines(text[before:]))
    if "PRIVATE KEY" in text:
        found.update(each.span(each.lastgroup or 0) for each in _KEY_BLOCK.finditer(text))
    for start, end in found:
        text = text[:start] + _SHOWN.sub("x", text[start:end]) + text[end:]
    return text


def _secrets_of_text(text: str) -> frozenset[tuple[int, int]]:
    """Where the secrets are in a text of whole lines: only what it has more than a text before is searched."""
    global _searched
    known, found = max(
        (each for each in _searched if text.startswith(each[0])),
        key=lambda each: len(each[0]),
        default=("", frozenset()),
    )
    if len(known) == len(text):
        return found
    new, begin = set(found), len(known)
    before = known[known.rfind("\n", 0, -1) + 1 :]
    for line in text[begin:].splitlines(keepends=True) if _may_hold_secret(before + text[begin:]) else ():
        # A name on the line before may tell what a value is.
        for start, end in _secrets_of_lines(before + line):
            new.add((begin - len(before) + start, begin - len(before) + end))
        before, begin = line, begin + len(line)
    _searched = (*_searched[1 - MOST_SEARCHED :], (text, frozenset(new)))
    return frozenset(new)


@lru_cache(maxsize=4096)
def _secrets_of_lines(text: str) -> tuple[tuple[int, int], ...]:
    return tuple(_secrets(text))


def _may_hold_secret(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in _HINTS)


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where keys, tokens and passwords stand."""
    if not _may_hold_secret(text):
        return
    for found in _SECRET_TEXT.finditer(text):
        yield found.span()
    for found in _SECRET_VALUE.finditer(text):
        quoted, is_password = found["quoted"], found["name"].lower().startswith("pass")
        if found["name"].lower() == "pwd" and (quoted or found["bare"])[0] in "/~.$":
            continue  # a folder
        if quoted is None:
            secret = _is_random(found["bare"]) or (is_password and _has_signs(found["bare"]))
        elif is_password:
            # Quoted text is meant: it is a password unless it is plainly none, though it be a mere word.
            secret = not _NO_PASSWORD.search(quoted) and (len(quoted) >= SHORT_WORD or not quoted.isalpha())
        else:
            secret = len(quoted) >= SHORT_WORD and (not _NO_SECRET.search(quoted) or _is_drawn(quoted))
        if secret:
            yield found.span("bare" if quoted is None else "quoted")


def _is_random(value: str) -> bool:
    """Whether a value looks drawn rather than written: long, of several kinds of characters, digits among them."""
    if _NO_SECRET.search(value):
        return False
    kinds = sum(bool(each.search(value)) for each in _CHARACTER_CLASSES)
    return len(value) >= 12 and kinds >= 2 and any(character.isdigit() for character in value)


def _has_signs(value: str) -> bool:
    """Whether a bare value can hardly be code: letters, digits and a sign that no name, call or template has."""
    code = _NO_PASSWORD.search(value) or re.search(r"[()\[\]]|^[\w.]+$", value)
    return not code and all(each.search(value) for each in (_LETTER, _CHARACTER_CLASSES[2], _SIGN))


def _is_drawn(value: str) -> bool:
    """Whether a quoted value with signs in it was drawn: keys of frameworks hold brackets, dollars and stars."""
    kinds = sum(bool(each.search(value)) for each in _CHARACTER_CLASSES)
    digits = sum(character.isdigit() for character in value)
    return len(value) >= 16 and kinds >= 3 and digits >= 2 and not _TEMPLATE.search(value)


@lru_cache(maxsize=256)
def _is_secret(name: str) -> bool:
    plain = _COPY.sub("", name)
    names = {name, plain, plain.lstrip(".#")}
    secret = any(_matches(each, _SECRET_NAMES) for each in names) and not _is_code(plain)
    return secret and not any(_matches(each, _EXAMPLES) for each in names)


def _is_code(name: str) -> bool:
    """`credentials.py` is a module about credentials; `credentials.json` holds them."""
    language = language_for("", name)
    data = ("", "json", "jsonc", "yaml", "toml", "plaintext", "markdown", "shellscript")
    return language.name not in data


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) or fnmatchcase(name, glob.removeprefix("**/")) for glob in globs)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _read_spec(files: Sequence[Path]) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    lines: list[str] = []
    for file in files:
        try:
            lines += file.read_text(encoding="utf-8-sig", errors="replace").splitlines()[:MOST_IGNORE_LINES]
        except OSError:
            continue
    good = [line for line in lines if _is_pattern(line)]
    return GitIgnoreSpec.from_lines(good) if good else None


def _is_pattern(line: str) -> bool:
    """Whether a line is a rule that can be followed; one that cannot, git ignores as well."""
    from pathspec import GitIgnoreSpec

    if not line.strip() or line.startswith("#"):
        return False
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
