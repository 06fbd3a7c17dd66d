"""One open document: its lines, edited in place as the editor reports changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from server.documents.lines import line_ending, split_lines, without_ending, without_lone_surrogates
from server.documents.positions import Encoding, Position, Range, index_in_line, units_before
from server.errors import DflashError


class PositionError(DflashError):
    """A position that lies outside the document."""


@dataclass(frozen=True)
class Change:
    """One change of a `didChange`: `text` in the place of `range`, or of everything when it is None."""

    text: str
    range: Range | None = None


@dataclass(frozen=True)
class Place:
    """A position as indexes: `lines[line][column]`, where `column` counts code points."""

    line: int
    column: int


@dataclass(frozen=True)
class LineEdit:
    """What a change did to the lines: `removed` gave way to `added` from line `first` on.

    end: the place behind the text that was put in; None where everything was replaced.
    """

    first: int
    removed: list[str]
    added: list[str]
    end: Place | None = None


class Document:
    """A text as a list of lines with their endings, so that an edit touches only its own lines.

    `lines` is never empty; every line but the last has an ending, and no line has text after one.
    The text never holds half a surrogate pair (`without_lone_surrogates`).
    """

    def __init__(
        self,
        uri: str,
        text: str,
        *,
        language: str = "",
        version: int | None = None,
        encoding: Encoding = Encoding.UTF16,
    ) -> None:
        self.uri = uri
        self.language = language
        self.version = version
        self.encoding = encoding
        self.lines = split_lines(without_lone_surrogates(text))
        self._watchers: list[Callable[[LineEdit], None]] = []

    def watch(self, watcher: Callable[[LineEdit], None]) -> None:
        """Have every edit told to `watcher`, right after the lines have changed."""
        self._watchers.append(watcher)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def apply(self, changes: Iterable[Change], version: int | None = None) -> None:
        """Apply the changes in order, each to the text that the one before left."""
        for change in changes:
            text = without_lone_surrogates(change.text)
            if change.range is None:
                before, self.lines = self.lines, split_lines(text)
                self._tell(LineEdit(0, before, self.lines))
            else:
                self._replace(self.place(change.range.start), self.place(change.range.end), text)
        self.version = version

    def place(self, position: Position) -> Place:
        """The place of a position, clamped as LSP demands: to the end of the line, or of the text."""
        if position.line >= len(self.lines):
            return Place(len(self.lines) - 1, len(self.lines[-1]))
        line = max(position.line, 0)
        return Place(line, index_in_line(without_ending(self.lines[line]), position.character, self.encoding))

    def exact_place(self, position: Position) -> Place:
        """The place of a position; PositionError when it lies outside the text or inside a character."""
        if not 0 <= position.line < len(self.lines):
            raise PositionError(
                f"line {position.line} is outside the file, whose last line is {len(self.lines) - 1}, counted from 0"
            )
        line = without_ending(self.lines[position.line])
        length = units_before(line, len(line), self.encoding)
        if not 0 <= position.character <= length:
            raise PositionError(f"character {position.character} is outside line {position.line}, which has {length}")
        place = self.place(position)
        if self.position(place) != position:
            raise PositionError(f"character {position.character} of line {position.line} is inside a character")
        return place

    def position(self, place: Place) -> Position:
        """The position of a place, in the document's encoding."""
        line = without_ending(self.lines[place.line])
        return Position(place.line, units_before(line, place.column, self.encoding))

    def line_ending_near(self, line: int) -> str:
        """The ending that inserted text must use: the line's own, else that of the one before, else `\\n`."""
        return line_ending(self.lines[line]) or (line_ending(self.lines[line - 1]) if line else "") or "\n"

    def _replace(self, start: Place, end: Place, text: str) -> None:
        if (end.line, end.column) < (start.line, start.column):
            start, end = end, start
        first, inserted = start.line, split_lines(text)
        column = len(inserted[-1]) + (start.column if len(inserted) == 1 else 0)
        behind = Place(first + len(inserted) - 1, column)
        text = self.lines[first][: start.column] + text + self.lines[end.line][end.column :]
        # A `\r` that ends the line before becomes one ending with a `\n` that now begins this one.
        if first and text.startswith("\n") and self.lines[first - 1].endswith("\r"):
            first -= 1
            text = self.lines[first] + text
        fresh = split_lines(text)
        # Text that ends in an ending yields an empty last line, which is a line only at the text's end.
        if end.line + 1 < len(self.lines):
            fresh.pop()
        before = self.lines[first : end.line + 1]
        self.lines[first : end.line + 1] = fresh
        self._tell(LineEdit(first, before, fresh, behind))

    def _tell(self, edit: LineEdit) -> None:
        for watcher in self._watchers:
            watcher(edit)
