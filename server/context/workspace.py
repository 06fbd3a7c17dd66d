"""What the context may draw on in one window: the folders, and what of them is excluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from server.context.index import WorkspaceIndex
from server.context.privacy import Privacy


@dataclass(frozen=True)
class Workspace:
    """folders: absolute. exclude: globs of paths; exclude_by_language: more, for files of a language.

    indexed: whether definitions are looked up in files that are not open.
    """

    folders: Sequence[Path] = ()
    exclude: Sequence[str] = ()
    exclude_by_language: Mapping[str, Sequence[str]] = field(default_factory=dict)
    indexed: bool = False

    def privacy(self) -> Privacy:
        return Privacy(self.folders, self.exclude, self.exclude_by_language)

    def index(self) -> WorkspaceIndex | None:
        if not self.indexed or not self.folders:
            return None
        return WorkspaceIndex(self.folders, self.exclude, self.exclude_by_language)
