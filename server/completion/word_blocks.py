"""Blocks that words open and close, `do ... end`: which of them a text that broke off leaves open."""

from __future__ import annotations

import re

from server.completion.boundaries.boundary import CursorText, indentation
from server.completion.boundaries.lexer import Kind, lexer_for

_WORD = re.compile(r"\w+")


def ends_of_word_blocks(text: str, cursor: CursorText) -> str:
    """The lines that close the blocks which the text opens and the file does not close below, innermost first."""
    if not cursor.language.word_blocks:
        return ""
    opened: list[tuple[str, int]] = []  # what closes it, and the column of its line
    for line, code in _code_lines(cursor.line_before + text, cursor):
        found = [
            (match.start(), closer)
            for opener, word in cursor.language.word_blocks
            for closer, pattern in ((word, opener), ("", rf"(?<![\w.:$-]){word}\b(?!:)"))
            for match in re.finditer(pattern, code)
        ]
        for _, closer in sorted(found):
            if closer:
                opened.append((closer, indentation(line)))
            elif opened:
                opened.pop()
    below = cursor.next_line
    if opened and below is not None and indentation(below) == opened[0][1]:
        word = _WORD.match(below.lstrip())
        if word is not None and word[0] in cursor.language.ending | cursor.language.continuing:
            opened = opened[1:]
    return "".join("\n" + " " * column + closer for closer, column in reversed(opened))


def _code_lines(text: str, cursor: CursorText) -> list[tuple[str, str]]:
    """The lines of a text at the cursor, each with and without its strings and comments."""
    lexer, inside, lines = lexer_for(cursor.language), "", []
    for line in text.split("\n"):
        tokens, inside = lexer.split(line, inside)
        code, place = "", 0
        for token in tokens:
            if token.kind in (Kind.STRING, Kind.COMMENT):
                code += line[place : token.start] + '""'
                place = token.end
        lines.append((line, code + line[place:]))
    return lines
