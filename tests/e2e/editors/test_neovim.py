"""The Neovim plugin in a real Neovim: what is shown, and what becomes of it."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Windows
from recording import AREA, GO_AREA, ROWS, slow_head
from world import PICTURES, ROOT, World

HEAD = "def area(width, height):\n"
SHOWN = AREA.lstrip()  # the editor indents the first line itself
CANCELLED = 'dflash_requests_total{finish="cancelled"}'
QUIET_S = 0.5  # for what must not come


def is_rest(ghost: str, whole: str) -> bool:
    return ghost != "" and whole.endswith(ghost)


def test_a_completion_is_shown_accepted_and_saved(windows: Windows, replay: World) -> None:
    file = replay.write("area.py", HEAD)
    nvim = windows.open(file)
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    nvim.save_picture(PICTURES / "neovim.svg")
    nvim.type("<Tab>")
    nvim.wait_for("return width * height")
    assert nvim.saved(file).decode() == HEAD + AREA + "\n"
    assert nvim.messages() == ""


def test_a_completion_grows_without_gaps_and_never_shrinks(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("grow.py", slow_head("grow")))
    seen = nvim.record(lambda: nvim.ghost)
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    assert seen[0] == ""
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen)), seen
    assert len(seen) >= 4


def test_typing_what_is_shown_leaves_the_rest_without_a_gap(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("through.py", HEAD))
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    seen = nvim.record(lambda: nvim.ghost)
    nvim.type_slowly("if width < 0")
    nvim.wait_ghost(SHOWN.removeprefix("if width < 0"))
    assert all(is_rest(ghost, SHOWN) for ghost in seen), seen
    # On to the next line, whose indentation is the editor's.
    nvim.type_slowly(" or height < 0:<Enter>ra")
    nvim.wait_ghost(SHOWN.partition("ra")[2])
    assert all(is_rest(ghost, SHOWN) for ghost in seen), seen


def test_typing_along_while_it_grows_has_no_gap(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("along.py", slow_head("along")))
    nvim.type("Go")
    nvim.wait(lambda: nvim.ghost, "the first of it")
    seen = nvim.record(lambda: nvim.ghost)
    nvim.type_slowly("if wi")
    nvim.wait_ghost(SHOWN.removeprefix("if wi"))
    assert all(seen), seen


def test_typing_something_else_hides_it_and_frees_the_engine(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("against.py", slow_head("against")))
    before = replay.metric(CANCELLED)
    nvim.type("Go")
    nvim.wait(lambda: nvim.ghost, "the first of it")
    nvim.type("x")
    nvim.wait_ghost("")
    seen = nvim.record(lambda: nvim.ghost)
    nvim.wait(lambda: replay.metric(CANCELLED) > before, "a cancelled request")
    nvim.watch(QUIET_S)
    assert seen == [""]


def test_words_and_lines_are_accepted_one_by_one(windows: Windows, replay: World) -> None:
    file = replay.write("pieces.py", HEAD)
    nvim = windows.open(file)
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    for left in (" width < 0", " < 0", " 0", ""):
        nvim.type("<M-Right>")
        nvim.wait_ghost(left + SHOWN.removeprefix("if width < 0"))
    nvim.type("<M-C-Right>")
    nvim.wait(lambda: nvim.ghost.startswith("        raise"), "the line accepted")
    nvim.type("<M-Right>")  # from a line's end, the next one's first word
    nvim.wait(lambda: nvim.ghost.startswith(" ValueError"), "a word of the next line accepted")
    nvim.type("<M-C-Right>")
    nvim.wait_ghost("    return width * height")
    nvim.type("<M-C-Right>")
    nvim.wait_ghost("")
    assert nvim.saved(file).decode() == HEAD + AREA + "\n"


def test_what_the_editor_has_closed_is_not_closed_twice(windows: Windows, replay: World) -> None:
    file = replay.write("closed.py", "total = add()\n")
    nvim = windows.open(file)
    nvim.type("f)i")
    nvim.wait_ghost("first, second")
    assert nvim.lines[0] == "total = add(first, second)"
    nvim.type("<M-Right>")
    nvim.wait_ghost(", second")
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    assert nvim.saved(file) == b"total = add(first, second)\n"


def test_several_lines_move_what_is_right_of_the_cursor_below(windows: Windows, replay: World) -> None:
    file = replay.write("rows.py", "print(rows = [])\n")
    nvim = windows.open(file)
    nvim.type("f]i")
    nvim.wait(lambda: nvim.ghost, "ghost text")
    assert nvim.lines[:4] == ["print(rows = [", "    first,", "    second,", "])"]
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    assert nvim.saved(file).decode() == "print(rows = [" + ROWS + ")\n"


def test_tabs_are_shown_as_wide_as_they_are_and_accepted_as_tabs(windows: Windows, replay: World) -> None:
    head = "func area(width, height int) int {\n"
    file = replay.write("area.go", head)
    nvim = windows.open(file)
    nvim.command("set tabstop=4 shiftwidth=0")  # 0.10 would indent by two tabs
    nvim.type("Go")
    nvim.wait(lambda: "return width * height" in nvim.ghost, "ghost text")
    assert nvim.lines[1:4] == ["    if width < 0 {", "        return 0", "    }"]
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    assert nvim.saved(file).decode() == head + GO_AREA + "\n"


@pytest.mark.parametrize(("ends", "encoding"), [("\r\n", "utf-8"), ("\n", "latin-1"), ("\r\n", "latin-1")])
def test_line_ends_and_encoding_of_the_file_are_kept(windows: Windows, replay: World, ends: str, encoding: str) -> None:
    head = "# größe\n" + HEAD
    file = replay.write("kept.py", head.replace("\n", ends).encode(encoding))
    nvim = windows.open(file)
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    nvim.type("<M-C-Right>")
    nvim.wait_ghost(SHOWN.partition("\n")[2])
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    assert nvim.saved(file) == (head + AREA + "\n").replace("\n", ends).encode(encoding)


def test_wide_characters_before_and_in_the_text(windows: Windows, replay: World) -> None:
    file = replay.write("wide.py", 'print("😀漢字", )\n')
    nvim = windows.open(file)
    nvim.type("f)i")
    nvim.wait(lambda: nvim.ghost.replace(" ", "") == '"größe😀",漢字', "ghost text")
    nvim.type("<M-Right>")
    nvim.wait(lambda: nvim.ghost.startswith("größe"), "a quote accepted")
    nvim.type("<M-Right>")
    nvim.wait(lambda: not nvim.ghost.startswith("größe"), "a word accepted")
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    assert nvim.saved(file).decode() == 'print("😀漢字", "größe 😀", 漢字)\n'


def test_undo_takes_back_the_completion_alone(windows: Windows, replay: World) -> None:
    file = replay.write("undo.py", HEAD)
    nvim = windows.open(file)
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    nvim.type_slowly("if wi")
    nvim.wait_ghost(SHOWN.removeprefix("if wi"))
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    nvim.type(" + 1")
    nvim.escape()
    assert nvim.ask("getline('.')") == "'    return width * height + 1'"
    nvim.type("u")
    assert nvim.ask("getline(2, '$')") == str(AREA.split("\n"))
    nvim.type("u")
    assert nvim.ask("getline(2, '$')") == "['    if wi']"
    nvim.type("u")
    assert nvim.ask("line('$')") == "1"


@pytest.mark.parametrize(("number", "key"), [(0, "<Esc>"), (1, "<C-c>")])
def test_leaving_insert_mode_ends_it(windows: Windows, replay: World, number: int, key: str) -> None:
    nvim = windows.open(replay.write("leave.py", slow_head(f"leave_{number}")))
    nvim.type("Go")
    nvim.wait(lambda: nvim.ghost, "the first of it")
    nvim.type(key)
    nvim.mode("n")
    nvim.wait_ghost("")
    seen = nvim.record(lambda: nvim.ghost)
    nvim.watch(QUIET_S)
    assert seen == [""]


def test_a_macro_does_what_was_recorded(windows: Windows, replay: World) -> None:
    file = replay.write("macro.py", "area\narea\narea\n")
    nvim = windows.open(file)
    nvim.type("qqA = ")
    nvim.wait_for("area =")
    seen = nvim.record(lambda: nvim.ghost)
    nvim.watch(QUIET_S)
    nvim.type("<Tab>1")
    nvim.escape()
    nvim.type("jq@q")
    nvim.type("A = ")  # at a place where something is offered
    nvim.wait_ghost("width * height")
    assert seen == ["", "width * height"]
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    saved = nvim.saved(file).decode().splitlines()
    assert saved[:2] == [saved[0]] * 2
    assert [saved[0].split(), saved[2]] == [["area", "=", "1"], "area = width * height"]


def test_dot_repeats_what_was_accepted(windows: Windows, replay: World) -> None:
    file = replay.write("dot.py", "area\narea\n")
    nvim = windows.open(file)
    nvim.type("A = ")
    nvim.wait_ghost("width * height")
    nvim.type("<M-Right>")
    nvim.wait_ghost(" * height")
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    nvim.type(" + 1")
    nvim.escape()
    nvim.type("j.")
    nvim.mode("n")
    assert nvim.saved(file) == b"area = width * height + 1\narea = width * height + 1\n"


def test_dot_repeats_several_lines_as_they_were(windows: Windows, replay: World, version: str) -> None:
    if version == "0.10":
        pytest.skip("Neovim 0.10 indents each line of a paste again when it is repeated")
    file = replay.write("dots.py", HEAD)
    nvim = windows.open(file)
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    nvim.escape()
    nvim.type("gg.")
    assert nvim.saved(file).decode() == HEAD + AREA + "\n" + AREA + "\n"


def test_buffers_without_a_name_are_documents_of_their_own(windows: Windows, replay: World) -> None:
    nvim = windows.start()
    nvim.type("i")
    nvim.wait_ready()
    nvim.type("Dear reader,<Enter>")
    nvim.wait_ghost("this is a note of several words.")
    nvim.escape()
    nvim.command("new")
    nvim.type("iarea = ")
    nvim.wait_ghost("width * height")
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    second = replay.workspace / "second"
    second.unlink(missing_ok=True)  # another version of the editor has been here
    nvim.escape()
    nvim.command("w second")
    nvim.type("oarea = ")  # the buffer has a name now
    nvim.wait_ghost("width * height")
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    assert nvim.saved(second) == b"area = width * height\n" * 2
    nvim.command("q")
    nvim.type("A")
    nvim.wait_ghost("this is a note of several words.")
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    nvim.escape()
    assert nvim.ask("getline(1, '$')") == "['Dear reader,', 'this is a note of several words.']"
    assert "E" not in nvim.messages()


@pytest.mark.parametrize("number", range(3))
def test_deleting_the_last_line_while_it_is_completed(windows: Windows, replay: World, number: int) -> None:
    head, keys = slow_head(f"last_{number}"), ("<Esc>dd", "<C-o>dd", "<C-u><BS>")[number]
    nvim = windows.open(replay.write("last.py", "# one\n" + head))
    nvim.type("Go")
    nvim.wait(lambda: nvim.ghost, "the first of it")
    nvim.type(keys)
    nvim.wait_ghost("")
    nvim.watch(2 * QUIET_S)
    nvim.escape()
    assert nvim.ask("getline(1, '$')") == f"['# one', '{head.strip()}']"
    assert nvim.messages() == ""


def test_two_windows_share_one_engine(windows: Windows, replay: World) -> None:
    both = [windows.open(replay.write("left.py", HEAD)), windows.start(replay.write("right.py", HEAD))]
    both[1].wait_ready()
    for nvim in both:
        nvim.type("Go")
    for nvim in both:
        nvim.wait_ghost(SHOWN)
    assert len(replay.engine_pids()) == 1


def test_a_killed_engine_is_there_again_by_itself(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("killed.py", slow_head("killed")))
    nvim.type("Go")
    nvim.wait(lambda: nvim.ghost, "the first of it")
    (pid,) = replay.engine_pids()
    os.kill(pid, signal.SIGKILL)
    nvim.type("x")

    def is_offered() -> bool:
        nvim.escape()
        nvim.command("silent edit!")
        nvim.type("Go")
        nvim.watch(2 * QUIET_S)
        return nvim.ghost != ""

    nvim.wait(is_offered, "ghost text of another engine", 60)
    assert replay.engine_pids() not in ([pid], [])
    nvim.escape()
    assert "E5108" not in nvim.messages()


def test_a_killed_server_is_started_again(windows: Windows, replay: World) -> None:
    nvim = windows.start(replay.write("server.py", HEAD), columns=160)
    nvim.wait_ready()
    os.kill(replay.server_pid(nvim.pid), signal.SIGKILL)
    nvim.wait_status("DFlash: starting")
    nvim.wait_ready()
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)


def test_leaving_the_editor_ends_the_server(windows: Windows, replay: World) -> None:
    nvim = windows.start(replay.write("quit.py", HEAD))
    nvim.wait_ready()
    server = Path(f"/proc/{replay.server_pid(nvim.pid)}")
    nvim.type(":qa!<Enter>")
    nvim.wait_end()
    until = time.monotonic() + 30
    while server.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not server.exists()


def test_keys_do_what_they_did_where_nothing_is_shown(windows: Windows, replay: World) -> None:
    file = replay.write("keys.txt", "x\n")
    own = 'vim.keymap.set("i", "<C-]>", function() return "]" .. "!" end, { expr = true })\n'
    nvim = windows.start(file, init=own)
    nvim.wait_ready()
    nvim.type("A<C-]><Tab>y")
    assert nvim.saved(file) == b"x]!\ty\n"


def test_dismissed_text_comes_back_with_the_next_key(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("dismiss.py", HEAD))
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    nvim.type("<C-]>")
    nvim.wait_ghost("")
    nvim.watch(QUIET_S)
    assert nvim.ghost == ""
    nvim.type("i")
    nvim.wait_ghost(SHOWN.removeprefix("i"))


def test_the_completion_menu_hides_it(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("menu.py", "area = 1\narea"))
    nvim.type("GA = ")
    nvim.wait_ghost("width * height")
    nvim.type("<C-n>")
    nvim.wait_ghost("")
    nvim.type("<C-e>w")
    nvim.wait_ghost("idth * height")


def test_it_can_be_switched_off_and_snoozed(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("toggle.py", HEAD + "    "))
    for off, on, told in (
        ("toggle", "toggle", "off"),
        ("snooze 5", "snooze 0", "snoozed"),
        ("disable", "enable", "off"),
    ):
        nvim.command(f"Dflash {off}")
        nvim.wait_status(f"DFlash: {told}")
        nvim.type("GA")
        nvim.mode("i")
        nvim.watch(QUIET_S)
        assert nvim.ghost == ""
        nvim.escape()
        nvim.command(f"Dflash {on}")
        nvim.wait_ready()
        nvim.type("GA")
        nvim.wait_ghost(SHOWN)
        nvim.escape()
        nvim.wait_ghost("")


def test_health_and_help_are_there(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("health.py", HEAD))
    nvim.command("checkhealth dflash")
    nvim.wait_for("a server runs")
    assert "ERROR" not in nvim.ask("getline(1, '$')")
    nvim.command("helptags ALL")
    nvim.command("help dflash-options")
    nvim.wait_for("vim.g.dflash")


def test_alternatives_are_asked_for_where_there_are_none(windows: Windows, replay: World) -> None:
    nvim = windows.open(replay.write("alternatives.py", HEAD))
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    seen = nvim.record(lambda: nvim.ghost)
    nvim.type("<M-]>")  # the recording has but one text
    nvim.watch(QUIET_S)
    assert seen == [SHOWN]
    nvim.type("<Tab>")
    nvim.wait_for("return width * height")


def test_next_and_previous_go_round_the_alternatives(windows: Windows, replay: World) -> None:
    head, first, second = "def alternated(samples):\n", "return first", "return second"
    file = replay.write("alternated.py", head)
    with replay.recorded(head, f"    {first}\n"):
        nvim = windows.open(file)
        nvim.type("Go")
        nvim.wait_ghost(first)
    # The engine of a model samples; a recording has one text for each place, so it is another one meanwhile.
    with replay.recorded(head, f"    {second}\n"):
        nvim.type("<M-]>")
        nvim.wait_ghost(second)
    nvim.wait_for("2/2")
    for key, shown in (("<M-[>", first), ("<M-[>", second), ("<M-]>", first), ("<M-]>", second)):
        nvim.type(key)
        nvim.wait_ghost(shown)
    nvim.type("<Tab>")
    nvim.wait_ghost("")
    assert nvim.saved(file).decode() == f"{head}    {second}\n"


def completes(windows: Windows, file: Path, init: str) -> None:
    """The plugin that this init.lua loads shows a completion, which <C-l> accepts, and says nothing."""
    nvim = windows.start(file, init=init, packages=False)
    nvim.type("Go")
    nvim.wait_ghost(SHOWN)
    nvim.type("<C-l>")
    nvim.wait_ghost("")
    assert nvim.saved(file).decode() == HEAD + AREA + "\n"
    assert nvim.messages() == ""


@pytest.mark.skipif("LAZY_NVIM" not in os.environ, reason="$LAZY_NVIM names no checkout of lazy.nvim")
def test_lazy_nvim_itself_loads_it_as_documented(windows: Windows, replay: World) -> None:
    """It comes by git alone, so it is no part of the set-up: LAZY_NVIM=FOLDER tests/e2e/editors.sh -k lazy"""
    file = replay.write("lazily.py", HEAD)
    init = f"""
    vim.g.dflash = nil
    vim.opt.rtp:prepend("{os.environ.get("LAZY_NVIM")}")
    require("lazy").setup({{
      {{
        dir = "{ROOT}/neovim",
        event = {{ "BufReadPost", "InsertEnter" }},
        opts = {{
          cmd = {{ "{replay.server}", "lsp" }},
          server = {{ profile = "{replay.profile}" }},
          keys = {{ accept = "<C-l>" }},
        }},
      }},
    }}, {{ rocks = {{ enabled = false }}, readme = {{ enabled = false }} }})
    """
    completes(windows, file, init)


def test_setup_as_lazy_nvim_calls_it(windows: Windows, replay: World) -> None:
    """lazy.nvim puts the folder on the runtime path when an event comes, sources plugin/ and calls setup()."""
    file = replay.write("lazy.py", HEAD)
    init = f"""
    vim.g.dflash = nil
    vim.api.nvim_create_autocmd("InsertEnter", {{ once = true, callback = function()
      vim.opt.rtp:append("{ROOT}/neovim")
      vim.cmd.source("{ROOT}/neovim/plugin/dflash.lua")
      require("dflash").setup({{
        cmd = {{ "{replay.server}", "lsp" }},
        server = {{ profile = "{replay.profile}" }},
        keys = {{ accept = "<C-l>" }},
      }})
      vim.api.nvim_exec_autocmds("InsertEnter", {{ group = "dflash.wake" }})
    end }})
    """
    completes(windows, file, init)
