"""Helix, which knows nothing but the completion menu."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recording import PATHS, ROWS
from terminal import Terminal
from world import PICTURES, World, cache_dir

pytestmark = pytest.mark.all_editors

# As docs/editors/helix.md says it, but for the server's path and profile.
LANGUAGES = """
[language-server.dflash]
command = "{server}"
args = ["lsp"]
config = {{ profile = "{profile}" }}

[[language]]
name = "python"
language-servers = ["dflash"]
"""


@pytest.fixture
def start(replay: World) -> Iterator[Callable[[Path], Terminal]]:
    """Starts a Helix on a file, whose Python is completed by our server alone."""
    forky = cache_dir() / "forky"
    config = replay.root / "config/helix"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text('theme = "base16_terminal"\n', encoding="utf-8")
    languages = LANGUAGES.format(server=replay.server, profile=replay.profile)
    (config / "languages.toml").write_text(languages, encoding="utf-8")
    environment = {**replay.environment, "HELIX_RUNTIME": str(forky / "usr/lib/hx/runtime")}
    started: list[Terminal] = []

    def begin(file: Path) -> Terminal:
        started.append(Terminal([forky / "usr/bin/hx", file.name], replay.workspace, environment))
        started[-1].wait_for(file.name)
        return started[-1]

    yield begin
    for each in started:
        each.close()


def show(helix: Terminal, text: str) -> None:
    """Ask for the menu before the last character of the line, until the server is up."""
    helix.type("gli")

    def is_shown() -> bool:
        helix.type("<C-x>")
        helix.watch(1.0)
        return text in helix.text

    helix.wait(is_shown, "the menu", 60)


def saved(helix: Terminal, file: Path) -> str:
    before = file.stat().st_mtime_ns
    helix.type("<Esc>")
    helix.wait_for("NOR")
    helix.type(":w<Enter>")
    helix.wait(lambda: file.stat().st_mtime_ns != before, "a saved file")
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "label", "text"),
    [
        ("total = add()", "first, second)", "total = add(first, second)"),
        ("rows = []", "first,", "rows = [" + ROWS),
        ("    path = join()", '"$HOME/${name}",', "    path = join(" + PATHS),
        ("print('😀漢字'); rows = []", "first,", "print('😀漢字'); rows = [" + ROWS),
    ],
    ids=["one line", "several lines", "what a snippet would expand", "wide characters"],
)
def test_the_item_is_shown_and_accepted(
    start: Callable[[Path], Terminal], replay: World, line: str, label: str, text: str
) -> None:
    file = replay.write("menu.py", line + "\n")
    helix = start(file)
    show(helix, label)
    helix.type("<C-n>")
    helix.wait_for("DFlash")  # the preview beside the menu
    if line == "rows = []":
        helix.save_picture(PICTURES / "helix.svg")
    helix.type("<Enter>")
    helix.wait(lambda: "DFlash" not in helix.text, "a closed menu")
    assert saved(helix, file) == text + "\n"
