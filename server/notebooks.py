"""What clients tell of notebooks: each cell is a document like any other, and the notebook says their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

if TYPE_CHECKING:
    from server.lsp import DflashServer

SYNC = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("*")])


def add_notebook_features(server: DflashServer) -> None:
    """Register them."""
    window = server.window

    def open_cell(cell: types.TextDocumentItem) -> None:
        window.documents.open(cell.uri, cell.text, cell.language_id, cell.version)
        window.opened(cell.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenNotebookDocumentParams) -> None:
        opened = params.notebook_document
        window.notebooks.opened(opened.uri, [cell.document for cell in opened.cells])
        for cell in params.cell_text_documents:
            open_cell(cell)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeNotebookDocumentParams) -> None:
        cells = params.change.cells
        structure = cells.structure if cells is not None else None
        if structure is not None:
            new = structure.array
            window.notebooks.changed(
                params.notebook_document.uri, new.start, new.delete_count, [cell.document for cell in new.cells or ()]
            )
            for opened in structure.did_open or ():
                open_cell(opened)
            for closed in structure.did_close or ():
                window.closed(closed.uri)
        for content in (cells.text_content if cells is not None else None) or ():
            server.change(content.document, content.changes)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseNotebookDocumentParams) -> None:
        window.notebooks.closed(params.notebook_document.uri)
        for cell in params.cell_text_documents:
            window.closed(cell.uri)
