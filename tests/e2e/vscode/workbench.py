"""One window of VS Code, driven as a user would: by keys and by what stands on the screen."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import FrameLocator, Locator, Page, TimeoutError

# Nothing is slower than this on a machine that does much else; who waits for what does not come waits that long.
LIMIT_S = 60.0
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
        """How often text was added at the end of text that was shown."""
        pairs = list(zip(self.texts, self.texts[1:], strict=False))
        return sum(bool(before) and len(after) > len(before) and after[-8:] != before[-8:] for before, after in pairs)

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
        page.set_default_timeout(LIMIT_S * 1000)

    def load(self, address: str, folder: Path) -> None:
        kind = "workspace" if folder.suffix == ".code-workspace" else "folder"
        self.page.goto(f"{address}/?{kind}={folder}")
        self.page.locator(".monaco-workbench .part.editor").wait_for()
        self.page.locator('[id="status.problems"], [id="status.notifications"]').first.wait_for()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str, delay: float = 25) -> None:
        self.page.keyboard.type(text, delay=delay)

    def pause(self, ms: float) -> None:
        self.page.wait_for_timeout(ms)

    def command(self, title: str) -> None:
        """Run a command from the palette. What is shown in the editor goes away: it loses the focus."""
        self._quick_input("F1", f">{title}", self._row(title))

    def pick(self, title: str, asks: str, row: str) -> None:
        """Run a command from the palette that asks for one of several rows by these words, and pick one.

        Only the first rows are drawn, so the one is looked for by its name.
        """
        self._quick_input("F1", f">{title}", self._row(title), closes=False)
        box = self.page.locator(f'.quick-input-widget input[placeholder="{asks}"]')
        box.wait_for()
        self._all_rows().first.wait_for()
        box.fill(row)
        self._all_rows().filter(has_text=row).first.click()

    def open(self, file: Path) -> None:
        """Open a file and put the cursor into it. By its path: an index of names does not know new ones yet."""
        self._quick_input("Control+p", str(file), self._row(file.name))
        self.page.locator(f'.tab.active[data-resource-name="{file.name}"]').wait_for()
        self.page.locator(".editor-instance .monaco-editor.focused .view-lines").first.wait_for()

    def go_to(self, line: int, column: int) -> None:
        """Both 1-based; a column past the end is the end."""
        # The list has one row, which says where it would go.
        self._quick_input("Control+g", f":{line}:{column}", self._all_rows().filter(has_text=f"{line}").first)
        self.page.locator(".editor-instance .monaco-editor.focused").first.wait_for()

    def close_all(self) -> None:
        """Close all editors, whatever is in them, and put away what was told."""
        while self.page.locator(".tab").count():
            self.command("View: Revert and Close Editor")
            self.pause(100)
        self.press("Escape", "Escape")

    def save(self, file: Path, wanted: str | None = None) -> str:
        """Save the file in front until it holds `wanted`, and return what it holds, line ends as they are.

        An accepted completion reaches the text a little after its key; whoever cannot say what it is waits a while.
        """
        deadline = time.monotonic() + LIMIT_S
        while True:
            self.pause(150 if wanted is not None else 700)
            self.press("Control+s")
            self.page.locator(".tab.active:not(.dirty)").wait_for()
            found = file.read_bytes().decode()
            if wanted in (None, found) or time.monotonic() > deadline:
                return found

    def ghost(self) -> str:
        return self.page.evaluate(READ_GHOST)

    def wait_for_ghost(self, wanted: str = "", limit_s: float = LIMIT_S) -> str:
        """Wait for ghost text that holds `wanted`, blanks left out, and return it."""
        return self.wait_for(
            self.ghost, lambda ghost: bool(ghost) and squeezed(wanted) in squeezed(ghost), limit_s, f"ghost {wanted!r}"
        )

    def wait_for_whole_ghost(self, limit_s: float) -> str:
        """Wait for ghost text that has not grown for two seconds, and return it."""
        deadline = time.monotonic() + limit_s
        ghost, since = self.wait_for_ghost(limit_s=limit_s), time.monotonic()
        while time.monotonic() < since + 2:
            assert time.monotonic() < deadline, "it does not end"
            self.pause(100)
            if (now := self.ghost()) != ghost:
                ghost, since = now, time.monotonic()
        return ghost

    def wait_for_no_ghost(self, limit_s: float = LIMIT_S) -> None:
        self.wait_for(self.ghost, lambda ghost: not ghost, limit_s, "no ghost text")

    def watch(self) -> None:
        """Look at the ghost text in every frame from now on."""
        self.page.evaluate(WATCH)

    def seen(self) -> Seen:
        """What was seen since `watch`."""
        found = self.page.evaluate(STOP_WATCHING)
        return Seen(found["frames"], [(time, text) for time, text in found["changes"]])

    def status(self) -> str:
        """What the language status says of DFlash: the words that its hover shows, as they are read aloud."""
        label = self.page.locator('[id="status.languageStatus"] [aria-label]').first.get_attribute("aria-label")
        return ", ".join(said for said in (label or "").split(", next: ") if "DFlash" in said)

    def wait_for_status(self, wanted: str, limit_s: float = LIMIT_S) -> str:
        return self.wait_for(self.status, lambda text: bool(re.search(wanted, text)), limit_s, f"status {wanted}")

    @contextmanager
    def status_hover(self) -> Iterator[str]:
        """What the hover of the language status shows of DFlash, the link among it; it is on the screen meanwhile."""
        self.page.locator('[id="status.languageStatus"]').hover()
        shown = self.page.locator(".hover-language-status .element", has_text="DFlash")
        shown.first.wait_for()
        yield " - ".join("\n".join(shown.all_inner_texts()).splitlines())
        self.page.mouse.move(300, 300, steps=5)
        shown.first.wait_for(state="hidden")

    def engine_page(self) -> FrameLocator:
        """The engine's status page, opened in front."""
        self.command("DFlash: Open Engine Status Page")
        frame = self.page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")
        frame.get_by_role("heading", name="DFlash engine").wait_for()
        return frame

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
            time.sleep(0.03) if self.page.is_closed() else self.pause(30)

    def _quick_input(self, key: str, text: str, row: Locator, closes: bool = True) -> None:
        """Type a text into the input that a key opens, and take the row that comes first then.

        Whatever comes up in the window meanwhile closes it again, so it is opened until that row is there.
        """
        box = self.page.locator(".quick-input-widget input.input").first
        deadline = time.monotonic() + LIMIT_S
        while True:
            self.press(key)
            try:
                box.fill(text, timeout=5_000)
                row.wait_for(timeout=10_000)
                break
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
                self.press("Escape")
        self.press("Enter")
        if closes:
            box.wait_for(state="hidden")

    def _all_rows(self) -> Locator:
        return self.page.locator(".quick-input-list .monaco-list-row")

    def _row(self, text: str) -> Locator:
        """The row that Enter would take; a command is listed by its title, with its category or without."""
        row = self.page.locator(".quick-input-list .monaco-list-row.focused")
        return row.filter(has_text=text.rpartition(": ")[2]).first
