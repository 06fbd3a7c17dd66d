"""A completion is offered unless there is a reason not to, and the reason is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.completion.boundaries.boundary import CursorText
from server.completion.offer import Offer, Situation, inside_line, offer_at
from server.completion.request import CompletionOptions
from server.completion.service import CompletionService
from server.completion.surroundings import surroundings
from server.context.languages import language_for
from server.context.workspace import Workspace
from server.documents.document import Change, Document, Place
from server.documents.edits import EditHistory
from server.documents.positions import Encoding, Position, Range
from server.profiles import load_profile

PYTHON = language_for("python")


def offer(marked: str, language: str = "python", **situation: object) -> Offer:
    """What is offered at the `|` of a text."""
    before, _, after = marked.partition("|")
    cursor = CursorText(before, after, language_for(language))
    place = Place(before.count("\n"), len(before) - before.rfind("\n") - 1)
    return offer_at(cursor, place, Situation(**situation))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("marked", "language"),
    [
        ("def f(a):|\n", "python"),
        ("def f(a):\n    |\n", "python"),
        ("x = val|", "python"),
        ("foo(|)", "python"),
        ("foo(|, b)", "python"),
        ("if (a|) {\n", "typescript"),
        ("for (let i = 0;|)", "typescript"),
        ("return a|;", "java"),
        ("", "python"),
        ("x = a |+ b", "python"),
        ("<App |/>", "typescriptreact"),
        ("pass_through|", "python"),
    ],
)
def test_something_is_offered(marked: str, language: str) -> None:
    assert offer(marked, language).reason == ""


@pytest.mark.parametrize(
    ("marked", "language", "reason"),
    [
        ("re|turn x", "python", "inside a word"),
        ("x = |" + "some.long(call, of, things) + " * 3, "python", "too much text right of the cursor"),
        ("foo();|\n", "typescript", "after a finished statement"),
        ("    pass|\n", "python", "after a finished statement"),
        ("    return;|", "c", "after a finished statement"),
    ],
)
def test_where_hardly_one_is_accepted_nothing_is_offered(marked: str, language: str, reason: str) -> None:
    assert offer(marked, language).reason == reason
    assert offer(marked, language, explicit=True).reason == ""


def test_nothing_is_offered_on_a_selection() -> None:
    assert offer("x = |", selected=True).reason == "text is selected"


def edited(*edits: tuple[int, int, int, int, str], text: str = "x = 12\ny = 3\n") -> EditHistory:
    document = Document("file:///a.py", text, encoding=Encoding.UTF32)
    history = EditHistory()
    document.watch(history.note)
    for line, start, end_line, end, inserted in edits:
        document.apply([Change(inserted, Range(Position(line, start), Position(end_line, end)))])
    return history


@pytest.mark.parametrize(
    ("edits", "kind", "end"),
    [
        ([(0, 6, 0, 6, "3")], "insertion", Place(0, 7)),
        ([(0, 4, 0, 6, "abc")], "replacement", Place(0, 7)),
        ([(0, 5, 0, 6, "")], "deletion", Place(0, 5)),
        ([(0, 0, 1, 0, "")], "deletion", Place(0, 0)),
        ([(0, 6, 0, 6, "\n    ")], "insertion", Place(1, 4)),
        ([(0, 4, 0, 6, ""), (0, 4, 0, 4, "12")], "undo", Place(0, 6)),
        ([(0, 4, 0, 6, "abc"), (0, 4, 0, 7, "12")], "undo", Place(0, 6)),
        ([(0, 5, 0, 6, ""), (0, 5, 0, 5, "2")], "insertion", Place(0, 6)),  # one letter is typed again
    ],
)
def test_edits_are_told_apart(edits: list[tuple[int, int, int, int, str]], kind: str, end: Place) -> None:
    last = edited(*edits).last
    assert last is not None and (last.kind, last.end) == (kind, end)


def test_an_edit_that_changes_nothing_is_none() -> None:
    assert edited((0, 4, 0, 6, "12")).last is None


@pytest.mark.parametrize(
    ("edits", "reason"),
    [([(0, 4, 0, 6, "")], "after a deletion"), ([(0, 4, 0, 6, ""), (0, 4, 0, 4, "12")], "after an undo")],
)
def test_nothing_is_offered_right_after_what_takes_back(
    edits: list[tuple[int, int, int, int, str]], reason: str
) -> None:
    last = edited(*edits).last
    assert last is not None
    marked = "x = |" if reason == "after a deletion" else "x = 12|"
    assert offer(marked, last_edit=last).reason == reason
    assert offer(marked, last_edit=last, explicit=True).reason == ""
    assert offer("\n\ny = |", last_edit=last).reason == ""  # the cursor has gone elsewhere


@pytest.mark.parametrize(
    ("marked", "inside", "single_line"),
    [
        ("# a note |", "comment", "inside a comment"),
        ("x = 'a|'", "string", "inside a string"),
        ("x = a |+ b", "", "text right of the cursor"),
        ("if x:|\n    y = 1\n", "", "its block is there already"),
        ("if x:|\n\ny = 1\n", "", ""),
        ("if x:|\n", "", ""),
        ("def f():\n    |\n", "", ""),
        ("foo(|)", "", ""),
    ],
)
def test_one_line_or_more_is_decided_by_the_place(marked: str, inside: str, single_line: str) -> None:
    assert offer(marked, inside=inside).single_line == single_line


@pytest.mark.parametrize(
    ("line", "language", "inside"),
    [
        ("x = 'ab", "python", "string"),
        ("x = 'ab'", "python", ""),
        ("x = 'a\\'b", "python", "string"),
        ("x = 1  # no", "python", "comment"),
        ("x = '# no'", "python", ""),
        ('x = """ab', "python", ""),
        ("let x: &'a str", "rust", ""),
        ("// it's", "typescript", "comment"),
        ("it's", "markdown", ""),
        ("", "python", ""),
    ],
)
def test_a_line_alone_tells_what_it_ends_in(line: str, language: str, inside: str) -> None:
    assert inside_line(line, language_for(language)) == inside


def at(service: CompletionService, document: Document, place: Place, path: str, explicit: bool = False) -> Offer:
    service.opened(document, path)
    site = surroundings(document, place, path, service.prompts.limit)
    return service.offer(document, site, CompletionOptions(explicit=explicit))


async def test_a_secret_or_excluded_document_is_not_completed_even_when_asked(tmp_path: Path) -> None:
    service = CompletionService(load_profile("replay"), workspace=Workspace((tmp_path,), exclude=("legacy/*",)))
    for name, reason in ((".env", "secret file"), ("legacy/a.py", "excluded"), ("a.py", "")):
        document = Document((tmp_path / name).as_uri(), "x = ")
        for explicit in (True, False):
            assert at(service, document, Place(0, 4), name, explicit).reason == reason
    result = await service.complete(Document((tmp_path / ".env").as_uri(), "KEY="), Place(0, 4), ".env")
    assert (result.text, result.finish, result.reason) == ("", "empty", "secret file")
    await service.aclose()


async def test_the_service_knows_of_edits_and_of_the_tree() -> None:
    service = CompletionService(load_profile("replay"))
    document = Document("untitled:a", '"""doc\nmore\n"""\nx = 12\n', language="python")
    assert at(service, document, Place(3, 6), "a").reason == ""
    document.apply([Change("", Range(Position(3, 5), Position(3, 6)))])
    assert at(service, document, Place(3, 5), "a").reason == "after a deletion"
    document.apply([Change("'a'", Range(Position(3, 5), Position(3, 5)))])
    await service.ready(document, "a")
    assert at(service, document, Place(3, 7), "a").single_line == "inside a string"
    assert at(service, document, Place(1, 4), "a").single_line == ""
    await service.aclose()
