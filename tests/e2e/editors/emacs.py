"""A real Emacs in a terminal, with nothing of its own but an init file."""

from __future__ import annotations

from pathlib import Path

from terminal import Terminal
from world import World, cache_dir

GHOST = "blue"


class Emacs(Terminal):
    def __init__(self, world: World, init: str, file: Path) -> None:
        """`init`: Emacs Lisp; the packages of editors_setup.sh can be required."""
        usr = cache_dir() / "forky/usr"
        share = next((usr / "share/emacs").glob("[0-9]*"))
        programs = next((usr / "libexec/emacs").glob("*/*"))
        packages = [*(usr / "share/emacs/site-lisp/elpa-src").iterdir(), cache_dir() / "copilot.el"]
        paths = "".join(f'(add-to-list \'load-path "{folder}")\n' for folder in packages)
        # As a package manager does: what a package loads late is named in its autoloads.
        late = [file for folder in packages for file in folder.glob("*-autoloads.el")]
        paths += "".join(f'(load "{file}" nil t)\n' for file in late)
        home = world.root / "emacs"
        home.mkdir(exist_ok=True)
        start = home / "init.el"
        start.write_text(
            f"{paths}(setq native-comp-enable-subr-trampolines nil native-comp-jit-compilation nil)\n"
            f"(setq make-backup-files nil auto-save-default nil)\n{init}",
            encoding="utf-8",
        )
        lisp = [share / "lisp", *(each for each in (share / "lisp").rglob("*") if each.is_dir())]
        environment = {
            **world.environment,
            "HOME": str(home),
            "EMACSDATA": str(share / "etc"),
            "EMACSDOC": str(share / "etc"),
            "EMACSPATH": str(programs),
            "EMACSLOADPATH": ":".join(map(str, lisp)),
        }
        dump = next(programs.glob("*.pdmp"))
        command = [usr / "bin/emacs-nox", f"--dump-file={dump}", "-nw", "-Q", "-l", start, file]
        super().__init__(command, world.workspace, environment)

    @property
    def ghost(self) -> str:
        return "\n".join(line.rstrip() for line in self.coloured(GHOST))

    def saved(self, file: Path) -> bytes:
        before = file.stat().st_mtime_ns
        self.type("<C-x><C-s>")
        self.wait(lambda: file.stat().st_mtime_ns != before, "a saved file")
        return file.read_bytes()
