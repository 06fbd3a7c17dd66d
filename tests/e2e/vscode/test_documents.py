"""Every kind of text: line ends, tabs, wide characters, several cursors, and the editor's own suggestions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Site
from workbench import Workbench, squeezed

Edit = Callable[..., Path]


def test_a_file_with_crlf_keeps_its_line_ends(site: Site, window: Workbench, edit: Edit) -> None:
    site.tape.add("def dos(a):\n    ", ["b = a\n", "    return b\n"], 50)
    file = edit("dos.py", "x = 1\r\n\r\n\r\ndef dos(a):")
    window.press("Enter")
    window.wait_for_ghost("return b")
    window.press("Tab")
    wanted = "x = 1\r\n\r\n\r\ndef dos(a):\r\n    b = a\r\n    return b"
    assert window.save(file, wanted) == wanted


def test_a_file_indented_with_tabs_stays_so(site: Site, window: Workbench, edit: Edit) -> None:
    text = "package p\n\nfunc first() int {\n\treturn 1\n}\n\nfunc second(a int) int {\n\t\n}\n"
    site.tape.add(
        "func second(a int) int {\n\t", ["if a > 0 {\n", "\t\treturn a\n", "\t}\n", "\treturn 0\n", "}\n"], 50
    )
    file = edit("tabs.go", text, at=(8, 999))
    window.type("i", delay=0)
    window.wait_for_ghost("f a > 0 { return a }")
    window.press("Tab")
    saved = window.save(file)
    assert "\n\tif a > 0 {\n\t\treturn a\n\t}" in saved and "    " not in saved, saved


def test_a_wide_character_before_the_cursor_shifts_nothing(site: Site, window: Workbench, edit: Edit) -> None:
    line = 'price = {"🚀🎉": 1, "値段": 2}; total'
    site.tape.add(line + " ", ["= sum(price.values())\n"])
    file = edit("wide.py", line)
    window.type(" ")
    window.wait_for_ghost("= sum(price.values())")
    window.press("Tab")
    wanted = line + " = sum(price.values())"
    assert window.save(file, wanted) == wanted


def test_several_cursors_are_offered_nothing(site: Site, window: Workbench, edit: Edit) -> None:
    site.tape.add("x", [" = 3\n"])
    site.tape.add("x\ny", [" = 3\n"])
    edit("cursors.py", "first = 1\nsecond = 2\n")
    window.command("Add Cursor Above")
    window.watch()
    window.type("x")
    window.pause(800)
    assert window.seen().texts == [""]
    window.press("Escape", "Control+End", "Enter")
    window.type("y")
    window.wait_for_ghost("= 3")


def test_tab_accepts_the_suggestion_while_its_list_is_open(site: Site, window: Workbench, edit: Edit) -> None:
    site.tape.add("longest_name = 1\nprint(longe", ["st_name + 2)\n"], 50)
    file = edit("listed.py", "longest_name = 1\nprint(long")
    window.type("e")
    window.wait_for_ghost("st_name + 2")
    window.press("Control+Space")
    window.page.locator(".suggest-widget.visible .monaco-list-row").first.wait_for()
    window.press("Tab")
    window.page.locator(".suggest-widget.visible").wait_for(state="hidden")
    assert window.save(file).startswith("longest_name = 1\nprint(longest_name")
    assert "+ 2" not in file.read_text(encoding="utf-8")


def test_ghost_text_goes_on_growing_while_the_list_is_open(site: Site, window: Workbench, edit: Edit) -> None:
    lines = [f"    step_{number} = walk({number})\n" for number in range(8)]
    site.tape.add("def listing(walk):\n    ", [lines[0].removeprefix("    "), *lines[1:], "    return walk\n"], 150)
    file = edit("listing.py", "def listing(walk):")
    window.press("Enter")
    window.wait_for_ghost("step_0")
    window.press("Control+Space")
    window.page.locator(".suggest-widget.visible").wait_for()
    window.press("Escape")  # the list
    window.page.locator(".suggest-widget.visible").wait_for(state="hidden")
    window.pause(300)
    window.press("Escape", "Escape")
    window.wait_for_no_ghost()
    assert squeezed(window.save(file)) == squeezed("def listing(walk):")
