"""The embedded target with its draft: a real completion is accepted and found in the saved file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Site, keep_picture, run_server_command
from workbench import LIMIT_S, READY, Workbench, squeezed

HEAD = '''"""Temperatures in degrees Celsius and Fahrenheit."""


def celsius_to_fahrenheit(celsius):
    """Convert degrees Celsius to degrees Fahrenheit."""
    return celsius * 9 / 5 + 32


def fahrenheit_to_celsius(fahrenheit):
    """Convert degrees Fahrenheit to degrees Celsius."""
'''


def test_a_completion_of_the_embedded_pair_is_accepted_and_saved(
    site: Site, window: Workbench, edit: Callable[..., Path]
) -> None:
    run_server_command(site, "fetch", "embedded")
    settings = {**site.settings, "dflash.profile": "embedded"}
    running = site.server_pids()
    site.wait_until_settings_count(lambda: site.code_server.machine_settings(settings))
    site.wait_for_another_server(running)
    file = edit("temperatures.py", HEAD.rstrip("\n"))
    try:
        window.wait_for_status(r"DFlash: SmolLM2", limit_s=3 * LIMIT_S)
        window.press("Enter")
        ghost = window.wait_for_whole_ghost(limit_s=3 * LIMIT_S)
        with window.status_hover() as shown:
            keep_picture(window.page, "completion")  # the README's
        assert "SmolLM2" in shown and "draft" in shown
        window.press("Tab")
        saved = window.save(file)
        assert saved.startswith(HEAD)
        assert ghost.strip() and squeezed(saved.removeprefix(HEAD)) == squeezed(ghost)
        assert window.engine_page().locator("tr", has_text="acceptance length").count() == 1
    finally:
        running = site.server_pids()
        site.wait_until_settings_count(lambda: site.code_server.machine_settings(site.settings))
        site.wait_for_another_server(running)
        window.open(file)  # the status stands beside a document
        window.wait_for_status(READY)
