"""The end-to-end proof in a real VS Code: type, see the ghost text, accept it, find it in the saved file.

    tests/e2e/setup.sh && npm ci && npm run package
    <cache>/driver/bin/python tests/e2e/vscode.py                     # recorded text, checked to the byte
    <cache>/driver/bin/python tests/e2e/vscode.py --profile embedded  # the real target and its draft

The body of a function is cut out of a copy of a file of this repository; the editor gets the first characters of it
and the server has to give the rest. With the replay engine the saved file must equal the repository's own; the
recording goes on past the function, so the boundary is proven with it. With a model it must hold the ghost text seen.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from codeserver import code_server
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
GHOST = ".ghost-text-decoration, .ghost-text"
READY = r"DFlash: (?!starting|loading|failed|off)"
# Left to right, top to bottom; VS Code renders blanks as no-break spaces.
READ_GHOST = """elements => elements
    .map(element => ({text: element.textContent, box: element.getBoundingClientRect()}))
    .sort((a, b) => Math.round(a.box.top - b.box.top) || a.box.left - b.box.left)
    .map(({text}) => text).join("")"""


@dataclass(frozen=True)
class Cut:
    """A file whose function lost its body from `typed` on."""

    original: str
    remaining: str  # the file without the body
    line: int  # 1-based line at whose end the cursor is put
    indent: str  # what the editor inserts itself after Enter
    typed: str
    missing: str  # what a completion has to bring

    @property
    def after(self) -> str:
        """What stands before the cursor once `typed` is typed, from the cursor's own function on."""
        lines = self.original.splitlines(keepends=True)
        return "".join(lines[max(0, self.line - 6) : self.line]) + self.indent + self.typed


def cut_function(source: str, name: str, typed_characters: int) -> Cut:
    """Cuts the body of the function `name` behind its docstring; `typed_characters` of it are left to be typed."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            break
    else:
        raise SystemExit(f"no function {name} in the file")
    lines = source.splitlines(keepends=True)
    first, last = body[0].lineno - 1, body[-1].end_lineno or body[-1].lineno
    text = "".join(lines[first:last]).removesuffix("\n")
    indent = text[: len(text) - len(text.lstrip())]
    typed = text.lstrip()[:typed_characters]
    return Cut(
        original=source,
        remaining="".join(lines[:first] + lines[last:]),
        line=first,
        indent=indent,
        typed=typed,
        missing=text.lstrip()[typed_characters:],
    )


def write_replay_profile(folder: Path, cut: Cut) -> Path:
    """A profile that replays the missing text line by line, and goes on into what follows it in the file."""
    text = cut.missing + "\n\n\ndef not_part_of_it():\n    return None\n"
    chunks = text.splitlines(keepends=True)
    record = {"after": cut.after, "text": text, "chunks": chunks, "delay_ms": 50}
    (folder / "recording.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    profile = folder / "replay-e2e.toml"
    profile.write_text('[engine]\nkind = "replay"\nrecording = "recording.jsonl"\n', encoding="utf-8")
    return profile


def open_file(page: Page, address: str, name: str) -> None:
    page.goto(address)
    page.locator(f'.explorer-folders-view .monaco-list-row[aria-label*="{name}"]').dblclick(timeout=60_000)
    page.locator(".editor-instance .monaco-editor .view-lines").click(timeout=30_000)
    page.keyboard.press("Control+b")  # the side bar has done its part


def wait_for_status(page: Page, wanted: str, limit_s: float) -> str:
    """Waits until the language status of the extension matches the pattern `wanted`, and returns its text."""
    item = page.locator('[id="status.languageStatus"]')
    item.wait_for(timeout=30_000)
    deadline = time.monotonic() + limit_s
    text = ""
    while time.monotonic() < deadline:
        item.hover()
        page.wait_for_timeout(700)
        said = page.locator(".hover-language-status .element", has_text="DFlash").all_inner_texts()
        text = " - ".join(line for line in "\n".join(said).splitlines() if line != "Show logs")
        if re.search(wanted, text):
            return text
        if "failed" in text:
            break
        page.mouse.move(5, 300)
        page.wait_for_timeout(300)
    raise SystemExit(f"the status did not become {wanted!r}; it says: {text or 'nothing'}")


def complete(page: Page, cut: Cut, limit_s: float) -> str:
    """Types at the end of the cut's line, waits for ghost text that has stopped changing, and returns it."""
    page.keyboard.press("Control+g")
    page.locator(".quick-input-widget").wait_for()
    page.keyboard.type(f"{cut.line}:999")
    page.keyboard.press("Enter")
    page.locator(".quick-input-widget").wait_for(state="hidden")
    page.keyboard.press("Enter")  # the editor indents the new line
    page.keyboard.type(cut.typed, delay=40)
    ghost = page.locator(GHOST)
    ghost.first.wait_for(timeout=limit_s * 1000)
    seen = ""
    while (now := ghost.evaluate_all(READ_GHOST)) != seen:
        seen = now
        page.wait_for_timeout(700)
    return seen


def accept_and_save(page: Page, file: Path, before: str) -> str:
    page.keyboard.press("Tab")
    page.wait_for_timeout(300)
    page.keyboard.press("Control+s")
    deadline = time.monotonic() + 10
    while (text := file.read_text(encoding="utf-8")) == before and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    return text


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def check(saved: str, cut: Cut, ghost: str, replayed: bool) -> None:
    """Raises SystemExit where the saved file is not what it must be."""
    head = "".join(cut.original.splitlines(keepends=True)[: cut.line]) + cut.indent + cut.typed
    tail = cut.remaining.removeprefix("".join(cut.original.splitlines(keepends=True)[: cut.line]))
    if not (saved.startswith(head) and saved.endswith(tail)):
        changed = "".join(
            difflib.unified_diff(cut.original.splitlines(True), saved.splitlines(True), "original", "saved")
        )
        raise SystemExit(f"the text around the completion is no longer what it was:\n{changed}")
    inserted = saved[len(head) : len(saved) - len(tail)]
    if not ghost or squeezed(inserted) != squeezed(ghost):
        raise SystemExit(f"accepted text {inserted!r} is not the ghost text {ghost!r}")
    if replayed and saved != cut.original:
        raise SystemExit(f"the saved file differs from the original: inserted {inserted!r}, missing {cut.missing!r}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Accept a completion in a real VS Code and check the saved file.")
    parser.add_argument("--profile", default="replay", help="replay (default), or the profile of a real model")
    parser.add_argument(
        "--file", type=Path, default=Path("tests/e2e/codeserver.py"), help="a Python file of the repository"
    )
    parser.add_argument("--function", default="free_port", help="the function whose body is cut out")
    parser.add_argument("--typed", type=int, default=6, help="how many characters of the body are typed")
    parser.add_argument("--picture", type=Path, default=ROOT / "build/e2e/vscode.png", help="where the screenshot goes")
    parser.add_argument("--server", type=Path, default=ROOT / ".venv/bin/dflash-lsp", help="the server's executable")
    return parser.parse_args()


def packaged_extension() -> Path:
    version = json.loads((ROOT / "vscode-extension/package.json").read_text(encoding="utf-8"))["version"]
    extension = ROOT / f"vscode-extension/dflash-lsp-{version}.vsix"
    if not extension.exists():
        raise SystemExit(f"no {extension.name} in vscode-extension: run `npm run package` first")
    return extension


def prove(page: Page, address: str, file: Path, cut: Cut, picture: Path) -> tuple[str, str, str]:
    """Completes the cut in the open page and returns the saved file, the ghost text and the status."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    try:
        open_file(page, address, file.name)
        wait_for_status(page, READY, limit_s=120)
        ghost = complete(page, cut, limit_s=120)
        status = wait_for_status(page, READY, limit_s=10)
    finally:
        page.screenshot(path=picture)  # with the ghost text, and the status still open
    return accept_and_save(page, file, cut.remaining), ghost, status


def main() -> int:
    options = parse_arguments()
    if not os.access(options.server, os.X_OK):
        raise SystemExit(f"no server at {options.server}: install the project first, or name one with --server")
    extension = packaged_extension()
    replayed = options.profile == "replay"
    cut = cut_function((ROOT / options.file).read_text(encoding="utf-8"), options.function, options.typed)

    # A short path: the engine's socket lives under it.
    with tempfile.TemporaryDirectory(prefix="dflash-e2e-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        file = folder / "workspace" / options.file.name
        file.parent.mkdir()
        file.write_text(cut.remaining, encoding="utf-8")
        (folder / "run").mkdir(mode=0o700)
        profile = str(write_replay_profile(folder, cut)) if replayed else options.profile
        # An engine of our own, whatever else runs on this machine; the models stay where they are.
        environment = {
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "data/logs/state"),
        }
        settings = {"dflash.server.command": str(options.server), "dflash.profile": profile}
        try:
            with (
                code_server(file.parent, folder / "data", extension, settings, environment) as address,
                sync_playwright() as driver,
            ):
                browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1000, "height": 620})
                saved, ghost, status = prove(page, address, file, cut, options.picture)
                browser.close()
            check(saved, cut, ghost, replayed)
        except BaseException:
            kept = options.picture.parent / "logs"
            if (folder / "data/logs").exists():
                shutil.copytree(folder / "data/logs", kept, dirs_exist_ok=True)
                print(f"the editor's logs are kept in {kept}", file=sys.stderr)
            raise
        finally:
            subprocess.run(
                [options.server, "engine", "stop", "--profile", profile],
                env={**os.environ, **environment},
                check=False,
                stdout=subprocess.DEVNULL,
            )
    print(f"{status}\naccepted {len(ghost)} characters of ghost text in {options.file}; picture: {options.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
