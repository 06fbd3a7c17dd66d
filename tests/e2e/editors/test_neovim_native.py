"""Neovim's own inline completion (0.12) with our server, and the growth that the plugin's folder adds to it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Windows
from recording import AREA, GO_AREA, slow_head
from world import World

from neovim import Neovim

pytestmark = pytest.mark.all_editors
HEAD = "def area(width, height):\n"
SHOWN = AREA.lstrip()
CANCELLED = 'dflash_requests_total{finish="cancelled"}'
# As docs/editors/neovim.md and |dflash-native| say it.
THREE_LINES = """
vim.lsp.enable("dflash")
vim.lsp.inline_completion.enable()
vim.keymap.set("i", "<Tab>", function()
  return vim.lsp.inline_completion.get() and "" or "<Tab>"
end, { expr = true })
"""


@pytest.fixture
def native(windows: Windows, version: str, replay: World) -> Neovim:
    if version != "0.12":
        pytest.skip("Neovim has inline completion since 0.12")
    nvim = windows.start(replay.write("native.py", HEAD), init=THREE_LINES)
    nvim.wait_ready()
    return nvim


def edit(native: Neovim, file: Path) -> None:
    """Open a file, and wait until Neovim has told the server of it, which it does a little later."""
    native.command(f"edit {file}")
    native.wait(lambda: native.ask("luaeval('#vim.lsp.get_clients({ bufnr = 0 })')") == "1", "an attached server")


def test_it_shows_and_accepts(native: Neovim, replay: World) -> None:
    native.type("Go")
    native.wait_ghost(SHOWN)
    native.type("<Tab>")
    native.wait_ghost("")
    native.wait_for("return width * height")
    assert native.saved(replay.workspace / "native.py").decode() == HEAD + AREA + "\n"
    assert native.messages() == ""


def test_it_grows_without_gaps_and_follows_what_is_typed(native: Neovim, replay: World) -> None:
    edit(native, replay.write("grows.py", slow_head("native")))
    seen = native.record(lambda: native.ghost)
    native.type("Go")
    native.wait_ghost(SHOWN)
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen)), seen
    assert len(seen) >= 4
    seen[:] = [SHOWN]
    native.type_slowly("if wi")
    native.wait_ghost(SHOWN.removeprefix("if wi"))
    assert all(ghost != "" and SHOWN.endswith(ghost) for ghost in seen), seen


def test_a_key_cancels_what_runs(native: Neovim, replay: World) -> None:
    edit(native, replay.write("against.py", slow_head("native_against")))
    before = replay.metric(CANCELLED)
    native.type("Go")
    native.wait(lambda: native.ghost, "the first of it")
    native.type("x")
    native.wait(lambda: replay.metric(CANCELLED) > before, "a cancelled request")
    native.escape()
    native.wait_ghost("")
    assert native.messages() == ""


def test_line_ends_of_the_file_are_kept(native: Neovim, replay: World) -> None:
    file = replay.write("dos.py", HEAD.replace("\n", "\r\n"))
    edit(native, file)
    native.type("Go")
    native.wait_ghost(SHOWN)
    native.type("<Tab>")
    native.wait_for("return width * height")
    native.wait_ghost("")
    assert native.saved(file).decode() == (HEAD + AREA + "\n").replace("\n", "\r\n")


def test_tabs_wide_characters_and_latin1_are_accepted_as_they_are(native: Neovim, replay: World) -> None:
    head = "func area(width, height int) int {\n"
    file = replay.write("area.go", head)
    edit(native, file)
    native.command("set tabstop=4 shiftwidth=0")
    native.type("Go")
    native.wait(lambda: "return width * height" in native.ghost, "ghost text")
    native.type("<Tab>")
    native.wait_ghost("")
    assert native.saved(file).decode() == head + GO_AREA + "\n"
    file = replay.write("wide.py", 'print("😀漢字", )\n')
    edit(native, file)
    native.type("f)i")
    native.wait_for('"größe 😀", 漢字')
    native.type("<Tab>")
    native.wait_ghost("")
    assert native.saved(file).decode() == 'print("😀漢字", "größe 😀", 漢字)\n'
    latin = ("# größe\n" + HEAD).encode("latin-1")
    file = replay.write("latin.py", latin)
    edit(native, file)
    native.type("Go")
    native.wait_ghost(SHOWN)
    native.type("<Tab>")
    native.wait_ghost("")
    assert native.saved(file) == latin + (AREA + "\n").encode("latin-1")


def test_accepting_right_after_typing_along_doubles_nothing(native: Neovim, replay: World) -> None:
    native.type("Go")
    native.wait_ghost(SHOWN)
    native.type_slowly("if wi")
    native.type("<Tab>")  # before Neovim asks again
    native.wait_ghost("")
    native.wait_for("return width * height")
    native.escape()
    assert native.ask("getline(2, '$')") == str(AREA.split("\n"))
    native.type("u")
    assert native.ask("getline(2, '$')") == "[]"


def test_what_no_longer_fits_is_not_accepted(native: Neovim, replay: World) -> None:
    native.type("Go")
    native.wait_ghost(SHOWN)
    native.type("x<Tab>")  # before Neovim asks again
    native.watch(1.0)
    native.escape()
    assert native.ask("trim(getline(2))") == "'x'"
