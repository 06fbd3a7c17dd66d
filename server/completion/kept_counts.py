"""The counts of all windows there ever were: one small local file, by language, without any text."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from filelock import FileLock, Timeout

from server.completion.acceptance import Counts

LOG = logging.getLogger(__name__)
LOCK_S = 2.0  # another window writes for a moment only
_NAMES = tuple(field.name for field in fields(Counts))

CountsByLanguage = Mapping[str, Mapping[str, int]]


class KeptCounts:
    """Windows add to the file what they have counted; a file that cannot be read or written costs only counts."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, dict[str, int]]:
        """What was kept so far, without what we never write."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            return {
                str(language): {name: int(counts.get(name, 0)) for name in _NAMES} for language, counts in found.items()
            }
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return {}

    def add(self, more: CountsByLanguage) -> bool:
        """Add counts; False when they could not be kept."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._file.with_suffix(".lock"), timeout=LOCK_S):
                fresh = self._file.with_suffix(".new")
                fresh.write_text(json.dumps(summed(self.read(), more)), encoding="utf-8")
                fresh.replace(self._file)
        except (OSError, Timeout) as error:
            LOG.warning("counts could not be kept: %s", type(error).__name__)
            return False
        return True


def summed(one: CountsByLanguage, other: CountsByLanguage) -> dict[str, dict[str, int]]:
    """The counts of both."""
    return {
        language: {name: sum(each.get(language, {}).get(name, 0) for each in (one, other)) for name in _NAMES}
        for language in sorted({*one, *other})
    }
