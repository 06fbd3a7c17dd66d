"""Input that nobody writes: it must cost no more than other input, and lose nothing."""

from __future__ import annotations

import pytest

from server.completion.cut import Cut
from server.completion.surroundings import surroundings
from server.documents.document import Document, Place

LINE = 500_000


def insertion(text: str, place: Place, generated: str, language: str = "javascript") -> str:
    """The text that a completion at a place inserts, streamed in blocks."""
    site = surroundings(Document("file:///a", text, language=language), place, "a", 2000)
    cut = Cut(site.cursor)
    for start in range(0, len(generated), 24):
        cut.add(generated[start : start + 24])
        if cut.decision.end is not None:
            break
    if cut.decision.end is None:
        cut.finish()
    found = cut.insertion(site)
    return "" if found is None else found.text


@pytest.mark.parametrize("language", ["javascript", "python", "go"])
@pytest.mark.parametrize("bracket", ["(", "{", "]", "({[\n"])
def test_ten_thousand_unmatched_brackets(language: str, bracket: str) -> None:
    text = bracket * 10_000 + "\nx = "
    last = text.count("\n")
    assert insertion(text, Place(last, 4), "1;\ny = 2;\n", language).startswith("1;")


def test_a_generated_text_of_nothing_but_brackets() -> None:
    assert insertion("x = ", Place(0, 4), "(" * 20_000).startswith("((")


@pytest.mark.parametrize("language", ["javascript", "python", ""])
def test_one_line_of_half_a_megabyte(language: str) -> None:
    text = "a, " * (LINE // 3)
    assert insertion(text, Place(0, 300_000), "b(1), c", language).startswith("b(1)")


def test_a_file_of_two_megabytes() -> None:
    lines = "function f(a) {\n  return a;\n}\n\n" * 62_500
    text = lines + "function g(a) {\n  \n}\n"
    assert insertion(text, Place(text.count("\n") - 2, 2), "return a;\n}\n\nfunction h() {\n") == "return a;"


def test_nul_bytes_and_other_controls_are_text() -> None:
    assert insertion("x = '\0a\x0b', ", Place(0, 11), "'\0b\x85',\ny = 1\n", "python") == "'\0b\x85',"


@pytest.mark.parametrize("language", ["shellscript", "ruby", "yaml", "cpp", "sql", "markdown"])
def test_heredocs_without_an_end(language: str) -> None:
    text = "cat <<A$(cat <<B\n" * 5000 + "echo "
    # Where they are heredocs, the cursor is in one that goes on.
    expected = "a\n\necho b" if language in ("shellscript", "ruby") else "a"
    assert insertion(text, Place(5000, 5), "a\n\necho b\n", language) == expected


@pytest.mark.parametrize("piece", ['\\"', "/ ", "=/[", '"${', "`${", '"\\(', "<<A ", 'r#"', "'"])
@pytest.mark.parametrize("language", ["python", "typescriptreact", "kotlin", "shellscript", "swift", "rust"])
def test_a_line_of_nothing_but_beginnings_is_read_once(language: str, piece: str) -> None:
    line = piece * 4000
    assert insertion(line, Place(0, len(line)), "\n\n", language) == ""
