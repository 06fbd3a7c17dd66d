"""What the user may set: one typed object, from the user's own file and the client's `initializationOptions`.

The options win over the file. `workspace/configuration`, where a folder that the user merely opened can
speak, may only disable and exclude.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from server.profiles import DEFAULT_PROFILE

Surface = Literal["stream", "inline", "menu"]
DraftMode = Literal["auto", "on", "off"]

# Sent by clients made for another server; of no use here, and no mistake of the user's.
_PASSED_OVER = frozenset({"editorInfo", "editorPluginInfo"})


@dataclass(frozen=True)
class Settings:
    """What the user may set in an editor.

    profile: a name, or the path of a .toml file. enable: whether completions are offered.
    exclude: globs of files, by their path in the workspace or by their name, that are never completed.
    exclude_by_language: more globs, each for files of one LSP language id; option `excludeByLanguage`.
    surface: how completions are offered; None leaves it to what the client declares.
    draft: whether the draft proposes blocks; "auto" leaves it to what pays.
    status: whether `dflash/status` is told; for clients that know what it is.
    """

    profile: str = DEFAULT_PROFILE
    enable: bool = True
    exclude: tuple[str, ...] = ()
    exclude_by_language: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    surface: Surface | None = None
    draft: DraftMode = "auto"
    status: bool = False

    def narrowed(self, configuration: object) -> Settings:
        """These settings as a workspace's configuration narrows them: it can switch off and exclude, no more."""
        if not isinstance(configuration, Mapping):
            return self
        exclude = configuration.get("exclude")
        more = exclude if isinstance(exclude, list) and _is_texts(exclude) else ()
        enable = self.enable and configuration.get("enable") is not False
        return replace(self, enable=enable, exclude=tuple(dict.fromkeys((*self.exclude, *more))))


def read_user_file(path: Path) -> tuple[Settings, list[str]]:
    """The settings of the user's own TOML file; without one, defaults."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings(), []
    except (OSError, ValueError):  # ValueError: neither TOML nor UTF-8
        return Settings(), [f"{path} cannot be read as TOML"]
    settings, problems = read_settings(found)
    return settings, [f"{problem} in {path}" for problem in problems]


def read_settings(options: object, settings: Settings | None = None) -> tuple[Settings, list[str]]:
    """The settings, and in a few words each thing that is wrong with the options.

    `settings`, or the defaults, stand in for what is wrong or not given.
    """
    found, problems = settings or Settings(), []
    if options is None:
        return found, []
    if not isinstance(options, Mapping):
        return found, ["initializationOptions must be an object"]
    for key, value in options.items():
        if key in _PASSED_OVER:
            continue
        reader = _READERS.get(str(key))
        if reader is None:
            problems.append(f"unknown option {key}")
            continue
        wanted, is_right, read = reader
        if is_right(value):
            found = replace(found, **{_FIELDS.get(str(key), str(key)): read(value)})
        else:
            problems.append(f"{key} must be {wanted}")
    return found, problems


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _is_texts_by_language(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) and _is_texts(each) for key, each in value.items())


def _one_of(words: tuple[str, ...]) -> tuple[str, Any, Any]:
    return " or ".join(f'"{each}"' for each in words), lambda value: value in words, str


# Options whose field is named otherwise.
_FIELDS = {"excludeByLanguage": "exclude_by_language"}
# option -> what it must be, whether a value is that, and how it is kept
_READERS: Mapping[str, tuple[str, Any, Any]] = {
    "profile": ("a name or a path", lambda value: isinstance(value, str) and bool(value), str),
    "enable": ("true or false", lambda value: isinstance(value, bool), bool),
    "exclude": ("a list of globs", _is_texts, tuple),
    "excludeByLanguage": (
        "lists of globs by language",
        _is_texts_by_language,
        lambda value: {language: tuple(globs) for language, globs in value.items()},
    ),
    "surface": _one_of(get_args(Surface)),
    "draft": _one_of(get_args(DraftMode)),
    "status": ("true or false", lambda value: isinstance(value, bool), bool),
}
