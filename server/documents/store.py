"""All open documents of one editor window, by URI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from server.documents.document import Change, Document
from server.documents.positions import Encoding


class DocumentStore:
    """Opened, changed and closed by the editor's notifications; `encoding` is the negotiated one.

    URIs that differ only in percent-encoding name the same document.
    """

    def __init__(self, encoding: Encoding = Encoding.UTF16) -> None:
        self.encoding = encoding
        self._documents: dict[str, Document] = {}

    def open(self, uri: str, text: str, language: str, version: int | None) -> None:
        self._documents[unquote(uri)] = Document(uri, text, language=language, version=version, encoding=self.encoding)

    def change(self, uri: str, changes: Iterable[Change], version: int | None) -> None:
        """Apply changes; those of a document that was never opened are dropped."""
        document = self.get(uri)
        if document is not None:
            document.apply(changes, version)

    def close(self, uri: str) -> None:
        self._documents.pop(unquote(uri), None)

    def __iter__(self) -> Iterator[Document]:
        return iter(list(self._documents.values()))

    def get(self, uri: str) -> Document | None:
        return self._documents.get(unquote(uri))


def scheme(uri: str) -> str:
    """The URI's scheme in lower case, "" when it has none."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", uri)
    return found[1].lower() if found else ""
