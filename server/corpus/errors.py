"""Failures of a corpus build."""

from __future__ import annotations

from server.errors import DflashError


class CorpusError(DflashError):
    """The build cannot go on; the text says why in one line."""


class PackageSkipped(DflashError):
    """One package is left out, for the reason in the text; the build goes on and the manifest names it."""
