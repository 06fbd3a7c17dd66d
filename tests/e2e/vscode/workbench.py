"""One window of VS Code, driven as a user would: by keys and by what stands on the screen."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

GHOST = ".ghost-text-decoration, .ghost-text"
READY = r"DFlash: (?!starting|loading|failed|off|paused)"
# Left to right, top to bottom.
READ_GHOST = """() => [...document.querySelectorAll('.ghost-text-decoration, .ghost-text')]
    .map(element => ({text: element.textContent, box: element.getBoundingClientRect()}))
    .sort((a, b) => Math.round(a.box.top - b.box.top) || a.box.left - b.box.left)
    .map(({text}) => text).join("")"""
# Notes each frame in which the ghost text is another than in the frame before: what the user sees, no more and no less.
WATCH = f"""() => {{
    const read = {READ_GHOST};
    const seen = window.dflashSeen = {{frames: 0, changes: [], on: true}};
    let last = null;
    const look = time => {{
        if (!seen.on) return;
        const text = read();
        if (text !== last) seen.changes.push([time, text]);
        last = text;
        seen.frames++;
        requestAnimationFrame(look);
    }};
    requestAnimationFrame(look);
}}"""
STOP_WATCHING = "() => { window.dflashSeen.on = false; return window.dflashSeen; }"


@dataclass(frozen=True)
class Seen:
    """What was on the screen: the ghost text of each frame that differs from the one before, times in ms."""

    frames: int
    changes: list[tuple[float, str]]

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.changes]

    @property
    def updates(self) -> int:
        """How often text was added to text that was shown."""
        pairs = list(zip(self.texts, self.texts[1:], strict=False))
        return sum(bool(before) and len(after) > len(before) for before, after in pairs)

    @property
    def gaps(self) -> int:
        """How often the text went away and came back."""
        shown = [bool(text) for text in self.texts]
        if True not in shown:
            return 0
        first, last = shown.index(True), len(shown) - 1 - shown[::-1].index(True)
        return shown[first:last].count(False)

    @property
    def shrinks(self) -> int:
        """How often some of the text went away while some stayed."""
        pairs = list(zip(self.texts, self.texts[1:], strict=False))
        return sum(bool(after) and len(after) < len(before) for before, after in pairs)


def squeezed(text: str) -> str:
    """Without blanks, of which VS Code renders other ones."""
    return re.sub(r"\s", "", text)


class Workbench:
    def __init__(self, page: Page) -> None:
        self.page = page

    def load(self, address: str, folder: Path) -> None:
        self.page.goto(f"{address}/?folder={folder}")
        self.page.locator(".monaco-workbench .part.editor").wait_for(timeout=60_000)
        self.page.locator('[id="status.problems"], [id="status.notifications"]').first.wait_for(timeout=60_000)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str, delay: float = 25) -> None:
        self.page.keyboard.type(text, delay=delay)

    def pause(self, ms: float) -> None:
        self.page.wait_for_timeout(ms)

    def command(self, title: str) -> None:
        """Run a command from the palette."""
        self._quick_input("F1", title)

    def open(self, name: str) -> None:
        """Open a file of the workspace by its name, and put the cursor into it."""
        self._quick_input("Control+p", name)
        self.page.locator(f'.tab.active[data-resource-name="{name}"]').wait_for()
        self.page.locator(".editor-instance .monaco-editor .view-lines").first.wait_for()

    def go_to(self, line: int, column: int) -> None:
        """Both 1-based; a column past the end is the end."""
        self._quick_input("Control+g", f":{line}:{column}", replace=True)

    def close_all(self) -> None:
        """Close all editors, whatever is in them, and put away what was told."""
        while self.page.locator(".tab").count():
            self.command("View: Revert and Close Editor")
            self.pause(100)
        self.press("Escape", "Escape")

    def save(self, file: Path) -> str:
        """Save the file in front, and return what is in it then, line ends as they are."""
        self.press("Control+s")
        self.page.locator(".tab.active:not(.dirty)").wait_for(timeout=10_000)
        return file.read_bytes().decode()

    def ghost(self) -> str:
        return self.page.evaluate(READ_GHOST)

    def wait_for_ghost(self, wanted: str = "", limit_s: float = 20) -> str:
        """Wait for ghost text that holds `wanted`, blanks left out, and return it."""
        return self.wait_for(
            self.ghost, lambda ghost: bool(ghost) and squeezed(wanted) in squeezed(ghost), limit_s, f"ghost {wanted!r}"
        )

    def wait_for_no_ghost(self, limit_s: float = 5) -> None:
        self.wait_for(self.ghost, lambda ghost: not ghost, limit_s, "no ghost text")

    def watch(self) -> None:
        """Look at the ghost text in every frame from now on."""
        self.page.evaluate(WATCH)

    def seen(self) -> Seen:
        """What was seen since `watch`."""
        found = self.page.evaluate(STOP_WATCHING)
        return Seen(found["frames"], [(time, text) for time, text in found["changes"]])

    def status(self) -> str:
        """What the language status says of DFlash."""
        item = self.page.locator('[id="status.languageStatus"]')
        item.wait_for(timeout=30_000)
        item.hover()
        self.pause(600)
        said = self.page.locator(".hover-language-status .element", has_text="DFlash").all_inner_texts()
        self.page.mouse.move(300, 300)
        return " - ".join("\n".join(said).splitlines())

    def wait_for_status(self, wanted: str, limit_s: float = 60) -> str:
        found = self.wait_for(self.status, lambda text: bool(re.search(wanted, text)), limit_s, f"status {wanted}")
        self.page.locator(".hover-language-status").wait_for(state="hidden")
        return found

    def notifications(self) -> list[str]:
        return self.page.locator(".notification-toast .notification-list-item-message").all_inner_texts()

    def wait_for(self, read: Callable[[], str], is_right: Callable[[str], bool], limit_s: float, what: str) -> str:
        """Read until it is right; the failure says what there was instead."""
        deadline = time.monotonic() + limit_s
        while True:
            found = read()
            if is_right(found):
                return found
            assert time.monotonic() < deadline, f"{what} did not come; there is {found!r}"
            self.pause(30)

    def _quick_input(self, key: str, text: str, *, replace: bool = False) -> None:
        box = self.page.locator(".quick-input-widget input.input").first
        self.press(key)
        box.wait_for(state="visible")
        if replace:
            box.fill(text)
        else:
            self.page.keyboard.type(text)
        if not replace:
            row = self.page.locator(".quick-input-list .monaco-list-row.focused", has_text=text.split("/")[-1])
            row.first.wait_for(timeout=10_000)
        self.press("Enter")
        self.page.locator(".quick-input-widget").wait_for(state="hidden")
