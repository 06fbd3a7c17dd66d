"""The walkthrough, in a window that has never seen it: each step is ticked by what it is about, and not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Site, keep_picture
from workbench import READY, Workbench

STEPS = ["install", "model", "type"]


def test_each_step_of_the_walkthrough_is_ticked_by_what_it_is_about(
    own_site: Site, new_window: Callable[[Site, Path], Workbench]
) -> None:
    folder = own_site.workspace("walkthrough")
    file = folder / "first.py"
    own_site.tape.add("first = ", ["answer\n"])
    file.write_text("first =", encoding="utf-8")
    # Whose recording is not there: the server runs, and its engine cannot.
    no_model = folder / "no_model.toml"
    no_model.write_text('[engine]\nkind = "replay"\nrecording = "missing.jsonl"\n', encoding="utf-8")
    own_site.code_server.machine_settings({"dflash.server.command": str(folder / "missing")})
    window = new_window(own_site, folder)
    window.open(file)
    window.wait_for_status("DFlash: failed")
    assert ticked(window) == []
    keep_picture(window.page, "walkthrough")
    own_site.code_server.machine_settings({**own_site.settings, "dflash.profile": str(no_model)})
    window.open(file)
    window.wait_for_status("DFlash: failed.*recording")
    assert ticked(window) == ["install"]
    own_site.code_server.machine_settings(own_site.settings)
    window.open(file)
    window.wait_for_status(READY)
    assert ticked(window) == ["install", "model"]
    window.open(file)
    window.go_to(1, 999)
    window.type(" ")
    window.wait_for_ghost("answer")
    window.press("Tab")
    assert window.save(file, "first = answer") == "first = answer"
    assert ticked(window) == STEPS


def ticked(window: Workbench) -> list[str]:
    """The steps that are done, as the walkthrough shows them to who opens it now."""
    window.pick("Welcome: Open Walkthrough...", "Select a walkthrough to open", "DFlash")
    boxes = window.page.locator("[data-done-step-id]")
    boxes.nth(len(STEPS) - 1).wait_for()
    assert boxes.count() == len(STEPS)
    window.pause(500)  # for what has just become so to be shown
    found = [
        (str(box.get_attribute("data-done-step-id")).rpartition("#")[2], box.get_attribute("aria-checked"))
        for box in boxes.all()
    ]
    assert [step for step, _ in found] == STEPS
    return [step for step, done in found if done == "true"]
