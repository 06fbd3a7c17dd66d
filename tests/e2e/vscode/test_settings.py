"""What the user switches, sets and asks for, in a window that is never reloaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Site, keep_picture
from workbench import READY, Workbench, squeezed

Edit = Callable[..., Path]


@pytest.fixture
def set_up(site: Site, window: Workbench, edit: Edit) -> Iterator[Callable[..., None]]:
    """Sets machine settings beside those of all tests; the state before is put back, and waited for."""

    def change(**more: object) -> None:
        machine = {**site.settings, **{f"dflash.{key}": value for key, value in more.items()}}
        site.wait_until_settings_count(lambda: site.code_server.machine_settings(machine))

    yield change
    site.wait_until_settings_count(lambda: site.code_server.machine_settings(site.settings))
    window.close_all()
    edit("put_back.py", "")
    window.wait_for_status("DFlash: (taped|replay)")


def offered(site: Site, window: Workbench, edit: Edit, name: str) -> None:
    site.tape.add(f"{name} = ", ["answer\n"])
    edit(name, f"{name} =")
    window.type(" ")
    window.wait_for_ghost("answer")


def not_offered(site: Site, window: Workbench, edit: Edit, name: str) -> None:
    site.tape.add(f"{name} = ", ["answer\n"])
    edit(name, f"{name} =")
    window.watch()
    window.type(" ")
    window.pause(800)
    assert window.seen().texts == [""]


def test_the_status_names_what_serves(window: Workbench, edit: Edit) -> None:
    edit("status.py", "")
    said = window.wait_for_status(READY)
    assert "replay" in said
    window.page.locator('[id="status.languageStatus"]').hover()
    window.pause(700)
    keep_picture(window.page, "status")
    window.page.mouse.move(300, 300)


def test_completions_are_turned_off_and_on_for_a_language(site: Site, window: Workbench, edit: Edit) -> None:
    note = edit("note.md", "")
    window.command("DFlash: Disable Completions for This Language")
    window.wait_for_status("DFlash: off.*markdown")
    not_offered(site, window, edit, "off.md")
    offered(site, window, edit, "off.py")
    window.open(note)
    window.command("DFlash: Enable Completions for This Language")
    window.wait_for_status(READY)
    offered(site, window, edit, "on.md")


def test_completions_are_turned_off_and_on_everywhere(site: Site, window: Workbench, edit: Edit) -> None:
    window.command("DFlash: Disable Completions")
    not_offered(site, window, edit, "everywhere.py")
    window.wait_for_status("DFlash: off")
    window.command("DFlash: Enable Completions")
    window.wait_for_status(READY)
    offered(site, window, edit, "again.py")


def test_completions_are_paused_and_resumed(site: Site, window: Workbench, edit: Edit) -> None:
    window.command("DFlash: Pause Completions for Five Minutes")
    not_offered(site, window, edit, "paused.py")
    assert "until" in window.wait_for_status("DFlash: paused")
    window.command("DFlash: Resume Completions")
    offered(site, window, edit, "resumed.py")


def test_excluded_files_are_heard_of_without_a_reload(
    site: Site, window: Workbench, edit: Edit, set_up: Callable[..., None]
) -> None:
    set_up(exclude=["hidden*"])
    not_offered(site, window, edit, "hidden.py")
    set_up()
    offered(site, window, edit, "hidden_no_more.py")


def test_another_profile_is_taken_without_a_reload(window: Workbench, edit: Edit, set_up: Callable[..., None]) -> None:
    set_up(profile="replay")
    edit("shipped.py", "def fibonacci(n):")
    window.wait_for_status("DFlash: replay")
    window.press("Enter")
    window.wait_for_ghost("return a")


def test_without_streaming_the_whole_text_comes_at_once(
    site: Site, window: Workbench, edit: Edit, set_up: Callable[..., None]
) -> None:
    set_up(streaming=False)
    lines = [f"    part_{number} = {number}\n" for number in range(6)]
    site.tape.add("def at_once():\n    ", [lines[0].removeprefix("    "), *lines[1:]], 120)
    edit("at_once.py", "def at_once():")
    window.watch()
    window.press("Enter")
    window.wait_for_ghost("part_5")
    window.pause(300)
    seen = window.seen()
    assert all("part_5=5" in squeezed(text) for text in seen.texts if text), seen.changes


def test_a_profile_is_picked_from_those_of_the_server(
    site: Site, window: Workbench, edit: Edit, set_up: Callable[..., None]
) -> None:
    edit("pick.py", "")
    window.pick("DFlash: Pick Profile", "replay")
    site.wait_until_settings_count(lambda: True)  # VS Code itself has written them
    settings = json.loads((site.code_server.data / "Machine/settings.json").read_text(encoding="utf-8"))
    assert settings["dflash.profile"] == "replay"


def test_the_status_page_tells_of_the_engine_and_of_what_was_accepted(
    site: Site, window: Workbench, edit: Edit
) -> None:
    offered(site, window, edit, "counted.py")
    window.press("Tab")
    window.pause(300)
    rows = window.engine_page().locator("tr", has_text="python").inner_text()
    language, shown, accepted = rows.split()[:3]
    assert language == "python" and int(shown) >= 1 and int(accepted) >= 1
    keep_picture(window.page, "status-page")


def test_debug_information_has_versions_and_no_text_of_the_user(site: Site, window: Workbench, edit: Edit) -> None:
    edit("secret.py", "the_marker_of_the_user = 1")
    window.command("DFlash: Copy Debug Information")
    window.page.get_by_text("debug information copied").first.wait_for(timeout=30_000)
    copied = json.loads(window.page.evaluate("navigator.clipboard.readText()"))
    assert (
        copied["extension"]
        and copied["doctor"]["version"]
        and copied["server"].endswith("(from dflash.server.command)")
    )
    assert "the_marker" not in json.dumps(copied)


def test_the_log_is_shown_and_holds_nothing_that_was_typed(site: Site, window: Workbench, edit: Edit) -> None:
    offered(site, window, edit, "marker_of_typed_text.py")
    window.command("DFlash: Show Logs")
    window.page.locator(".panel .view-line", has_text="Starting").first.wait_for()
    window.press("Control+j")
    logs = list((site.code_server.data / "logs").rglob("DFlash*.log"))
    assert logs
    for log in logs:
        assert "marker_of_typed_text" not in log.read_text(encoding="utf-8"), log
