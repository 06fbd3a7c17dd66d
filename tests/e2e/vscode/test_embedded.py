"""The embedded target with its draft: a real completion is accepted and found in the saved file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Site, keep_picture, run_server_command
from workbench import LIMIT_S, READY, Workbench, squeezed

HEAD = '''"""Temperatures in degrees Celsius and Fahrenheit."""


def celsius_to_fahrenheit(celsius):
    """Convert degrees Celsius to degrees Fahrenheit."""
    return celsius * 9 / 5 + 32


def fahrenheit_to_celsius(fahrenheit):
    """Convert degrees Fahrenheit to degrees Celsius."""
'''
PAIR = r"DFlash: SmolLM2.* \+ draft"
ROOM = 120_000_000  # bytes: what the target keeps of one document of 2,048 tokens; the draft does not fit beside it


@pytest.fixture
def serve(site: Site, window: Workbench) -> Iterator[Callable[[str], None]]:
    """Another profile serves; that of all tests is put back."""

    def change(profile: str) -> None:
        running = site.server_pids()
        settings = {**site.settings, "dflash.profile": profile}
        site.wait_until_settings_count(lambda: site.code_server.machine_settings(settings))
        site.wait_for_another_server(running)

    yield change
    change(str(site.tape.profile))
    window.open(site.workspace("workspace") / "start.py")  # the status stands beside a document
    window.wait_for_status(READY)


def test_a_completion_of_the_embedded_pair_is_accepted_and_saved(
    site: Site, window: Workbench, edit: Callable[..., Path], serve: Callable[[str], None]
) -> None:
    run_server_command(site, "fetch", "embedded")
    edit("temperatures.py", HEAD.rstrip("\n"))
    serve("embedded")
    window.wait_for_status(r"DFlash: loading \d+ %")
    window.wait_for_status(PAIR, limit_s=3 * LIMIT_S)
    # As the walkthrough's second step: what is there is not fetched again, and another server starts with it.
    running = site.server_pids()
    window.command("DFlash: Get Model")
    site.wait_for_another_server(running)
    window.wait_for_status(PAIR, limit_s=3 * LIMIT_S)
    file = edit("temperatures.py", HEAD.rstrip("\n"))
    window.press("Enter")
    ghost = window.wait_for_whole_ghost(limit_s=3 * LIMIT_S)
    with window.status_hover():
        keep_picture(window.page, "completion")  # the README's
    window.press("Tab")
    saved = window.save(file)
    assert saved.startswith(HEAD)
    assert ghost.strip() and squeezed(saved.removeprefix(HEAD)) == squeezed(ghost)
    window.wait_for_status(r"acceptance length \d\.\d\d.* \d+ tokens/s")
    assert window.engine_page().locator("tr", has_text="acceptance length").count() == 1


def test_an_engine_without_room_for_its_draft_serves_and_the_status_says_so(
    site: Site, window: Workbench, edit: Callable[..., Path], serve: Callable[[str], None]
) -> None:
    """Room for the target's weights in float32 and for one document, and for nothing of the draft's."""
    folder = run_server_command(site, "cache", "path")
    weights = (Path(folder.strip()) / "embedded/target/model.safetensors").stat().st_size * 2
    profile = site.folder / "short.toml"
    shipped = (ROOT / "server/profiles/embedded.toml").read_text(encoding="utf-8")
    limits = f'dtype = "float32"\nmemory_limit = {weights + ROOM}\n\n[target]'
    profile.write_text(shipped.replace("[target]", limits, 1), encoding="utf-8")
    edit("short.py", HEAD.rstrip("\n"))
    serve(str(profile))
    window.wait_for_status("DFlash: degraded, out of memory: draft dropped", limit_s=3 * LIMIT_S)
    window.press("Enter")
    window.wait_for_ghost(limit_s=3 * LIMIT_S)
