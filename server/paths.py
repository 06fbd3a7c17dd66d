"""Where files of ours lie: cache, config, runtime, logs, and the assets that come with the package."""

from __future__ import annotations

import os
import stat
import sys
import warnings
from pathlib import Path

import platformdirs

from server.errors import DflashError

APP = "dflash-lsp"


def cache_dir() -> Path:
    """Directory for what can be fetched or computed again, such as converted weights. Not created here."""
    return platformdirs.user_cache_path(APP, appauthor=False)


def config_dir() -> Path:
    """Directory of the user's own profiles and settings. Not created here."""
    return platformdirs.user_config_path(APP, appauthor=False)


def state_dir() -> Path:
    """Directory for what is worth keeping of our work, such as counts. Not created here."""
    return platformdirs.user_state_path(APP, appauthor=False)


def log_dir() -> Path:
    """Directory for log files of detached processes. Not created here."""
    return platformdirs.user_log_path(APP, appauthor=False)


def runtime_dir() -> Path:
    """Directory for sockets and lock files, created 0700 when missing.

    Raises DflashError when the directory cannot be made, belongs to somebody else, or is open to others:
    whoever can write there can put a socket of their own in the place of the engine's.
    """
    with warnings.catch_warnings():
        # platformdirs warns when it falls back to /tmp; the checks below are what makes that safe.
        warnings.simplefilter("ignore")
        path = platformdirs.user_runtime_path(APP, appauthor=False)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found, parent = path.lstat(), path.parent.stat()
    except OSError as error:
        raise DflashError(f"the runtime directory {path} cannot be used: {error.strerror}") from error
    if sys.platform == "win32":
        return path
    if not stat.S_ISDIR(found.st_mode):
        raise DflashError(f"the runtime directory {path} is not a directory")
    if found.st_uid != os.getuid():
        raise DflashError(f"the runtime directory {path} belongs to another user")
    if found.st_mode & 0o077:
        raise DflashError(f"the runtime directory {path} is open to others: chmod 700 it")
    # Without an XDG_RUNTIME_DIR it lies under /tmp: the owner of the directory above could swap ours.
    if parent.st_uid not in (0, os.getuid()):
        raise DflashError(f"the directory of the runtime directory, {path.parent}, belongs to another user")
    if parent.st_mode & 0o022 and not parent.st_mode & stat.S_ISVTX:
        raise DflashError(f"the directory of the runtime directory, {path.parent}, is open to others")
    return path


def asset(*parts: str) -> Path:
    """Path of a shipped asset: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "assets"
    root = installed if installed.is_dir() else package.parent / "assets"
    return root.joinpath(*parts)
