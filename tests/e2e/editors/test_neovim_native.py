"""Neovim's own inline completion (0.12) with our server, and the growth that the plugin's folder adds to it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Windows
from recording import AREA, slow_head
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
