"""Servers and engines: shared, killed, restarted, missing, and not trusted."""

from __future__ import annotations

import os
import re
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, Site, keep_picture
from workbench import LIMIT_S, READY, Workbench

Edit = Callable[..., Path]
NewWindow = Callable[[Site, Path], Workbench]


def offered(site: Site, window: Workbench, folder: Path, name: str) -> None:
    site.tape.add(f"{name} = ", ["answer\n"])
    (folder / name).write_text(f"{name} =", encoding="utf-8")
    window.open(folder / name)
    window.go_to(1, 999)
    window.type(" ")
    window.wait_for_ghost("answer")


def another_engine(site: Site, window: Workbench, before: list[int]) -> None:
    """Wait until another engine than before is ready."""
    window.wait_for(
        lambda: str(site.engine.pids), lambda now: now not in ("[]", str(before)), LIMIT_S, "another engine"
    )
    window.wait_for_status(READY)


def test_two_windows_share_one_engine(site: Site, window: Workbench, new_window: NewWindow) -> None:
    folder = site.workspace("second")
    (folder / "start.py").write_text("", encoding="utf-8")
    second = new_window(site, folder)
    second.open(folder / "start.py")
    second.wait_for_status(READY)
    offered(site, second, folder, "in_second.py")
    offered(site, window, site.workspace("workspace"), "in_first.py")
    assert len(site.engine.pids) == 1


def test_an_engine_that_is_killed_comes_back(site: Site, window: Workbench, edit: Edit) -> None:
    offered(site, window, site.workspace("workspace"), "before_the_kill.py")
    (killed,) = site.engine.pids
    lines = [f"    part_{number} = {number}\n" for number in range(20)]
    site.tape.add("def killed():\n    ", [lines[0].removeprefix("    "), *lines[1:]], 150)
    edit("killed.py", "def killed():")
    window.press("Enter")
    window.wait_for_ghost("part_1")
    site.engine.kill()
    another_engine(site, window, [killed])
    offered(site, window, site.workspace("workspace"), "after_the_kill.py")
    (pid,) = site.engine.pids
    assert pid != killed
    assert len(window.notifications()) <= 1, "one message, whatever was typed meanwhile"


def test_the_engine_is_restarted_when_asked_to(site: Site, window: Workbench) -> None:
    offered(site, window, site.workspace("workspace"), "before_the_engine.py")
    before = site.engine.pids
    window.command("DFlash: Restart Engine")
    window.wait_for(
        lambda: str(site.engine.pids), lambda now: now not in ("[]", str(before)), LIMIT_S, "another engine"
    )
    window.wait_for_status(READY)
    offered(site, window, site.workspace("workspace"), "after_the_engine.py")
    assert len(site.engine.pids) == 1


def test_a_server_that_is_killed_is_started_again(site: Site, window: Workbench) -> None:
    offered(site, window, site.workspace("workspace"), "before_the_server.py")
    killed = site.server_pids()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    site.wait_for_another_server(killed)
    window.wait_for_status(READY)
    offered(site, window, site.workspace("workspace"), "after_the_server.py")


def test_a_restart_leaves_no_server_behind(site: Site, window: Workbench) -> None:
    offered(site, window, site.workspace("workspace"), "before_the_restart.py")
    before = site.server_pids()
    for _ in range(3):
        window.command("DFlash: Restart Server")
    site.wait_for_another_server(before)
    window.wait_for_status(READY)
    window.wait_for(lambda: str(len(site.server_pids())), lambda found: found == "1", LIMIT_S, "one server alone")
    window.pause(1500)  # none is on its way
    after = site.server_pids()
    assert len(after) == 1 and not after & before
    window.wait_for_status(READY)
    offered(site, window, site.workspace("workspace"), "after_the_restart.py")


def test_a_window_that_is_closed_leaves_no_server_behind(site: Site, new_window: NewWindow) -> None:
    before = site.server_pids()
    folder = site.workspace("closed")
    (folder / "start.py").write_text("", encoding="utf-8")
    window = new_window(site, folder)
    window.open(folder / "start.py")
    window.wait_for_status(READY)
    assert site.server_pids() > before
    window.page.context.close()
    window.wait_for(
        lambda: str(site.server_pids()), lambda found: found == str(before), LIMIT_S, "the end of its server"
    )


def test_a_workspace_of_several_folders_is_served_by_one_server(site: Site, new_window: NewWindow) -> None:
    folders = [site.workspace("one"), site.workspace("other")]
    workspace = site.folder / "both.code-workspace"
    workspace.write_text('{"folders": [{"path": "one"}, {"path": "other"}]}', encoding="utf-8")
    before = site.server_pids()
    for folder in folders:
        (folder / f"in_{folder.name}.py").write_text("", encoding="utf-8")
    window = new_window(site, workspace)
    window.open(folders[0] / "in_one.py")
    window.wait_for_status(READY)
    for folder in folders:
        offered(site, window, folder, f"in_{folder.name}.py")
        window.command("View: Revert and Close Editor")
    assert len(site.server_pids() - before) == 1


def test_a_server_that_is_missing_is_offered_and_installed(own_site: Site, new_window: NewWindow) -> None:
    """The wheel is a stand-in of the distribution's name that makes this checkout's server importable: the real
    one, without its gigabyte of packages."""
    wheel = own_site.folder / "wheels/dflash_lsp-0.1.0-py3-none-any.whl"
    settings = {"dflash.profile": str(own_site.tape.profile), "dflash.server.package": str(wheel)}
    own_site.code_server.machine_settings(settings)
    folder = own_site.workspace("missing")
    (folder / "start.py").write_text("", encoding="utf-8")
    window = new_window(own_site, folder)
    window.open(folder / "start.py")
    window.page.get_by_text("the server dflash-lsp was not found").first.wait_for()
    keep_picture(window.page, "offer")
    assert len(window.notifications()) == 1
    window.wait_for_status("DFlash: failed.*not found")
    # What cannot be installed is told in one line, and the offer stands.
    window.page.get_by_role("button", name="Install", exact=True).first.click()
    window.page.get_by_text("the server was not installed").first.wait_for()
    write_stand_in(wheel)
    window.command("DFlash: Install Server")
    window.wait_for_status(READY, limit_s=2 * LIMIT_S)
    offered(own_site, window, folder, "installed.py")


def test_an_untrusted_workspace_cannot_choose_what_is_run(own_site: Site, new_window: NewWindow) -> None:
    own_site.code_server.user_settings(
        **{"security.workspace.trust.enabled": True, "security.workspace.trust.startupPrompt": "never"}
    )
    folder = own_site.workspace("untrusted")
    trap = folder / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {folder}/sprung\n", encoding="utf-8")
    trap.chmod(0o755)
    (folder / "server").mkdir()
    (folder / "server/__init__.py").write_text(f"open({str(folder / 'sprung')!r}, 'w')\n", encoding="utf-8")
    (folder / ".vscode").mkdir()
    (folder / ".vscode/settings.json").write_text(
        f'{{"dflash.server.command": "{trap}", "dflash.profile": "{folder}/evil.toml"}}', encoding="utf-8"
    )
    window = new_window(own_site, folder)
    window.page.get_by_text("Restricted Mode").first.wait_for()
    window.open(trap)
    window.wait_for_status(READY)
    offered(own_site, window, folder, "untrusted.py")
    assert not (folder / "sprung").exists()


def write_stand_in(wheel: Path) -> None:
    packages = re.sub(r"\s+", "", os.environ.get("DFLASH_E2E_PACKAGES", "")) or next(
        str(path) for path in (ROOT / ".venv/lib").glob("python3*/site-packages")
    )
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("dflash_stand_in.pth", f"{ROOT}\n{packages}\n")
        info = "dflash_lsp-0.1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: dflash-lsp\nVersion: 0.1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
