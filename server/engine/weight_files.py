"""Which weights a kept answer is about: told by their files, without reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from server.profiles.settings import ModelSource, Profile


def weight_files(profile: Profile) -> list[list[Any]]:
    """Target and draft as JSON data that differs when either is another. Raises OSError for what is not there."""
    return [_identity(source) for source in (profile.target, profile.draft) if source]


def _identity(source: ModelSource) -> list[Any]:
    return [source.revision, [_told_apart(file) for file in sorted(source.path.glob("*.safetensors"))]]


def _told_apart(file: Path) -> list[Any]:
    found = file.stat()
    return [file.name, found.st_size, found.st_mtime_ns]
