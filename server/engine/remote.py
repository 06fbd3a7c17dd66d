"""Where a remote engine of a profile is, and the token for it: from a file or the environment, nothing else."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from server.engine.protocol import Endpoint, EngineError
from server.profiles import Profile


def remote_endpoint(profile: Profile) -> Endpoint:
    """The endpoint that the profile names. Raises EngineError, one line, without a token that it should have."""
    engine = profile.engine
    if engine.address is None:
        raise EngineError(f"profile {profile.name}: a remote engine needs an address")
    return Endpoint(
        address=engine.address,
        token=_token(engine.token_file, engine.token_env),
        dialect=engine.dialect,
        api=engine.api,
        model=engine.model,
        proxy=engine.proxy,
    )


def token_problem(file: Path | None, variable: str | None) -> str:
    """Why there is no token though one is named, in one line; "" when there is."""
    try:
        _token(file, variable)
    except EngineError as error:
        return str(error)
    return ""


def _token(file: Path | None, variable: str | None) -> str | None:
    if variable is not None:
        return _checked(os.environ.get(variable, ""), f"the environment variable {variable}")
    if file is None:
        return None
    try:
        # As ssh treats its keys: a token that others can read is no longer one.
        if sys.platform != "win32" and stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise EngineError(f"the token file {file} is open to others: chmod 600 it")
        return _checked(file.read_text(encoding="utf-8"), f"the token file {file}")
    except OSError as error:
        raise EngineError(f"cannot read the token file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"the token file {file} is not text") from error


def _checked(said: str, source: str) -> str:
    token = said.strip()
    if not token:
        raise EngineError(f"{source} holds no token")
    # What a header cannot carry would be an exception of the HTTP library's, with the token in it.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise EngineError(f"{source} holds something that is not a token")
    return token
