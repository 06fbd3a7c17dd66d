"""The menu's item: all lines in the form its client can insert, in the right place in each encoding."""

from __future__ import annotations

import pytest
from editor import URI, editor, options
from lsprotocol import types

from server.completion.result import CompletionResult, Stats
from server.documents.document import Document, Place
from server.documents.positions import Position, Range
from server.menu import MenuAbilities, MenuSite, menu_item
from server.profiles import Profile

ENTRIES: list[dict[str, object]] = [{"after": "😀漢', tot", "text": "al(1,\n    2)\n"}]
COMMAND = types.Command("Accepted", "dflash.accepted")


def item(text: str, line: str, abilities: MenuAbilities, language: str = "python") -> types.CompletionItem:
    document = Document("file:///a", line, language=language)
    end = Position(0, len(line))
    result = CompletionResult(text, Range(end, end), "boundary", "", Stats())
    return menu_item(MenuSite.of(document, Place(0, len(line))), result, COMMAND, abilities)


def new_text(found: types.CompletionItem) -> str:
    assert isinstance(found.text_edit, types.TextEdit)
    return found.text_edit.new_text


def abilities_of(client: str, item: types.ClientCompletionItemOptions | None) -> MenuAbilities:
    menu = types.CompletionClientCapabilities(completion_item=item)
    declared = types.ClientCapabilities(text_document=types.TextDocumentClientCapabilities(completion=menu))
    return MenuAbilities.of(types.InitializeParams(declared, client_info=types.ClientInfo(client)))


@pytest.mark.parametrize(("encoding", "start", "end"), [("utf-8", 11, 14), ("utf-16", 7, 10), ("utf-32", 6, 9)])
async def test_the_range_is_right_in_every_encoding(profile: Profile, encoding: str, start: int, end: int) -> None:
    async with editor(options(profile, surface="menu"), encodings=[encoding]) as ours:
        await ours.until_state("ready")
        ours.open("x = 1\n'😀漢', tot")
        found = await ours.client.text_document_completion_async(
            types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(1, end))
        )
        assert isinstance(found, types.CompletionList) and found.is_incomplete
        (only,) = found.items
        assert new_text(only) == "total(1,\n    2)"
        assert isinstance(only.text_edit, types.TextEdit)
        assert only.text_edit.range == types.Range(types.Position(1, start), types.Position(1, end))
        assert only.sort_text is not None and only.sort_text < " "
        assert only.documentation == new_text(only)


def test_text_is_inserted_as_it_is() -> None:
    found = item("{\n    $a\n  }", "  if x ", MenuAbilities())
    assert new_text(found) == "{\n    $a\n  }"
    assert (found.insert_text_format, found.insert_text_mode) == (
        types.InsertTextFormat.PlainText,
        types.InsertTextMode.AsIs,
    )
    assert found.kind == types.CompletionItemKind.Text
    assert found.detail == "DFlash, 3 lines"


def test_a_snippet_is_escaped_and_leaves_the_indentation_to_the_client() -> None:
    found = item("{\n    $a = `\\n`\n\n  }", "  if x ", MenuAbilities(snippets=True))
    assert new_text(found) == "{\n  \\$a = `\\\\n`\n\n\\}"
    assert (found.insert_text_format, found.insert_text_mode) == (
        types.InsertTextFormat.Snippet,
        types.InsertTextMode.AdjustIndentation,
    )


@pytest.mark.parametrize("text", ["one line $1", "1\nless = indented"])
def test_what_no_snippet_can_say_is_plain_text(text: str) -> None:
    found = item(text, "    x = ", MenuAbilities(snippets=True))
    assert new_text(found) == text
    assert found.insert_text_format == types.InsertTextFormat.PlainText


def test_a_preview_in_markdown_is_code_whatever_it_holds() -> None:
    found = item("```\na\n```", "", MenuAbilities(markdown=True), language="markdown")
    assert found.documentation == types.MarkupContent(types.MarkupKind.Markdown, "````markdown\n```\na\n```\n````")


def test_abilities_are_what_the_client_declares() -> None:
    snippets = types.ClientCompletionItemOptions(snippet_support=True, documentation_format=[types.MarkupKind.Markdown])
    as_is = types.ClientCompletionItemInsertTextModeOptions([types.InsertTextMode.AsIs])
    both = types.ClientCompletionItemOptions(snippet_support=True, insert_text_mode_support=as_is)
    assert abilities_of("Neovim", snippets) == MenuAbilities(snippets=True, markdown=True)
    assert abilities_of("Neovim", both) == MenuAbilities()
    assert abilities_of("kate", snippets) == MenuAbilities(markdown=True)
    assert abilities_of("kate", both) == MenuAbilities()
    assert abilities_of("helix", both) == MenuAbilities(markdown=True)
    assert abilities_of("Neovim", None) == MenuAbilities()
