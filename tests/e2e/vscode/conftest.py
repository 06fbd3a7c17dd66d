"""One code-server and one browser for all tests; each test gets a file of its own in the same window."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from code_server import CodeServer
from playwright.sync_api import Browser, Page, sync_playwright
from tape import Engine, Tape
from workbench import READY, Workbench

ROOT = Path(__file__).resolve().parents[3]
ARTEFACTS = ROOT / "build/e2e"
SERVER = Path(os.environ.get("DFLASH_E2E_SERVER") or ROOT / ".venv/bin/dflash-lsp")


@dataclass(frozen=True)
class Site:
    """Where it all happens: folders that are nobody else's, and the running code-server."""

    folder: Path
    code_server: CodeServer
    address: str
    tape: Tape
    engine: Engine
    environment: dict[str, str]

    @property
    def settings(self) -> dict[str, object]:
        """Of machine scope: our own server, and the tape."""
        return {"dflash.server.command": str(SERVER), "dflash.profile": str(self.tape.profile)}

    def workspace(self, name: str) -> Path:
        """A folder to be opened."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    if not os.access(SERVER, os.X_OK):
        pytest.exit(f"no server at {SERVER}: install the project first", 1)
    version = json.loads((ROOT / "vscode-extension/package.json").read_text(encoding="utf-8"))["version"]
    extension = ROOT / f"vscode-extension/dflash-lsp-{version}.vsix"
    if not extension.exists():
        pytest.exit(f"no {extension.name} in vscode-extension: run `npm run package` first", 1)
    # A short path: the engine's socket lies under it.
    folder = Path(tempfile.mkdtemp(prefix="dflash-e2e-", dir="/tmp"))
    (folder / "run").mkdir(mode=0o700)
    environment = {
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    code_server = CodeServer(folder / "data", extension, environment)
    tape = Tape(folder)
    site = Site(folder, code_server, code_server.start(), tape, Engine(folder / "run"), environment)
    code_server.machine_settings(site.settings)
    try:
        yield site
    finally:
        code_server.stop()
        site.engine.kill()
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        for name in ("data/logs", "state"):
            if (folder / name).exists():
                shutil.copytree(folder / name, ARTEFACTS / "logs" / name, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def new_window(site: Site, browser: Browser) -> Callable[[Path], Workbench]:
    """Opens a folder in a window of its own."""

    def open_window(folder: Path) -> Workbench:
        page = browser.new_context(
            viewport={"width": 1000, "height": 620}, permissions=["clipboard-read", "clipboard-write"]
        ).new_page()
        window = Workbench(page)
        window.load(site.address, folder)
        return window

    return open_window


@pytest.fixture(scope="session")
def first_window(site: Site, new_window: Callable[[Path], Workbench]) -> Workbench:
    """The window that most tests share, once the server and its engine are ready."""
    folder = site.workspace("workspace")
    (folder / "start.py").write_text("", encoding="utf-8")
    window = new_window(folder)
    window.open("start.py")
    window.wait_for_status(READY, limit_s=120)
    return window


@pytest.fixture
def window(first_window: Workbench, request: pytest.FixtureRequest) -> Iterator[Workbench]:
    """The shared window, with no editor open; a picture of it is kept when the test fails."""
    first_window.close_all()
    yield first_window
    outcome = request.node.stash.get(OUTCOME, None)
    if outcome is not None and outcome.failed:
        keep_picture(first_window.page, f"failed-{request.node.name}")


@pytest.fixture
def edit(site: Site, window: Workbench) -> Callable[..., Path]:
    """Makes a file with a text, opens it, and puts the cursor at its end or at a line and column."""

    def edit_file(name: str, text: str, at: tuple[int, int] | None = None) -> Path:
        file = site.workspace("workspace") / name
        file.write_bytes(text.encode())
        window.open(name)
        window.go_to(*(at or (text.count("\n") + 1, 999)))
        return file

    return edit_file


def keep_picture(page: Page, name: str) -> Path:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    picture = ARTEFACTS / f"{name}.png"
    page.screenshot(path=picture)
    return picture


OUTCOME = pytest.StashKey[pytest.TestReport]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.when == "call":
        item.stash[OUTCOME] = report
    return report


def run_server_command(site: Site, *arguments: str) -> None:
    """A command of the server's own, on this site's directories."""
    subprocess.run([SERVER, *arguments], env={**os.environ, **site.environment}, check=True, stdout=sys.stderr)
