"""Positions as LSP gives them, and their place inside a line, in the negotiated encoding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Encoding(Enum):
    """What a position's `character` counts; values are LSP's names."""

    UTF8 = "utf-8"  # bytes
    UTF16 = "utf-16"  # 16-bit units: 2 for characters above U+FFFF
    UTF32 = "utf-32"  # code points, as Python's str counts


@dataclass(frozen=True, order=True)
class Position:
    """`line` and `character`, both from 0; `character` counts units of the encoding in use."""

    line: int
    character: int


@dataclass(frozen=True)
class Range:
    """From `start` up to, not including, `end`."""

    start: Position
    end: Position


def index_in_line(line: str, character: int, encoding: Encoding) -> int:
    """Index into `line` (given without its ending) of `character` units of the encoding.

    Units beyond the line count as its end; units inside a character count as its beginning.
    """
    if character <= 0:
        return 0
    if encoding is Encoding.UTF32 or line.isascii():
        return min(character, len(line))
    if encoding is Encoding.UTF8:
        data = line.encode("utf-8")
        if character >= len(data):
            return len(line)
        while data[character] & 0xC0 == 0x80:  # a continuation byte: inside a character
            character -= 1
        return len(data[:character].decode("utf-8"))
    data = line.encode("utf-16-le")
    if 2 * character >= len(data):
        return len(line)
    if 0xDC <= data[2 * character + 1] <= 0xDF:  # the second half of a surrogate pair
        character -= 1
    return len(data[: 2 * character].decode("utf-16-le"))


def units_before(line: str, index: int, encoding: Encoding) -> int:
    """How many units of the encoding stand before `index` in `line`: the inverse of `index_in_line`."""
    before = line[:index]
    if encoding is Encoding.UTF32 or before.isascii():
        return len(before)
    if encoding is Encoding.UTF8:
        return len(before.encode("utf-8"))
    return len(before.encode("utf-16-le")) // 2
