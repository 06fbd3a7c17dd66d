"""A completion is shown, grows while it comes, and what keys do to it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Site, keep_picture
from workbench import LIMIT_S, Seen, Workbench

LINES = [f"    value_{number} = measure(samples, {number})\n" for number in range(9)] + ["    return value_8\n"]
BODY = "".join(LINES).removeprefix("    ").rstrip("\n")  # behind the indentation that the editor writes
SLOW_MS = 500  # between the lines of a text that is to be ended before its last
Edit = Callable[..., Path]


def start(site: Site, window: Workbench, edit: Edit, name: str, delay_ms: float = 200) -> tuple[Path, str]:
    """A function without a body, and the key that asks for one, which comes line by line; its file and first line."""
    head = f"def {name}(samples):"
    site.tape.add(f"{head}\n    ", (BODY + "\n").splitlines(keepends=True), delay_ms)
    file = edit(f"{name}.py", head)
    window.watch()
    window.press("Enter")
    return file, head


def assert_saved(window: Workbench, file: Path, wanted: str) -> None:
    assert window.save(file, wanted) == wanted


def assert_steady(seen: Seen) -> None:
    assert (seen.gaps, seen.shrinks) == (0, 0), seen.changes


def assert_ended_early(site: Site, window: Workbench, before: int) -> None:
    """The engine has made no round after its end, and fewer than the text has lines."""
    site.engine.wait_until_idle()
    rounds = site.engine.rounds
    assert rounds - before < len(LINES)
    window.pause(2 * SLOW_MS)
    assert site.engine.rounds == rounds


def test_ghost_text_grows_without_a_gap_and_without_shrinking(site: Site, window: Workbench, edit: Edit) -> None:
    file, head = start(site, window, edit, "growing")
    window.wait_for_ghost("return value_8")
    window.pause(300)
    seen = window.seen()
    keep_picture(window.page, "ghost-text")
    assert_steady(seen)
    assert seen.updates >= 5, seen.changes
    window.press("Tab")
    assert_saved(window, file, f"{head}\n    {BODY}")


def test_tab_while_it_grows_takes_what_is_shown_and_the_rest_follows(site: Site, window: Workbench, edit: Edit) -> None:
    file, head = start(site, window, edit, "taken", delay_ms=200)
    window.wait_for_ghost("value_1")
    window.press("Tab")
    window.wait_for_ghost("return value_8")
    window.press("Tab")
    assert_saved(window, file, f"{head}\n    {BODY}")


def test_what_is_accepted_while_it_grows_is_counted(site: Site, window: Workbench, edit: Edit) -> None:
    before = accepted(window)
    start(site, window, edit, "counted_early", delay_ms=400)
    window.wait_for_ghost("value_2")
    window.press("Tab")
    window.wait_for(lambda: accepted(window), lambda now: now == str(int(before) + 1), LIMIT_S, "its acceptance")


def accepted(window: Workbench) -> str:
    """How many completions in Python were accepted by now, as the engine's status page has it."""
    row = window.engine_page().locator("tr", has_text="python")
    return row.inner_text().split()[2] if row.count() else "0"


def test_typing_what_is_shown_keeps_it_shown(site: Site, window: Workbench, edit: Edit) -> None:
    file, head = start(site, window, edit, "typed_through")
    window.wait_for_ghost("value_1")
    window.type(BODY[:20], delay=60)
    window.wait_for_ghost("return value_8")
    seen = window.seen()
    assert seen.gaps == 0, seen.changes
    window.press("Tab")
    assert_saved(window, file, f"{head}\n    {BODY}")


def test_typing_something_else_ends_it_in_the_editor_and_in_the_engine(
    site: Site, window: Workbench, edit: Edit
) -> None:
    before = site.engine.rounds
    start(site, window, edit, "typed_against", delay_ms=SLOW_MS)
    window.wait_for_ghost("value_0")
    window.type("#")
    window.wait_for_no_ghost()
    assert_ended_early(site, window, before)


def test_escape_while_it_grows_ends_it_for_good(site: Site, window: Workbench, edit: Edit) -> None:
    before = site.engine.rounds
    file, head = start(site, window, edit, "escaped", delay_ms=SLOW_MS)
    window.wait_for_ghost("value_1")
    window.press("Escape")
    window.wait_for_no_ghost()
    window.watch()
    assert_ended_early(site, window, before)
    assert window.seen().texts == [""]
    assert_saved(window, file, f"{head}\n    ")


def test_the_status_is_busy_while_a_completion_is_made(site: Site, window: Workbench, edit: Edit) -> None:
    start(site, window, edit, "busy", delay_ms=SLOW_MS)
    window.wait_for_ghost("value_0")
    busy = window.page.locator('[id="status.languageStatus"] .codicon-loading')
    busy.wait_for()
    window.press("Escape")
    busy.wait_for(state="hidden")


def test_a_word_and_a_line_are_accepted_by_the_editors_own_commands(site: Site, window: Workbench, edit: Edit) -> None:
    file, head = start(site, window, edit, "piecewise", delay_ms=20)
    window.wait_for_ghost("return value_8")
    window.press("Control+ArrowRight")
    window.wait_for_ghost(BODY.removeprefix("value_0"))
    window.press("Control+Alt+l")
    window.wait_for_ghost("return value_8")
    lines = (f"{head}\n    " + BODY).splitlines()
    assert window.save(file).splitlines()[:2] == lines[:2]
    # At the line's start Tab is the editor's own: it indents, and with that types what is shown.
    window.press("Tab")
    window.pause(500)
    window.press("Tab")
    assert_saved(window, file, "\n".join(lines))
    assert window.seen().gaps == 0


def test_undo_after_accepting_restores_the_text(site: Site, window: Workbench, edit: Edit) -> None:
    file, head = start(site, window, edit, "undone", delay_ms=20)
    window.wait_for_ghost("return value_8")
    window.press("Tab")
    window.wait_for_no_ghost()
    window.press("Control+z")
    assert_saved(window, file, f"{head}\n    ")


def test_the_next_alternative_is_shown_by_the_editors_own_key(site: Site, window: Workbench, edit: Edit) -> None:
    head = "def alternated(samples):"
    site.tape.add(f"{head}\n    ", ["return first\n"])
    file = edit("alternated.py", head)
    window.press("Enter")
    window.wait_for_ghost("return first")
    # The engine of a model samples; the tape has one text for each place, so it is changed meanwhile.
    site.tape.replace(f"{head}\n    ", ["return second\n"])
    window.press("Alt+]")
    window.wait_for_ghost("return second")
    window.press("Alt+[")
    window.wait_for_ghost("return first")
    window.press("Alt+]")
    window.wait_for_ghost("return second")
    window.press("Tab")
    assert_saved(window, file, f"{head}\n    return second")
