"""The client's `initializationOptions`, read once into a typed object.

They are the user's own settings for this client. Nothing is ever read from `workspace/configuration`,
where a folder that the user merely opened could speak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from server.profiles import DEFAULT_PROFILE

Surface = Literal["stream", "inline", "menu"]

# Sent by clients made for another server; of no use here, and no mistake of the user's.
_PASSED_OVER = frozenset({"editorInfo", "editorPluginInfo"})


@dataclass(frozen=True)
class Settings:
    """What the user may set in an editor.

    profile: a name, or the path of a .toml file. enable: whether completions are offered.
    exclude: globs of files, by their path in the workspace or by their name, that are never completed.
    exclude_by_language: more globs, each for files of one LSP language id; option `excludeByLanguage`.
    surface: how completions are offered; None leaves it to what the client declares. Only "inline" so far.
    """

    profile: str = DEFAULT_PROFILE
    enable: bool = True
    exclude: tuple[str, ...] = ()
    exclude_by_language: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    surface: Surface | None = None

    def excludes(self, path: str) -> bool:
        """Whether a file is excluded; `path` is its posix path in the workspace. `*` matches `/` as well."""
        names = (path, PurePosixPath(path).name)
        globs = [glob.removeprefix("**/") for glob in self.exclude]
        return any(fnmatchcase(name, glob) for glob in globs for name in names)


def read_settings(options: object) -> tuple[Settings, list[str]]:
    """The settings, and in a few words each thing that is wrong with the options; defaults stand in for those."""
    if options is None:
        return Settings(), []
    if not isinstance(options, Mapping):
        return Settings(), ["initializationOptions must be an object"]
    found, problems = Settings(), []
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
    "surface": (
        " or ".join(f'"{each}"' for each in get_args(Surface)),
        lambda value: value in get_args(Surface),
        str,
    ),
}
