"""The completion menu in real clients that know nothing else: Helix, Emacs with eglot, and Vim with ALE."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from terminal import Terminal
from world import World, cache_dir

pytestmark = pytest.mark.all_editors
FORKY = cache_dir() / "forky"


@pytest.fixture
def helix(replay: World) -> Iterator[Terminal]:
    """Helix, whose Python is completed by our server alone."""
    config = replay.root / "config/helix"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text("[editor]\ncompletion-timeout = 5\nidle-timeout = 50\n", encoding="utf-8")
    (config / "languages.toml").write_text(
        f'[language-server.dflash]\ncommand = "{replay.server}"\nargs = ["lsp"]\n'
        f'config = {{ profile = "{replay.profile}" }}\n\n'
        '[[language]]\nname = "python"\nlanguage-servers = ["dflash"]\n',
        encoding="utf-8",
    )
    (replay.workspace / "menu.py").write_text("total = add()\n", encoding="utf-8")
    environment = {**replay.environment, "HELIX_RUNTIME": str(FORKY / "usr/lib/hx/runtime")}
    terminal = Terminal([FORKY / "usr/bin/hx", "menu.py"], replay.workspace, environment)
    yield terminal
    terminal.close()


def test_helix(helix: Terminal, replay: World) -> None:
    helix.wait_for("menu.py")
    helix.watch(6)
    helix.type("gli")
    helix.watch(1)
    helix.type("<C-x>")
    helix.watch(4)
    print(helix.text)
    helix.type("<C-n>")
    helix.watch(1)
    print(helix.text)
    helix.type("<Enter>")
    helix.watch(1)
    print(helix.text)
    assert 0
