"""Reads a profile file into typed settings; everything is validated here, where it enters."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, get_args
from urllib.parse import urlsplit

from server import paths
from server.errors import DflashError
from server.profiles.settings import (
    Dtype,
    EngineKind,
    EngineSettings,
    ModelSource,
    Profile,
    PromptFormat,
    PromptSettings,
    RemoteApi,
    RemoteDialect,
    TextSettings,
)

SHIPPED = Path(__file__).resolve().parent
DEFAULT_PROFILE = "embedded"
# The marker ids without which a format cannot be written.
FORMAT_MARKERS = {
    "plain": (),
    "suffix-prefix-middle": ("suffix", "prefix", "middle"),
    "prefix-suffix-middle": ("prefix", "suffix", "middle"),
    "repository": ("file_sep",),
    "chat": ("turn_start", "turn_end"),
}
DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")
ADDRESS = re.compile(r"https?://[^/\s]+\S*|unix:/\S+")
PROXY = re.compile(r"https?://[^/\s]+/?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_GPUS = 64
LARGEST_ID = 2**31 - 1
SHARED_MAX_TOKENS = 64  # a request of a shared engine: so much at most runs on after a disconnect it has missed
REMOTE_ONLY = ("dialect", "api", "model", "token_file", "token_env", "proxy", "fall_back")


class ProfileError(DflashError):
    """A profile that cannot be found, read or believed; the text names the file and the key."""


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def own_profiles() -> list[str]:
    """Names of the user's own profiles."""
    return sorted(file.stem for file in _own_dir().glob("*.toml"))


def load_profile(name_or_path: str) -> Profile:
    """Load a profile by its name or by the path of a .toml file.

    A profile of the user's own replaces a shipped one of the same name. Raises ProfileError.
    """
    file = _find(name_or_path)
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"profile {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"profile {file} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"profile {file} is not valid TOML: {error}") from error
    return _profile(file, _with_base(file, data))


def _with_base(file: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The profile's data over those of the shipped remote profile that it `extends`, table by table."""
    base = data.pop("extends", None)
    if base is None:
        return data
    shipped = SHIPPED / f"{base}.toml"
    known = [name for name in shipped_profiles() if _is_remote(SHIPPED / f"{name}.toml")]
    if base not in known:
        raise ProfileError(f"profile {file}: extends must name a shipped remote profile, one of {', '.join(known)}")
    merged = tomllib.loads(shipped.read_text(encoding="utf-8"))
    for key, value in data.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both_tables else value
    return merged


def _is_remote(file: Path) -> bool:
    return bool(tomllib.loads(file.read_text(encoding="utf-8")).get("engine", {}).get("kind") == "remote")


def _own_dir() -> Path:
    return paths.config_dir() / "profiles"


def _find(name_or_path: str) -> Path:
    if name_or_path.endswith(".toml"):
        file = Path(name_or_path).expanduser()
        if not file.is_file():
            raise ProfileError(f"profile {name_or_path} does not exist")
        return file.resolve()
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name_or_path):
        for directory in (_own_dir(), SHIPPED):
            file = directory / f"{name_or_path}.toml"
            if file.is_file():
                return file.resolve()
    known = ", ".join(sorted({*shipped_profiles(), *own_profiles()}))
    raise ProfileError(f"no profile is named {name_or_path!r}; known are {known}, or give the path of a .toml file")


def _profile(file: Path, data: dict[str, Any]) -> Profile:
    top = _Table(file, "", data)
    engine = _engine(top.table("engine") or _Table(file, "engine", {}))
    target_table, draft_table, prompt_table = top.table("target"), top.table("draft"), top.table("prompt")
    text_table = top.table("text")
    top.end()
    if engine.kind != "resident":
        for table in (target_table, draft_table):
            if table:
                table.fail(None, f"does not belong to kind = {engine.kind!r}: that engine has its own")
    if engine.kind == "replay" and prompt_table:
        prompt_table.fail(None, "does not belong to kind = 'replay': it is sent plain text")
    if text_table and engine.kind != "remote":
        text_table.fail(None, "belongs to kind = 'remote' only")
    if text_table and prompt_table:
        text_table.fail(None, "does not go with [prompt]: an engine is sent text or token ids")
    if engine.kind == "remote" and not prompt_table and not text_table:
        text_table = _Table(file, "text", {})
    if prompt_table and engine.kind == "remote" and engine.api == "chat":
        prompt_table.fail(None, "does not go with api = 'chat', which takes no token ids")
    if engine.kind == "resident" and not target_table:
        top.fail("target", "is missing: kind = 'resident' needs one")
    if engine.kind == "resident" and not prompt_table:
        top.fail("prompt", "is missing: kind = 'resident' needs one")
    return Profile(
        name=file.stem,
        file=file,
        engine=engine,
        target=_target(target_table) if target_table else None,
        draft=_draft(draft_table) if draft_table else None,
        prompt=_prompt(prompt_table, engine) if prompt_table else None,
        text=_text(text_table, engine.context) if text_table else None,
    )


def _engine(table: _Table) -> EngineSettings:
    kind: EngineKind = table.choice("kind", get_args(EngineKind), "resident")
    dtype: Dtype = table.choice("dtype", get_args(Dtype), "auto")
    dialect: RemoteDialect = table.choice("dialect", get_args(RemoteDialect), "openai")
    api: RemoteApi = table.choice("api", get_args(RemoteApi), "auto")
    settings = EngineSettings(
        kind=kind,
        address=table.address("address"),
        token_file=table.path("token_file"),
        threads=table.integer("threads", 1, 1024),
        dtype=dtype,
        device=table.text("device", DEVICE, "auto, cpu, mps, cuda or cuda:N") or "auto",
        devices=table.gpus("devices"),
        memory_limit=table.integer("memory_limit", 1, 2**63 - 1),
        context=table.integer("context", 64, 2**24, 2048),
        idle_minutes=table.number("idle_minutes", 1e-3, 1e6, 30.0),
        recording=table.path("recording"),
        dialect=dialect,
        api=api,
        model=table.text("model"),
        token_env=table.text("token_env", VARIABLE, "the name of an environment variable"),
        proxy=table.text("proxy", PROXY, "an http:// or https:// address"),
        fall_back=table.text("fall_back"),
    )
    table.end()
    if settings.devices and (kind != "resident" or settings.device not in ("auto", "cuda")):
        table.fail("devices", "goes with kind = 'resident' and device = 'auto' or 'cuda'")
    if kind == "remote":
        _check_remote(table, settings)
    else:
        for key in REMOTE_ONLY:
            if table.has(key):
                table.fail(key, "belongs to kind = 'remote' only")
    wanted = {"remote": "address", "replay": "recording"}
    for owner, key in wanted.items():
        given = getattr(settings, key) is not None
        if kind == owner and not given:
            table.fail(key, f"is missing: kind = {kind!r} needs it")
        if kind != owner and given:
            table.fail(key, f"belongs to kind = {owner!r} only")
    return settings


def _check_remote(table: _Table, settings: EngineSettings) -> None:
    """What the user's text and token must not be trusted to."""
    address = settings.address or ""
    if not address.startswith("unix:") and "@" in urlsplit(address).netloc:
        table.fail("address", "must hold no user name or password: name a token_file or token_env")
    if settings.token_file is not None and settings.token_env is not None:
        table.fail("token_env", "does not go with token_file: the token comes from one of them")
    if (settings.token_file or settings.token_env) and not keeps_a_token(address):
        table.fail("address", "must be https:// where a token is sent, unless the engine is on this machine")
    if settings.fall_back is not None and settings.fall_back not in {*shipped_profiles(), *own_profiles()}:
        table.fail("fall_back", f"must name a profile, not {settings.fall_back!r}")


def keeps_a_token(address: str) -> bool:
    """Whether nobody between here and an engine's address can read a token: https, or this machine."""
    if address.startswith("unix:"):
        return True
    parts = urlsplit(address)
    return parts.scheme == "https" or parts.hostname in LOOPBACK


def _text(table: _Table, context: int) -> TextSettings:
    defaults = TextSettings()
    settings = TextSettings(
        budget=table.integer("budget", 16, context, min(defaults.budget, context // 2)),
        suffix_budget=table.integer("suffix_budget", 0, context, min(defaults.suffix_budget, context // 8)),
        max_tokens=table.integer("max_tokens", 1, SHARED_MAX_TOKENS, min(defaults.max_tokens, context // 8)),
        heal=table.flag("heal", True),
        special=table.texts("special"),
    )
    table.end()
    return settings


def _target(table: _Table) -> ModelSource:
    source = ModelSource(
        path=table.needed_path("path"),
        name=table.text("name"),
        revision=table.text("revision"),
        published=_published(table),
        note=table.text("note"),
    )
    table.end()
    return source


def _published(table: _Table) -> str | None:
    """The name under which the published sizes of a model are known, for arithmetic without its weights."""
    name = table.text("published")
    if name is None:
        return None
    # Late: a window's server has no part of the engine in its process.
    from dflash_core.published import PUBLISHED

    return table.choice("published", tuple(PUBLISHED), name)


def _draft(table: _Table) -> ModelSource:
    source = ModelSource(
        path=table.needed_path("path"),
        name=table.text("name"),
        revision=table.text("revision"),
        rotary_base=table.number("rotary_base", 1.0, 1e12),
    )
    table.end()
    return source


def _prompt(table: _Table, engine: EngineSettings) -> PromptSettings:
    context = engine.context
    most, usual = (SHARED_MAX_TOKENS, SHARED_MAX_TOKENS) if engine.is_shared else (context, 96)
    format: PromptFormat = table.choice("format", get_args(PromptFormat), "plain")
    settings = PromptSettings(
        tokenizer=table.needed_path("tokenizer"),
        format=format,
        marker_ids=table.ids_by_name("marker_ids"),
        budget=table.integer("budget", 16, context, min(512, context)),
        suffix_budget=table.integer("suffix_budget", 0, context, 0),
        related_budget=table.integer("related_budget", 0, context),
        head=table.flag("head", True),
        stop_ids=table.ids("stop_ids"),
        heal=table.flag("heal", True),
        max_tokens=table.integer("max_tokens", 1, min(most, context), min(usual, context)),
    )
    table.end()
    for marker in FORMAT_MARKERS.get(format, ()):
        if marker not in settings.marker_ids:
            table.fail("marker_ids", f"lacks {marker!r}, which format = {format!r} needs")
    needed = settings.budget + settings.suffix_budget + settings.max_tokens
    if needed > context:
        table.fail("budget", f"does not fit: with suffix_budget and max_tokens {needed} tokens, context is {context}")
    return settings


class _Table:
    """One table of a profile file: hands out typed values and refuses what nobody asked for."""

    def __init__(self, file: Path, name: str, values: dict[str, Any]) -> None:
        self._file = file
        self._name = name
        self._values = values
        self._asked: set[str] = set()

    def fail(self, key: str | None, problem: str) -> NoReturn:
        """Raise the one-line error that names the file and the key (None: the table itself)."""
        where = ".".join(part for part in (self._name, key) if part)
        raise ProfileError(f"profile {self._file}: {where} {problem}")

    def end(self) -> None:
        """Refuse keys that were not asked for."""
        unknown = sorted(self._values.keys() - self._asked)
        if unknown:
            self.fail(unknown[0], f"is not a known key; known are {', '.join(sorted(self._asked))}")

    def has(self, key: str) -> bool:
        return key in self._values

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._get(key, list, "a list of texts") or []
        for value in values:
            if not isinstance(value, str) or not value:
                self.fail(key, f"must hold texts, not {value!r}")
        return tuple(values)

    def table(self, key: str) -> _Table | None:
        value = self._get(key, dict, "a table")
        return None if value is None else _Table(self._file, key, value)

    def text(self, key: str, pattern: re.Pattern[str] | None = None, meaning: str = "text") -> str | None:
        value = self._get(key, str, meaning)
        if value is not None and (not value or "\0" in value or (pattern and not pattern.fullmatch(value))):
            self.fail(key, f"must be {meaning}, not {value!r}")
        return value

    def address(self, key: str) -> str | None:
        """Where an engine answers: http://, https:// or unix:/."""
        meaning = "an http://, https:// or unix:/ address"
        value = self.text(key, ADDRESS, meaning)
        try:
            # Reading the port is what finds a wrong one.
            sound = value is None or value.startswith("unix:") or urlsplit(value).port != 0
        except ValueError:
            sound = False
        if not sound:
            self.fail(key, f"must be {meaning}, not {value!r}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> Any:
        meaning = "one of " + ", ".join(choices)
        value = self._get(key, str, meaning)
        if value is not None and value not in choices:
            self.fail(key, f"must be {meaning}, not {value!r}")
        return value or default

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> Any:
        meaning = f"a whole number from {least} to {most}"
        value = self._get(key, int, meaning)
        if value is not None and not least <= value <= most:
            self.fail(key, f"must be {meaning}, not {value}")
        return default if value is None else value

    def number(self, key: str, least: float, most: float, default: float | None = None) -> Any:
        meaning = f"a number from {least:g} to {most:g}"
        value = self._get(key, (int, float), meaning)
        if value is None:
            return default
        if math.isnan(value) or not least <= value <= most:
            self.fail(key, f"must be {meaning}, not {value}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, bool, "true or false")
        return default if value is None else value

    def ids(self, key: str) -> tuple[int, ...]:
        values = self._get(key, list, "a list of token ids") or []
        return tuple(self._id(key, value) for value in values)

    def gpus(self, key: str) -> tuple[int, ...]:
        """GPUs: how many, or which."""
        meaning = f"how many GPUs (1 to {MOST_GPUS}), or a list of different numbers of theirs"
        value = self._get(key, (int, list), meaning)
        if value is None:
            return ()
        if isinstance(value, int) and 1 <= value <= MOST_GPUS:
            return tuple(range(value))
        numbers = value if isinstance(value, list) else [-1]
        known = all(type(each) is int and 0 <= each < MOST_GPUS for each in numbers)
        if not numbers or not known or len(set(numbers)) < len(numbers):
            self.fail(key, f"must be {meaning}, not {value!r}")
        return tuple(numbers)

    def ids_by_name(self, key: str) -> dict[str, int]:
        values = self._get(key, dict, "a table of token ids") or {}
        return {name: self._id(f"{key}.{name}", value) for name, value in values.items()}

    def path(self, key: str) -> Path | None:
        """A path: relative to the profile file, or after `cache:` or `asset:` to those directories."""
        value = self.text(key, meaning="a path")
        if value is None:
            return None
        roots: dict[str, Callable[[], Path]] = {"cache": paths.cache_dir, "asset": paths.asset}
        prefix, colon, rest = value.partition(":")
        if colon and prefix in roots:
            # Lexical only: a directory that the user linked into the cache is meant to be followed.
            root = roots[prefix]()
            path = Path(os.path.normpath(root / rest))
            if not path.is_relative_to(root):
                self.fail(key, f"must stay inside the {prefix} directory, not {value!r}")
            return path
        try:
            return (self._file.parent / Path(value).expanduser()).resolve()
        except RuntimeError as error:  # the home of a user that nobody is
            self.fail(key, f"names a home directory that does not exist: {value!r}; {error}")

    def needed_path(self, key: str) -> Path:
        path = self.path(key)
        if path is None:
            self.fail(key, "is missing")
        return path

    def _id(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_ID:
            self.fail(key, f"must hold token ids, not {value!r}")
        return value

    def _get(self, key: str, kind: type | tuple[type, ...], meaning: str) -> Any:
        self._asked.add(key)
        value = self._values.get(key)
        if value is None:
            return None
        # In Python true is an int; in a profile it is a mistake.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fail(key, f"must be {meaning}, not {value!r}")
        return value
