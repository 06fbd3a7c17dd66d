"""A script or style in a page, and code in a fence of Markdown, are completed by rules of their own language."""

from __future__ import annotations

import pytest

from server.completion.offer import inside_line
from server.completion.surroundings import surroundings
from server.context.grammars import parse_lines, parser_for
from server.context.injections import all_definitions, injection_at, injections
from server.context.languages import language_for
from server.documents.document import Document, Place
from server.documents.lines import split_lines

PAGE = """<!doctype html>
<style>
.card-title { color: red; }
</style>
<SCRIPT type="module">
function openMenu(a) {
  return "</p>";
}
</SCRIPT>
<script type="application/ld+json">{"a": 1}</script>
<script type="text/x-template"><p>a</p></script>
<script lang="ts">
let b: number = 1;
"""


@pytest.mark.parametrize(
    ("row", "column", "language"),
    [
        (0, 3, None),
        (2, 5, "css"),
        (3, 0, "css"),
        (3, 8, None),
        (5, 0, "javascript"),
        (6, 14, "javascript"),
        (9, 38, "json"),
        (9, 0, None),
        (10, 33, "html"),
        (12, 4, "typescript"),
    ],
)
def test_the_language_of_a_place_in_a_page(row: int, column: int, language: str | None) -> None:
    region = injection_at(split_lines(PAGE), row, column, language_for("html"))
    assert (region.language.name if region is not None else None) == language


@pytest.mark.parametrize(
    ("page", "language"),
    [
        ("<!-- <script> -->\n|", None),
        ("<!--\n<script>\n-->\n|", None),
        ("<!--\n<script>\n|\n-->\n", None),
        ("<!-- a -->\n<script>\n|", "javascript"),
        ("<!--\n--> <script>\n|", "javascript"),
        ('<a title="<script>">\n|', None),
        ('<a title="<script>|">\n', None),
        ("<a title='</script>'><script>\n|", "javascript"),
        ("<script-loader>\n|\n</script-loader>", None),
        ("<styled>\n|", None),
        ("<script>\nif (a<b) x = 'y';\n|\n</script>", "javascript"),
        ("<script>\nx = '<!--';\n</script>\n|", None),
        ('<script\n  type="module"\n  lang="ts"\n>\n|\n</script>', "typescript"),
        ('<script\n  type="|"\n></script>', None),
        ('<script\n  src="a"\n></script>\n|', None),
        ("<SCRIPT>\n|\n</Script>", "javascript"),
    ],
)
def test_a_tag_in_a_comment_or_a_value_begins_no_region(page: str, language: str | None) -> None:
    before, _, after = page.partition("|")
    lines = split_lines(before + after)
    row = before.count("\n")
    found = injection_at(lines, row, len(before) - before.rfind("\n") - 1, language_for("html"))
    assert (found.language.name if found is not None else None) == language


def test_a_line_of_many_tags_that_are_never_closed_is_read_once() -> None:
    lines = ["<script " * 50_000, ""]
    assert injection_at(lines, 1, 0, language_for("html")) is None
    assert list(injections(lines, language_for("html"))) == []


@pytest.mark.parametrize(
    ("row", "language"), [(0, None), (1, None), (2, "python"), (3, None), (5, None), (7, None), (9, "shellscript")]
)
def test_the_language_of_a_line_in_markdown(row: int, language: str | None) -> None:
    lines = split_lines("# a\n```python\nx = 1\n```\ntext\n~~~\nno name\n~~~\n```sh\necho a\n")
    region = injection_at(lines, row, 0, language_for("markdown"))
    assert (region.language.name if region is not None else None) == language


def test_a_place_in_a_script_sees_no_further_than_the_script() -> None:
    document = Document("file:///a.html", PAGE, language="html")
    site = surroundings(document, Place(6, 9), "a.html", 1000)
    assert site.cursor.before == "\nfunction openMenu(a) {\n  return "
    assert site.cursor.after == '"</p>";\n}\n'
    assert (site.cursor.language.name, site.cursor.end_mark, site.language.name) == ("javascript", "</script", "html")
    assert inside_line('  return "', site.cursor.language) == "string"


def test_definitions_of_scripts_and_styles_are_those_of_the_page() -> None:
    html = language_for("html")
    lines = split_lines(PAGE)
    assert html.syntax is not None
    found = all_definitions(parse_lines(parser_for(html.syntax), lines, 5.0), lines, html)
    assert [(each.name, each.row) for each in found] == [("card-title", 2), ("openMenu", 5)]
