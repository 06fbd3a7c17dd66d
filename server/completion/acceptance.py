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
    """A completion that is or was shown in a document, as long as its acceptance may still be told.

    units: of its text so far, which may grow. taken: so many of them were accepted already. was_edited: the document
    was, since it was shown, and so it may be in there.
    """

    language: str
    units: int
    taken: int = 0
    was_typed: bool = False
    was_accepted: bool = False
    was_edited: bool = False


class Acceptance:
    """One window's. A document shows one completion at a time; it may grow, and be accepted before it is whole."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}
        self._open: dict[str, _Open] = {}
        self._before: dict[str, _Open] = {}  # the last that was typed through

    def showed(self, uri: str, language: str, left: Shown | None, text: str) -> None:
        """A document shows `text`, of an answer or of its growth.

        left: of what it showed before, None when that was left behind.
        """
        shown = self._open.get(uri)
        if shown is not None and left is not None and left.text and text:
            self._grow(shown, utf16_units(text) - utf16_units(left.text))
            return
        self._resolve(uri, typed=left is not None and not left.text)
        if text:
            self._of(language).shown += 1
            self._open[uri] = _Open(language, 0)
            self._grow(self._open[uri], utf16_units(text))

    def edited(self, uri: str) -> None:
        """The document was edited: what it shows may be in it."""
        if uri in self._open:
            self._open[uri].was_edited = True

    def accepted(self, uri: str) -> None:
        """All was accepted that was shown by then."""
        shown, before = self._open.get(uri), self._before.pop(uri, None)
        if before is not None and (shown is None or not shown.was_edited):
            shown = before  # the next one was shown before the client had told
        if shown is None:
            return
        counts = self._of(shown.language)
        if not shown.was_accepted:
            counts.accepted += 1
            counts.typed_through -= shown.was_typed  # its text came by the acceptance, not by keys
        counts.accepted_characters += shown.units - shown.taken
        shown.taken, shown.was_accepted = shown.units, True

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
        self._before.pop(uri, None)

    def to_json(self) -> dict[str, dict[str, int]]:
        """The counts by language."""
        return {language: asdict(counts) for language, counts in self._counts.items()}

    def _grow(self, shown: _Open, units: int) -> None:
        if units > 0:
            self._of(shown.language).shown_characters += units
            shown.units += units

    def _resolve(self, uri: str, *, typed: bool) -> None:
        """What was shown is shown no more: it was typed to its end, or accepted, or left behind."""
        shown = self._open.pop(uri, None)
        if shown is None:
            return
        if not typed:
            self._before.pop(uri, None)
            self._of(shown.language).dismissed += shown.taken == 0
        elif not shown.was_accepted:
            self._of(shown.language).typed_through += 1
            shown.was_typed = True
            self._before[uri] = shown  # until the acceptance that may still be on its way

    def _of(self, language: str) -> Counts:
        return self._counts.setdefault(language, Counts())


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2
