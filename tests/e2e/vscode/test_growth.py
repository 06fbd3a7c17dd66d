"""A completion is shown, grows while it comes, and what keys do to it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Site, keep_picture
from workbench import Workbench, squeezed

BODY = [f"    value_{number} = measure(samples, {number})\n" for number in range(9)] + ["    return value_8\n"]


def test_ghost_text_grows_without_a_gap_and_without_shrinking(
    site: Site, window: Workbench, edit: Callable[..., Path]
) -> None:
    head = "def growing(samples):"
    text = "".join(BODY).removeprefix("    ")
    site.tape.add(head + "\n    ", text.splitlines(keepends=True), delay_ms=130)
    file = edit("growing.py", head)
    window.watch()
    window.press("Enter")
    window.wait_for_ghost("return value_8")
    window.pause(300)
    seen = window.seen()
    keep_picture(window.page, "growth")
    assert (seen.gaps, seen.shrinks) == (0, 0), seen.changes
    assert seen.updates >= 5, seen.changes
    window.press("Tab")
    assert window.save(file) == head + "\n    " + text.rstrip("\n")
