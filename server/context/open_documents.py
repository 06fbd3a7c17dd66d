"""What is known of each open document beside its text: its tree, its definitions, where it was edited last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname
from weakref import WeakValueDictionary

from server.context.injections import all_definitions
from server.context.languages import Language
from server.context.tags import Definition
from server.context.trees import DocumentTree
from server.documents.document import Document, LineEdit
from server.documents.edits import EditHistory
from server.documents.notebooks import is_cell, notebook_of

DEFINITIONS_REST_S = 3.0  # definitions of a document that is being typed in are listed no more often


@dataclass(eq=False)
class OpenDocument:
    """One open document. path: as the target should see it; file: where it is on disk, None if nowhere.

    row: of the last edit or completion. touched: when that was, in seconds of time.monotonic().
    """

    document: Document
    path: str
    file: Path | None
    language: Language
    tree: DocumentTree | None = None
    row: int = 0
    touched: float = 0.0
    edited: bool = False
    definitions: list[Definition] = field(default_factory=list)
    listed: bool = False  # the definitions are those of some moment, not just none
    history: EditHistory = field(default_factory=EditHistory)
    _listing: asyncio.Task[None] | None = None
    _rest_until: float = 0.0
    _changed: bool = True

    def touch(self, row: int) -> None:
        """Note that the user is at work on a row."""
        self.row, self.touched = row, time.monotonic()

    def note_edit(self, edit: LineEdit) -> None:
        self.touch(edit.first + max(0, len(edit.added) - 1))
        self.edited = self._changed = True
        self.history.note(edit)

    def list_definitions(self) -> None:
        """Begin to list the definitions anew, if they may have changed, in a thread."""
        due = self._changed and self._listing is None and time.monotonic() >= self._rest_until
        if due and self.tree is not None and self.tree.tree is not None and self.tree.fresh:
            self._listing = asyncio.get_running_loop().create_task(self._list(), name="definitions")

    async def ready(self) -> None:
        """Wait until tree and definitions are there."""
        if self.tree is not None:
            await self.tree.ready()
            self.list_definitions()
        if self._listing is not None:
            await asyncio.wait({self._listing})

    async def _list(self) -> None:
        assert self.tree is not None and self.tree.tree is not None
        tree, lines = self.tree.tree.copy(), list(self.document.lines)
        self._changed = False
        try:
            self.definitions = await asyncio.to_thread(all_definitions, tree, lines, self.language)
            self.listed = True
        finally:
            self._rest_until = time.monotonic() + DEFINITIONS_REST_S
            self._listing = None


class OpenDocuments:
    """The open documents of one window. A document that nobody else holds is forgotten by itself."""

    def __init__(self) -> None:
        # The document holds its entry, as a watcher of its edits, and so the entry lives as long.
        self._entries: WeakValueDictionary[str, OpenDocument] = WeakValueDictionary()
        self.place_in_notebook: Callable[[str], int] = lambda uri: 0  # of a cell; those of equal place as they opened

    def opened(self, document: Document, path: str, language: Language, file: Path | None) -> OpenDocument:
        """The entry of a document, made at first sight."""
        key = unquote(document.uri)
        entry = self._entries.get(key)
        if entry is not None and entry.document is document and entry.language == language:
            return entry
        tree = None if language.syntax is None else DocumentTree(document, language.syntax)
        entry = OpenDocument(document, path, file, language, tree)
        document.watch(entry.note_edit)
        self._entries[key] = entry
        return entry

    def get(self, document: Document) -> OpenDocument | None:
        entry = self._entries.get(unquote(document.uri))
        return entry if entry is not None and entry.document is document else None

    def closed(self, uri: str) -> None:
        self._entries.pop(unquote(uri), None)

    def others(self, entry: OpenDocument) -> list[OpenDocument]:
        """All other documents, those touched last first."""
        return sorted((each for each in self._entries.values() if each is not entry), key=lambda each: -each.touched)

    def cells_around(self, entry: OpenDocument) -> tuple[list[OpenDocument], list[OpenDocument]]:
        """The cells of the same notebook above and below a cell, in their order; none for any other document."""
        if not is_cell(entry.document.uri):
            return [], []
        notebook = unquote(notebook_of(entry.document.uri))
        cells = [each for each in self._entries.values() if unquote(notebook_of(each.document.uri)) == notebook]
        cells.sort(key=lambda each: self.place_in_notebook(each.document.uri))
        place = cells.index(entry)
        return cells[:place], cells[place + 1 :]


def file_of(uri: str) -> Path | None:
    """The file that a URI names, however it is encoded, or that its cell is in; None when it names none."""
    uri = notebook_of(uri)
    parts = urlsplit(uri)
    if parts.scheme.lower() != "file":
        return None
    # `#` and `?` belong to the name where a client did not encode them.
    plain = unquote(uri.split(":", 1)[1]).removeprefix("//" + parts.netloc)
    return Path(url2pathname(quote(plain))) if plain else None
