"""Assembles a prompt from all that a window knows: the document, its tree, other documents, the index.

What is shown beside the text before the cursor is chosen seldom and then kept, because a prompt that differs
at its beginning costs the whole prefill: it is chosen anew when the shown text's start moves, when the cursor
has gone far, or when something that was not there in time has arrived.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

from server.context.families import may_use
from server.context.file_errors import Snapshot
from server.context.formats import Chunk
from server.context.grammars import ParseLimit, parse_lines, parser_for
from server.context.injections import injection_at
from server.context.languages import Language
from server.context.open_documents import OpenDocument, OpenDocuments
from server.context.privacy import holds_secret, masked, text_verdict
from server.context.prompt import Around, Prompt, PromptBuilder, TextBefore
from server.context.related import fit_to_show, names_near, near_text
from server.context.suffix import keeps
from server.context.syntax import Syntax
from server.context.tags import begins_a_node, enclosing_scopes, import_rows, kind_at
from server.context.workspace import Workspace
from server.documents.document import Document, Place
from server.documents.edits import Edit
from server.documents.lines import to_line_feeds

if TYPE_CHECKING:
    from tree_sitter import Tree

FAR_ROWS = 32  # a cursor that has gone so far is somewhere else
NEAR_ROWS = 40  # of the own document: what is so near stands in the prompt anyway
INDEX_WAIT_S = 0.006
MOST_CHUNKS = 8
MOST_IMPORTS = 60
REGION_LIMIT_S = 0.01  # to parse a region of another language that the shown text begins in
MOST_TRIES = 3  # to wait for what is not there yet, or each key would change the prompt
RECENT_LINES = 8  # shown of a place in another document
MOST_RECENT = 2
MOST_CELLS = 6  # of the same notebook
MOST_OF_CELL = 1_200  # characters; a longer cell is not shown
RECENT_DOCUMENTS = 8  # other open documents whose definitions are looked through


@dataclass
class Choice:
    """What was chosen to be shown, and for which place. complete: nothing was missing then.

    start: where the shown text began (characters of the file), -1 while unknown. heads: by row of that start.
    """

    row: int
    related: list[Chunk]
    near: str
    complete: bool
    tries: int = 1
    start: int = -1
    heads: dict[int, str] = field(default_factory=dict)
    suffix: str = ""


class ContextAssembler:
    """Belongs to one event loop. `index` is None where there is no workspace to index."""

    def __init__(self, builder: PromptBuilder, workspace: Workspace | None = None) -> None:
        workspace = workspace or Workspace()
        self.documents = OpenDocuments()
        self.privacy = workspace.privacy()
        self.index = workspace.index()
        self.index_wait_s = INDEX_WAIT_S  # so long does a request wait for the index
        self._builder = builder
        self._choices: WeakKeyDictionary[OpenDocument, Choice] = WeakKeyDictionary()

    def opened(self, document: Document, path: str, file: Path | None, language: Language) -> OpenDocument:
        """A document is open. path: as the target should see it; file: on disk, None when it is nowhere."""
        entry = self.documents.opened(document, path, language, file)
        if entry.tree is not None and entry.tree.tree is None:
            entry.tree.refresh()
        return entry

    def viewed(self, document: Document, row: int) -> None:
        """The user looks at a row of an open document."""
        entry = self.documents.get(document)
        if entry is not None:
            entry.touch(row)

    def closed(self, uri: str) -> None:
        self.documents.closed(uri)

    async def ready(self, document: Document) -> None:
        """Wait until the tree and the definitions of an open document are there, for who has the time."""
        entry = self.documents.get(document)
        if entry is not None:
            await entry.ready()

    def last_edit(self, document: Document) -> Edit | None:
        """The last edit of an open document."""
        entry = self.documents.get(document)
        return None if entry is None else entry.history.last

    def inside(self, document: Document, place: Place) -> Literal["", "string", "comment"]:
        """The string or comment of one line that a place of an open document is in, as far as its tree tells."""
        entry = self.documents.get(document)
        tree = entry.tree.tree if entry is not None and entry.tree is not None else None
        syntax = entry.language.syntax if entry is not None else None
        if tree is None or syntax is None or place.line >= len(document.lines):
            return ""
        column = len(document.lines[place.line][: place.column].encode("utf-8", "replace"))
        kind, several_lines = kind_at(tree, place.line, column, syntax)
        return "" if several_lines else kind

    def snapshot(self, document: Document, place: Place, language: Language) -> Snapshot | None:
        """An open document as it now is, or the whole region that the place is in.

        language: at the place. None where it has no grammar.
        """
        entry = self.documents.get(document)
        if entry is None or language.syntax is None:
            return None
        region = injection_at(document.lines, place.line, place.column, entry.language)
        if region is not None and region.language == language:
            return Snapshot(*region.lines_of(document.lines, place), language.syntax)
        if entry.tree is None or entry.language != language:
            return None
        tree = entry.tree.tree
        return Snapshot(list(document.lines), place, language.syntax, None if tree is None else tree.copy())

    async def prompt(
        self,
        document: Document,
        place: Place,
        before: TextBefore,
        after: str,
    ) -> Prompt:
        """The prompt at a place of an open document; before, after: the text around the place as it was."""
        entry = self.documents.get(document)
        assert entry is not None, "the document was not opened"
        before, after = replace(before, text=masked(before.text)), masked(after)
        if not self._builder.shows_context:
            return self._builder.build(before, entry.path, entry.language)
        entry.touch(place.line)
        entry.list_definitions()
        choice = self._choices.get(entry)
        if choice is None or self._is_stale(choice, place):
            choice = await self._choose(entry, place, before, after, choice)
        choice.suffix = choice.suffix if keeps(choice.suffix, after) else after
        prompt = self._build(entry, before, choice)
        if choice.start >= 0 and prompt.start != choice.start:
            # All behind the beginning changes anyway: what is shown there may as well.
            choice = await self._choose(entry, place, before, after, None)
            choice.suffix = after
            prompt = self._build(entry, before, choice)
        choice.start = prompt.start
        self._choices[entry] = choice
        if entry.tree is not None:
            entry.tree.shown()
        return prompt

    def chunks_shown(self, document: Document) -> int:
        """How many chunks of other places the last prompt of a document showed."""
        entry = self.documents.get(document)
        choice = self._choices.get(entry) if entry is not None else None
        return len(choice.related) if choice is not None else 0

    def exclude(self, globs: Sequence[str]) -> None:
        """Exclude files of these globs from now on, instead of those excluded before."""
        if list(globs) == list(self.privacy.exclude):
            return
        self.privacy.exclude = list(globs)
        self._choices.clear()
        if self.index is not None:
            self.index.exclude(globs)

    async def aclose(self) -> None:
        """End the index."""
        if self.index is not None:
            await self.index.aclose()

    def _is_stale(self, choice: Choice, place: Place) -> bool:
        if abs(place.line - choice.row) > FAR_ROWS:
            return True
        return not choice.complete and choice.tries < MOST_TRIES

    def _build(self, entry: OpenDocument, before: TextBefore, choice: Choice) -> Prompt:
        folder = next((each for each in self.privacy.folders if entry.file and entry.file.is_relative_to(each)), None)
        around = Around(
            related=choice.related,
            head=lambda row: self._head(entry, row, choice),
            begins=_begins(entry),
            suffix=choice.suffix,
            repository=folder.name if folder else "",
        )
        return self._builder.build(before, entry.path, entry.language, around)

    async def _choose(
        self, entry: OpenDocument, place: Place, before: TextBefore, after: str, last: Choice | None
    ) -> Choice:
        near = near_text(before.text, after)
        if not self._builder.related_budget:
            return Choice(place.line, [], near, complete=True)
        chunks, missing = _own_definitions(entry, place, names_near(before.text, after))
        chunks = self._cells(entry) + chunks
        from_others, missing = self._from_open_documents(entry, missing)
        chunks += from_others
        complete = entry.tree is None or entry.listed
        if self.index is not None and missing and entry.file is not None:
            imports = _import_texts(entry)
            found = await self.index.find(missing, entry.file, imports, MOST_CHUNKS, self.index_wait_s)
            complete = complete and found is not None
            chunks += found or []
        chunks += self._recent(entry)
        related = self._builder.fitting_chunks(fit_to_show(chunks[: 2 * MOST_CHUNKS], near))
        # In an order of their own, so that one more or less leaves the others where they are.
        related.sort(key=lambda chunk: (chunk.path == entry.path, chunk.path, chunk.text))
        choice = Choice(place.line, related, near, complete)
        if last is not None and not last.complete and abs(place.line - last.row) <= FAR_ROWS:
            choice.tries = last.tries + 1
            if related == last.related:
                choice.start = last.start
        return choice

    def _from_open_documents(self, entry: OpenDocument, names: Sequence[str]) -> tuple[list[Chunk], list[str]]:
        """Definitions of the names in other open documents of the language, and the names without one."""
        chunks, missing = [], list(names)
        for other in self._lenders(entry)[:RECENT_DOCUMENTS]:
            if not missing or not may_use(entry.language, other.language):
                continue
            by_name = {each.name: each for each in reversed(other.definitions)}
            for name in [name for name in missing if name in by_name]:
                missing.remove(name)
                chunks.append(Chunk(other.path, by_name[name].text))
        return chunks, missing

    def _cells(self, entry: OpenDocument) -> list[Chunk]:
        """The other cells of a cell's notebook, the ones above it first, nearest first; outputs are no cells."""
        above, below = self.documents.cells_around(entry)
        cells = [cell for cell in (*reversed(above), *below) if cell.language == entry.language]
        return [
            Chunk(cell.path, text)
            for cell in cells[:MOST_CELLS]
            if len(text := to_line_feeds(cell.document.text).strip("\n")) <= MOST_OF_CELL
        ]

    def _recent(self, entry: OpenDocument) -> list[Chunk]:
        """The places in other documents at which the user was last, edited ones first."""
        others = sorted(self._lenders(entry), key=lambda other: not other.edited)
        chunks = []
        for other in others[:MOST_RECENT]:
            lines = other.document.lines
            first = max(0, min(other.row, len(lines) - 1) - RECENT_LINES // 2)
            text = to_line_feeds("".join(lines[first : first + RECENT_LINES])).strip("\n")
            if len(text) < RECENT_LINES * 200:
                chunks.append(Chunk(other.path, text))
        return chunks

    def _lenders(self, entry: OpenDocument) -> list[OpenDocument]:
        """Other open documents whose text may enter this one's prompt."""
        return [other for other in self.documents.others(entry) if other.touched and self._may_lend(other)]

    def _may_lend(self, other: OpenDocument) -> bool:
        if other.file is None:
            return self.privacy.may_be_completed(other.path, other.language.name).allowed
        if not self.privacy.may_be_context(other.file).allowed:
            return False
        return text_verdict("".join(other.document.lines[:100])).allowed

    def _head(self, entry: OpenDocument, row: int, choice: Choice) -> str:
        """Imports that the surroundings name, and the heads of the scopes that enclose a row, as whole lines."""
        if row not in choice.heads:
            lines, first = list(entry.document.lines), 0
            tree, syntax = entry.tree.tree if entry.tree is not None else None, entry.language.syntax
            region = injection_at(lines, row, 0, entry.language) if row < len(lines) else None
            if region is not None and region.language.syntax is not None:
                lines, first, syntax = region.lines_of(lines)[0], region.start[0], region.language.syntax
                tree = None
                with contextlib.suppress(ParseLimit):
                    tree = parse_lines(parser_for(syntax), lines, REGION_LIMIT_S)
            if tree is None or syntax is None:
                return ""
            names = set(names_near(choice.near, ""))
            shown = lines_above(tree, lines, row - first, syntax, names)
            choice.heads[row] = self._builder.fitting_head(shown)
        return choice.heads[row]


def lines_above(tree: Tree, lines: Sequence[str], row: int, syntax: Syntax, names: set[str]) -> list[str]:
    """What of the file above a row helps below it: imports of the names, and the heads of the scopes around the row."""
    rows = import_rows(tree, row, syntax, MOST_IMPORTS)
    shown = [line for each in rows for line in [_text(lines, each)] if not names.isdisjoint(_words(line))]
    shown += [_text(lines, each) for each in enclosing_scopes(tree, row, syntax)]
    return [text for text in shown if not holds_secret(text)]


def _own_definitions(entry: OpenDocument, place: Place, names: Sequence[str]) -> tuple[list[Chunk], list[str]]:
    """Definitions of the names that stand elsewhere in the document, and the names it does not define."""
    by_name = {each.name: each for each in reversed(entry.definitions)}
    far = [by_name[name] for name in names if name in by_name and abs(by_name[name].row - place.line) > NEAR_ROWS]
    return [Chunk(entry.path, each.text) for each in far], [name for name in names if name not in by_name]


def _import_texts(entry: OpenDocument) -> list[str]:
    tree, syntax = entry.tree.tree if entry.tree is not None else None, entry.language.syntax
    if tree is None or syntax is None:
        return []
    lines = entry.document.lines
    rows = import_rows(tree, len(lines), syntax, MOST_IMPORTS)
    return [_text(lines, each) for each in rows]


def _begins(entry: OpenDocument) -> Callable[[int], bool] | None:
    tree = entry.tree.tree if entry.tree is not None else None
    if tree is None:
        return None

    return lambda row: begins_at(tree, entry.document.lines, row)


def begins_at(tree: Tree, lines: Sequence[str], row: int) -> bool:
    """Whether something begins on a row, so that shown text may start there."""
    line = lines[row] if row < len(lines) else ""
    return begins_a_node(tree, row, len(line) - len(line.lstrip(" \t")))


def _text(lines: Sequence[str], rows: tuple[int, int]) -> str:
    text = to_line_feeds("".join(lines[rows[0] : rows[1] + 1]))
    return text if text.endswith("\n") else text + "\n"


def _words(text: str) -> list[str]:
    return names_near(text + " ", "")
