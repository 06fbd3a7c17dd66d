"""Cells of notebooks: documents of their own, in the order in which their notebook shows them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from server.documents.store import scheme

CELL_SCHEMES = ("vscode-notebook-cell",)


def is_cell(uri: str) -> bool:
    return scheme(uri) in CELL_SCHEMES


def notebook_of(uri: str) -> str:
    """The URI of the file that a cell is in; any other URI is its own."""
    return f"file:{uri.partition('#')[0].partition(':')[2]}" if is_cell(uri) else uri


class Notebooks:
    """The order of the cells of each open notebook, as its client tells it."""

    def __init__(self) -> None:
        self._cells: dict[str, list[str]] = {}

    def opened(self, notebook: str, cells: Sequence[str]) -> None:
        self._cells[unquote(notebook)] = [unquote(cell) for cell in cells]

    def changed(self, notebook: str, start: int, removed: int, cells: Sequence[str]) -> None:
        """Some cells in the place of others."""
        known = self._cells.setdefault(unquote(notebook), [])
        known[start : start + removed] = [unquote(cell) for cell in cells]

    def closed(self, notebook: str) -> None:
        self._cells.pop(unquote(notebook), None)

    def place_of(self, cell: str) -> int:
        """A cell's place in its notebook; 0 where its client never told."""
        plain = unquote(cell)
        return next((cells.index(plain) for cells in self._cells.values() if plain in cells), 0)
