"""What the user switches, sets and asks for, in a window that is never reloaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Site, keep_picture
from workbench import LIMIT_S, READY, Workbench, squeezed

Edit = Callable[..., Path]


@pytest.fixture
def set_up(site: Site, window: Workbench, edit: Edit) -> Iterator[Callable[..., None]]:
    """Sets machine settings beside those of all tests; the state before is put back, and waited for."""

    def change(**more: object) -> None:
        machine = {**site.settings, **{f"dflash.{key}": value for key, value in more.items()}}
        running = site.server_pids()
        restarts = machine["dflash.profile"] != site.code_server.machine_setting("dflash.profile")
        site.wait_until_settings_count(lambda: site.code_server.machine_settings(machine))
        if restarts:
            site.wait_for_another_server(running)

    yield change
    change()
    window.close_all()
    edit("put_back.py", "")
    window.wait_for_status(READY)


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
    assert "replay" in window.wait_for_status(READY)
    with window.status_hover() as shown:
        assert "replay" in shown and "Status page" in shown
        keep_picture(window.page, "status")


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
    edit("on.py", "")
    window.command("DFlash: Disable Completions")
    window.wait_for_status("DFlash: off")
    not_offered(site, window, edit, "everywhere.py")
    window.command("DFlash: Enable Completions")
    window.wait_for_status(READY)
    offered(site, window, edit, "again.py")


def test_completions_are_paused_and_resumed(site: Site, window: Workbench, edit: Edit) -> None:
    edit("awake.py", "")
    window.command("DFlash: Pause Completions for Five Minutes")
    assert "until" in window.wait_for_status("DFlash: paused")
    not_offered(site, window, edit, "paused.py")
    window.command("DFlash: Resume Completions")
    window.wait_for_status(READY)
    offered(site, window, edit, "resumed.py")


def test_excluded_files_are_heard_of_without_a_reload(
    site: Site, window: Workbench, edit: Edit, set_up: Callable[..., None]
) -> None:
    set_up(exclude=["hidden*"])
    # The server asks for its settings a moment later than the extension has them: by then it says so of a key.
    edit("hidden_early.py", "")

    def said_of_a_key() -> str:
        window.type("x")
        window.pause(500)
        return window.status()

    window.wait_for(said_of_a_key, lambda status: "excluded" in status, LIMIT_S, "the reason for nothing")
    not_offered(site, window, edit, "hidden.py")
    set_up()
    edit("hidden_late.py", "")
    window.wait_for(said_of_a_key, lambda status: "excluded" not in status, LIMIT_S, "another reason")
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
    running = site.server_pids()
    window.pick("DFlash: Pick Profile", "The target model and its draft", "replay")
    profile = "dflash.profile"
    window.wait_for(lambda: str(site.code_server.machine_setting(profile)), "replay".__eq__, LIMIT_S, profile)
    site.wait_for_another_server(running)


def test_the_status_page_tells_of_the_engine_and_of_what_was_accepted(
    site: Site, window: Workbench, edit: Edit
) -> None:
    offered(site, window, edit, "counted.py")
    window.press("Tab")
    window.pause(300)
    page = window.engine_page()
    language, shown, accepted = page.locator("tr", has_text="python").inner_text().split()[:3]
    assert language == "python" and int(shown) >= 1 and int(accepted) >= 1
    assert f"process {site.engine.pids[0]}" in page.locator("tr", has_text="process").inner_text()
    keep_picture(window.page, "status-page")


def test_debug_information_has_versions_and_no_text_of_the_user(site: Site, window: Workbench, edit: Edit) -> None:
    edit("secret.py", "the_marker_of_the_user = 1")
    window.command("DFlash: Copy Debug Information")
    window.page.get_by_text("debug information copied").first.wait_for()
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
