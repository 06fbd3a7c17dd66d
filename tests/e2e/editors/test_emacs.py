"""Emacs: copilot.el unchanged, lsp-mode's inline completion, and eglot's menu."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from emacs import Emacs
from recording import AREA
from world import PICTURES, World

pytestmark = pytest.mark.all_editors
HEAD = "def area(width, height):\n"
TYPED = "    if"
SHOWN = AREA.removeprefix(TYPED).partition("\n    return")[0]  # the statement that was begun

# As docs/editors/emacs.md says them, but for the server's path and what only these tests want.
COPILOT = """
(require 'copilot)
(setq copilot-server-executable "{server}"
      copilot-server-args '("lsp"))
(add-hook 'python-mode-hook #'copilot-mode)
(define-key copilot-completion-map (kbd "TAB") #'copilot-accept-completion)
(define-key copilot-completion-map (kbd "M-f") #'copilot-accept-completion-by-word)
(set-face-attribute 'copilot-overlay-face nil :foreground "blue" :weight 'normal :slant 'normal)
"""
LSP_MODE = """
(require 'lsp-mode)
(require 'lsp-inline-completion)
(add-to-list 'lsp-language-id-configuration '(python-mode . "python"))
(lsp-register-client
 (make-lsp-client :new-connection (lsp-stdio-connection '("{server}" "lsp"))
                  :activation-fn (lsp-activate-on "python")
                  :initialization-options '(:surface "inline")
                  :server-id 'dflash :add-on? t))
(setq lsp-inline-completion-idle-delay 0.2)
(define-key lsp-inline-completion-active-map (kbd "TAB") #'lsp-inline-completion-accept)
(add-hook 'python-mode-hook #'lsp)
(setq lsp-auto-guess-root t lsp-headerline-breadcrumb-enable nil lsp-enable-suggest-server-download nil)
(set-face-attribute 'lsp-inline-completion-overlay-face nil :foreground "blue" :inherit nil)
"""
EGLOT = """
(require 'eglot)
(require 'company)
(add-to-list 'eglot-server-programs '(python-mode . ("{server}" "lsp")))
(add-hook 'python-mode-hook #'eglot-ensure)
(add-hook 'python-mode-hook #'company-mode)
(setq company-minimum-prefix-length 1 company-idle-delay 0.1)
"""


@pytest.fixture
def start(replay: World) -> Iterator[Callable[[str], Emacs]]:
    """Starts an Emacs on a file that ends in HEAD, the cursor behind it, with an init file."""
    settings = replay.root / "config/dflash-lsp"
    settings.mkdir(exist_ok=True)
    (settings / "settings.toml").write_text(f'profile = "{replay.profile}"\n', encoding="utf-8")
    started: list[Emacs] = []

    def begin(init: str) -> Emacs:
        file = replay.write("area.py", HEAD)
        emacs = Emacs(replay, init.format(server=replay.server), file)
        started.append(emacs)
        emacs.wait_for("def area(width, height):")
        emacs.type("<M->>")
        return emacs

    yield begin
    for each in started:
        each.close()
    (settings / "settings.toml").unlink()


def show(emacs: Emacs, is_shown: Callable[[], bool]) -> None:
    """Type until the server is up: what is typed before it is there is not completed."""
    emacs.type_slowly(TYPED)

    def is_shown_in_time() -> bool:
        emacs.type("<BS>f")
        for _ in range(20):
            emacs.watch(0.2)
            if is_shown():
                return True
        return False

    emacs.wait(is_shown_in_time, lambda: f"a completion, now {emacs.ghost!r}", 90)


def test_copilot_el_works_unchanged(start: Callable[[str], Emacs], replay: World) -> None:
    emacs = start(COPILOT)
    show(emacs, lambda: emacs.ghost == SHOWN)
    emacs.save_picture(PICTURES / "emacs-copilot.svg")
    emacs.type("<M-f>")
    emacs.wait(lambda: emacs.ghost == SHOWN.removeprefix(" width"), "a word accepted")
    emacs.type("<Tab>")
    emacs.wait(lambda: emacs.ghost == "", "all of it accepted")
    assert emacs.saved(replay.workspace / "area.py").decode().rstrip("\n") == HEAD + TYPED + SHOWN


def test_lsp_modes_inline_completion(start: Callable[[str], Emacs], replay: World) -> None:
    emacs = start(LSP_MODE)
    show(emacs, lambda: emacs.ghost == SHOWN)
    emacs.save_picture(PICTURES / "emacs-lsp-mode.svg")
    emacs.type("<Tab>")
    emacs.wait(lambda: emacs.ghost == "", "all of it accepted")
    assert emacs.saved(replay.workspace / "area.py").decode().rstrip("\n") == HEAD + TYPED + SHOWN


def test_eglots_menu(start: Callable[[str], Emacs], replay: World) -> None:
    emacs = start(EGLOT)
    emacs.wait_for("[eglot:")
    show(emacs, lambda: "if width < 0 or height" in emacs.text)
    emacs.save_picture(PICTURES / "emacs-eglot.svg")
    emacs.type("<Enter>")
    emacs.wait_for("raise ValueError")
    assert emacs.saved(replay.workspace / "area.py").decode().rstrip("\n") == HEAD + TYPED + SHOWN
