"""Counts what becomes of completions, per language: locally, and without any text."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from server.completion.shown import Shown


@dataclass
class Counts:
    """Completions; characters in UTF-16 units. dismissed: the user went on with something else."""

    shown: int = 0
    accepted: int = 0
    partly_accepted: int = 0
    typed_through: int = 0
    dismissed: int = 0
    shown_characters: int = 0
    accepted_characters: int = 0


@dataclass
class _Open:
    """A completion that is shown in a document. taken: so many units of it were accepted already."""

    language: str
    units: int
    taken: int = 0
    was_typed: bool = False


class Acceptance:
    """One window's. A document shows one completion at a time."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}
        self._open: dict[str, _Open] = {}

    def answered(self, uri: str, language: str, left: Shown | None, text: str) -> None:
        """A request was answered with `text`; `left`: of what was shown before, None when that was left behind."""
        if left is not None and left.text and text:
            return  # the same completion is still shown
        self._resolve(uri, typed=left is not None and not left.text)
        if text:
            counts = self._of(language)
            counts.shown += 1
            counts.shown_characters += utf16_units(text)
            self._open[uri] = _Open(language, utf16_units(text))

    def accepted(self, uri: str) -> None:
        """All of the completion was accepted."""
        shown = self._open.pop(uri, None)
        if shown is None:
            return
        counts = self._of(shown.language)
        counts.accepted += 1
        counts.typed_through -= shown.was_typed  # its text came by the acceptance, not by keys
        counts.accepted_characters += shown.units - shown.taken

    def partly_accepted(self, uri: str, units: int) -> None:
        """The first `units` of the completion have been accepted by now."""
        shown = self._open.get(uri)
        if shown is None or units <= shown.taken:
            return
        counts = self._of(shown.language)
        counts.partly_accepted += shown.taken == 0
        counts.accepted_characters += min(units, shown.units) - shown.taken
        shown.taken = min(units, shown.units)

    def closed(self, uri: str) -> None:
        self._resolve(uri, typed=False)

    def to_json(self) -> dict[str, dict[str, int]]:
        """The counts by language."""
        return {language: asdict(counts) for language, counts in self._counts.items()}

    def _resolve(self, uri: str, *, typed: bool) -> None:
        shown = self._open.get(uri)
        if shown is None or shown.was_typed:
            self._open.pop(uri, None)
            return
        counts = self._of(shown.language)
        if typed:
            counts.typed_through += 1
            shown.was_typed = True  # until the acceptance that may still be on its way
            return
        counts.dismissed += shown.taken == 0
        del self._open[uri]

    def _of(self, language: str) -> Counts:
        return self._counts.setdefault(language, Counts())


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2
