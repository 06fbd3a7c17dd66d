"""Neovim with the embedded target and its draft: real text, block by block."""

from __future__ import annotations

from itertools import pairwise

from world import PICTURES, World, world

from neovim import Neovim, install_package, neovims, options

TEXT = '"""Areas."""\n\n\ndef rectangle_area(width, height):\n    """The area of a rectangle."""\n'
FRUITS = "# A list of fruits that grow in summer:\nfruits = "


def is_whole(nvim: Neovim, here: World) -> bool:
    """Whether the engine has nothing more to do, and what is shown has not grown for a second since."""
    return here.metric("dflash_running_requests") == 0 and nvim.is_settled()


def test_a_real_pair_grows_and_is_accepted(version: str) -> None:
    assert version in neovims()
    with world(None) as here:
        fetched = here.dflash("fetch", "embedded")
        assert fetched.returncode == 0, fetched.stderr
        install_package(here)
        file = here.write("areas.py", TEXT)
        nvim = Neovim(version, here, file, init=options(here))
        try:
            nvim.wait_ready()
            seen = nvim.record(lambda: nvim.ghost)
            nvim.type("Go")
            nvim.wait(lambda: nvim.ghost, "ghost text of a model", 60)
            nvim.wait(lambda: is_whole(nvim, here), "a whole completion", 120)
            shown = nvim.ghost
            assert all(later.startswith(earlier) for earlier, later in pairwise(seen)), seen
            nvim.save_picture(PICTURES / "neovim-embedded.svg")
            nvim.type("<Tab>")
            nvim.wait_ghost("")
            nvim.escape()
            assert nvim.ask("join(getline(6, '$'), '|')").strip("'").strip() == shown.strip().replace("\n", "|")
            assert nvim.messages() == ""
            file = here.write("fruits.py", FRUITS)
            nvim.command(f"edit! {file}")
            nvim.type("GA[")
            nvim.wait(lambda: nvim.ghost, "ghost text of a model", 60)
            nvim.wait(lambda: is_whole(nvim, here), "a whole completion", 120)
            first = nvim.ghost
            nvim.type("<M-]>")
            nvim.wait(lambda: nvim.ghost not in ("", first), "a sampled text", 60)
            nvim.wait(lambda: is_whole(nvim, here), "the whole of it", 120)
            second = nvim.ghost
            nvim.type("<M-[>")
            nvim.wait_ghost(first)
            nvim.type("<M-]>")
            nvim.wait_ghost(second)
            nvim.type("<Tab>")
            nvim.wait_ghost("")
            # Ghost text that begins with a line's end is read without it.
            saved = nvim.saved(file).decode().rstrip("\n").replace("[\n", "[")
            assert saved == f"{FRUITS}[{second.removeprefix(chr(10))}"
        finally:
            nvim.close()
