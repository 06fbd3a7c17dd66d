"""Cells of a notebook are completed like files, and see the other cells in the notebook's order."""

from __future__ import annotations

from editor import editor, options
from lsprotocol import types
from test_context_assembly import Window, shown

from server.context.open_documents import file_of
from server.documents.notebooks import Notebooks, notebook_of
from server.profiles import Profile
from server.window import path_in_workspace

NOTEBOOK = "file:///work/a%20b.ipynb"
CELLS = [f"vscode-notebook-cell:/work/a%20b.ipynb#W{number}sZmlsZQ%3D%3D" for number in range(3)]
ENTRIES: list[dict[str, object]] = [
    {"after": "short = ", "text": "[1, 2]", "chunks": ["[1,", " 2]"]},
    {"after": "long = ", "text": "{3}"},
]


def item(number: int, text: str) -> types.TextDocumentItem:
    return types.TextDocumentItem(CELLS[number], "python", 1, text)


async def test_cells_that_came_as_documents_are_completed(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        ours.open("short = ", CELLS[0])
        assert (await ours.complete(0, 8, CELLS[0])).insert_text == "[1, 2]"


async def test_cells_that_came_with_their_notebook_are_completed_and_follow_its_changes(profile: Profile) -> None:
    async with editor(options(profile)) as ours:
        await ours.until_state("ready")
        code = types.NotebookCellKind.Code
        ours.client.notebook_document_did_open(
            types.DidOpenNotebookDocumentParams(
                types.NotebookDocument(NOTEBOOK, "jupyter-notebook", 1, [types.NotebookCell(code, CELLS[0])]),
                [item(0, "short = ")],
            )
        )
        assert (await ours.complete(0, 8, CELLS[0])).insert_text == "[1, 2]"
        identifier = types.VersionedTextDocumentIdentifier(2, CELLS[0])
        whole = types.Range(types.Position(0, 0), types.Position(0, 5))
        ours.client.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(2, NOTEBOOK),
                types.NotebookDocumentChangeEvent(
                    cells=types.NotebookDocumentCellChanges(
                        structure=types.NotebookDocumentCellChangeStructure(
                            types.NotebookCellArrayChange(1, 0, [types.NotebookCell(code, CELLS[1])]),
                            did_open=[item(1, "x = 1\nshort = ")],
                        ),
                        text_content=[
                            types.NotebookDocumentCellContentChanges(
                                identifier, [types.TextDocumentContentChangePartial(whole, "long")]
                            )
                        ],
                    )
                ),
            )
        )
        assert (await ours.complete(0, 7, CELLS[0])).insert_text == "{3}"
        assert (await ours.complete(1, 8, CELLS[1])).insert_text == "[1, 2]"
        ours.client.notebook_document_did_close(
            types.DidCloseNotebookDocumentParams(
                types.NotebookDocumentIdentifier(NOTEBOOK), [types.TextDocumentIdentifier(CELLS[0])]
            )
        )
        assert await ours.complete(0, 7, CELLS[0]) is None
        assert ours.statuses[-1].reason == "unknown document"


async def test_a_cell_sees_the_others_the_nearest_above_first() -> None:
    window = Window()
    notebooks = Notebooks()
    notebooks.opened(NOTEBOOK, [CELLS[2], CELLS[0], CELLS[1]])
    window.service.context.documents.place_in_notebook = notebooks.place_of
    texts = ["import numpy as np", "print(total_of_all)", "total_of_all = 5"]
    cells = [await window.open(uri, text, "a b.ipynb") for uri, text in zip(CELLS, texts, strict=True)]
    text = shown(await window.prompt(cells[1]))
    assert "import numpy as np" in text and "total_of_all = 5" in text and text.endswith("print(total_of_all)")
    above, below = window.service.context.documents.cells_around(window.service.context.documents.get(cells[0]))
    assert [each.document for each in above] == [cells[2]] and [each.document for each in below] == [cells[1]]


def test_a_cell_is_named_by_its_notebook() -> None:
    assert path_in_workspace(CELLS[0], ["file:///work"]) == "a b.ipynb"
    assert str(file_of(CELLS[0])) == "/work/a b.ipynb"
    assert notebook_of("git:/w/a.py?{}") == "git:/w/a.py?{}"


def test_cells_move_with_their_notebook() -> None:
    notebooks = Notebooks()
    notebooks.opened("n", ["a", "b", "c"])
    notebooks.changed("n", 0, 2, ["x%20y", "b"])
    assert [notebooks.place_of(each) for each in ("x y", "b", "c", "a")] == [0, 1, 2, 0]
    notebooks.closed("n")
    assert notebooks.place_of("c") == 0
