"""Typing as an editor reports it, key by key, recorded from a real text.

A trace is JSON: `{language, path, text, keys}`; a key is `[line, character, end line, end character, text]`, an
LSP change in UTF-16 units, the cursor behind it where the next key begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from server.documents.document import Change
from server.documents.positions import Position, Range
from server.errors import DflashError

_CLOSERS = {"(": ")", "[": "]", "{": "}"}
TYPO_EVERY = 23  # keys; a wrong letter, and the key that takes it back


class TraceError(DflashError):
    """A trace file that cannot be used."""


@dataclass(frozen=True)
class Key:
    """One key: the change it makes, and where the cursor is then."""

    change: Change
    cursor: Position


@dataclass(frozen=True)
class Trace:
    """A text and the keys typed into it."""

    language: str
    path: str
    text: str
    keys: list[list[Any]]  # [line, character, end line, end character, text, cursor line, cursor character]

    def __iter__(self) -> Iterator[Key]:
        for line, character, end_line, end_character, text, cursor_line, cursor_character in self.keys:
            place = Range(Position(line, character), Position(end_line, end_character))
            yield Key(Change(text, place), Position(cursor_line, cursor_character))


def read_trace(file: Path) -> Trace:
    """Read a recorded trace. Raises TraceError."""
    try:
        return Trace(**json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise TraceError(f"trace {file} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise TraceError(f"{file} is not a trace") from error


def write_trace(trace: Trace, file: Path) -> None:
    file.write_text(json.dumps(asdict(trace)) + "\n", encoding="utf-8")


def record(text: str, line: int, count: int, language: str, path: str) -> Trace:
    """Take text out of a file from the beginning of a line on, and type it again: `count` keys in all.

    As editors do it: closers come with their openers and are typed over, a new line comes with its
    indentation; and as people do it: a wrong letter now and then. The text is ASCII where it is typed.
    """
    lines = text.split("\n")
    rest = "\n".join(lines[line:])
    indent = len(rest) - len(rest.lstrip(" "))
    typist, typed = _Typist(line, indent), indent
    while typed < len(rest) and len(typist.keys) < count:
        typed += typist.type(rest[typed:])
    # What was typed, and the rest of its line, is not in the file at first.
    below = rest[typed:].partition("\n")[2]
    above = "\n".join(lines[:line])
    return Trace(language, path, f"{above}\n{' ' * indent}\n{below}", typist.keys[:count])


class _Typist:
    """Turns text into keys; `pending` are closers right of the cursor that the editor put there."""

    def __init__(self, line: int, character: int) -> None:
        self.line, self.character = line, character
        self.pending: list[str] = []
        self.keys: list[list[Any]] = []

    def type(self, left: str) -> int:
        """Type the beginning of the text; returns how many characters of it that was."""
        here = left[0]
        if self.keys and len(self.keys) % TYPO_EVERY == 0 and here.isalpha():
            self._key(self.line, self.character, "q", 1)
            self._key(self.line, self.character - 1, "", -1, end=self.character)
        if self.pending and here == self.pending[-1]:
            self.pending.pop()
            self._key(self.line, self.character, here, 1, end=self.character + 1)
        elif here in _CLOSERS:
            self.pending.append(_CLOSERS[here])
            self._key(self.line, self.character, here + _CLOSERS[here], 1)
        elif here == "\n":
            blanks = len(left) - 1 - len(left[1:].lstrip(" "))
            self._newline(blanks)
            return 1 + blanks
        else:
            self._key(self.line, self.character, here, 1)
        return 1

    def _key(self, line: int, character: int, text: str, moved: int, end: int | None = None) -> None:
        self.character += moved
        end = character if end is None else end
        self.keys.append([line, character, line, end, text, self.line, self.character])

    def _newline(self, blanks: int) -> None:
        line, character = self.line, self.character
        self.line, self.character = line + 1, blanks
        self.keys.append([line, character, line, character, "\n" + " " * blanks, self.line, self.character])
