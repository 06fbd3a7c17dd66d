"""Input that nobody writes: it must cost no more than other input, and lose nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.benchmarks import odd_input
from server.benchmarks.odd_input import sweep
from server.cli import main
from server.completion.cut import Cut
from server.completion.fit import fit
from server.completion.surroundings import surroundings
from server.context.grammars import ParseLimit, parse, parser_for
from server.context.languages import LANGUAGES, Language, language_for
from server.context.long_steps import pieces
from server.context.syntax import Syntax
from server.documents.document import Document, Place
from server.profiles import load_profile

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
    kept = cut.kept()
    return fit(kept, site).text if kept else ""


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


@pytest.mark.parametrize("piece", ["#", '\\"', "/ ", "=/[", '"${', "`${", '"\\(', "<<A ", 'r#"', "'"])
@pytest.mark.parametrize("language", ["python", "typescriptreact", "kotlin", "shellscript", "swift", "rust"])
def test_a_line_of_nothing_but_beginnings_is_read_once(language: str, piece: str) -> None:
    line = piece * 4000
    assert insertion(line, Place(0, len(line)), "\n\n", language) == ""


@pytest.mark.parametrize("language", ["rust", "java", "python"])
def test_text_that_leaves_hundreds_of_brackets_open_is_not_parsed(language: str) -> None:
    """Rust's parser takes seconds to mend this, in steps that no callback interrupts."""
    text = "%w(" * 2000
    with pytest.raises(ParseLimit):
        parse(parser_for(_syntax(language)), text.encode(), 30.0)
    assert insertion(text + "\nx = ", Place(1, 4), "1;\ny = 2;\n", language).startswith("1")


def _syntax(language: str) -> Syntax:
    syntax = language_for(language).syntax
    assert syntax is not None
    return syntax


class _CountedBytes(bytes):
    """Bytes that count how often somebody reads of them."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return super().__getitem__(place)


def test_a_scanner_that_reads_on_within_one_token_is_stopped_as_well() -> None:
    """It asks no callback for leave: the text ends for it where the time does."""
    data = _CountedBytes(b"\\\n" * 20_000)
    pieces(data)
    known = data.reads
    with pytest.raises(ParseLimit):
        parse(parser_for(_syntax("python")), data, 0.0)
    assert data.reads <= 2 * known + 2


@pytest.mark.parametrize("comment", ["#", "#[", "#if"])
def test_thousands_of_comments_in_a_row_are_read_once(comment: str) -> None:
    text = f"{comment}\n" * 3000 + "x = "
    assert insertion(text, Place(3000, 4), "1\ny = 2\n", "python") == "1"


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda each: each.name)
async def test_odd_input_costs_little_and_leaves_the_file_no_worse(language: Language) -> None:
    """Some of what `bench boundaries --odd` runs whole, on the service that editors use."""
    reports = await sweep(load_profile("embedded"), [language], 800, 32, seed=4)
    report = reports[language.name]
    assert report.cases == 32 and {"open", "edit", "prompt", "cut", "sound", "fit"} <= set(report.worst)
    assert (report.over_budget, report.unsound) == ([], [])


def test_what_costs_more_than_its_budget_or_parses_worse_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(odd_input, "BUDGET_S", 0.0)
        patch.setattr(odd_input, "sound_text", lambda text, *_: text + ")(")
        assert main(["bench", "boundaries", "--odd", "50", "--language", "python", "--count", "4", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)["python"]
    assert len(report["over_budget"]) == report["cases"] == 4 and report["unsound"]
