"""One code-server and one browser for all tests; each test gets a file of its own in the same window."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from code_server import CodeServer
from playwright.sync_api import Browser, Page, sync_playwright
from tape import Engine, Tape
from workbench import LIMIT_S, READY, Workbench

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

    def server_pids(self) -> set[int]:
        """Processes of the language servers that the extension started from this site."""
        found = set()
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                is_here = os.fsencode(self.folder) in (process / "environ").read_bytes()
                if is_here and b"lsp" in (process / "cmdline").read_bytes().split(b"\0"):
                    found.add(int(process.name))
        return found

    def wait_until_settings_count(self, change: Callable[[], bool]) -> None:
        """Change settings, and wait until a window has heard of it, if that changes any."""
        before = self._heard()
        if not change():
            return
        deadline = time.monotonic() + LIMIT_S
        while self._heard() <= before:
            assert time.monotonic() < deadline, "no window heard of the new settings"
            time.sleep(0.1)
        time.sleep(0.3)  # for the window to show what comes of it

    def wait_for_another_server(self, before: set[int]) -> None:
        """Wait until other servers run here than those."""
        deadline = time.monotonic() + LIMIT_S
        while not (now := self.server_pids()) or now & before:
            assert time.monotonic() < deadline, f"servers: {now}, before: {before}"
            time.sleep(0.1)

    def _heard(self) -> int:
        logs = (self.code_server.data / "logs").rglob("DFlash.log")
        return sum(log.read_text(encoding="utf-8").count("The settings have changed") for log in logs)

    def workspace(self, name: str) -> Path:
        """A folder to be opened."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder


@contextlib.contextmanager
def running_site(name: str) -> Iterator[Site]:
    """Its logs are kept under `name` among the artefacts."""
    # A short path: the engine's socket lies under it.
    folder = Path(tempfile.mkdtemp(prefix="dflash-e2e-", dir="/tmp"))
    (folder / "run").mkdir(mode=0o700)
    environment = {
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    code_server = CodeServer(folder / "data", packaged_extension(), environment)
    tape = Tape(folder)
    site = Site(folder, code_server, code_server.start(), tape, Engine(folder / "run", tape.profile), environment)
    code_server.machine_settings(site.settings)
    try:
        yield site
    finally:
        code_server.stop()
        site.engine.kill_all()
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        for logs in ("data/logs", "state"):
            if (folder / logs).exists():
                shutil.copytree(folder / logs, ARTEFACTS / "logs" / name / logs, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    if not os.access(SERVER, os.X_OK):
        pytest.exit(f"no server at {SERVER}: install the project first", 1)
    with running_site("shared") as shared:
        yield shared


@pytest.fixture
def own_site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Where settings can be changed that all windows of a site would follow."""
    with running_site(request.node.name) as own:
        yield own


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield chromium
        chromium.close()


def open_window(site: Site, browser: Browser, folder: Path) -> Workbench:
    """A folder, or a file of several, in a window of its own."""
    context = browser.new_context(
        viewport={"width": 1000, "height": 620}, permissions=["clipboard-read", "clipboard-write"]
    )
    window = Workbench(context.new_page())
    window.load(site.address, folder)
    return window


@pytest.fixture
def new_window(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[[Site, Path], Workbench]]:
    """Opens windows of a site, and closes them behind the test."""
    opened: list[Workbench] = []

    def open_another(site: Site, folder: Path) -> Workbench:
        opened.append(open_window(site, browser, folder))
        return opened[-1]

    yield open_another
    for number, window in enumerate(opened):
        if not window.page.is_closed():
            keep_picture_of_failure(request, window, f"-{number}")
            window.page.context.close()


@pytest.fixture(scope="session")
def first_window(site: Site, browser: Browser) -> Workbench:
    """The window that most tests share, once the server and its engine are ready."""
    folder = site.workspace("workspace")
    (folder / "start.py").write_text("", encoding="utf-8")
    window = open_window(site, browser, folder)
    window.open(folder / "start.py")
    window.press("Control+b")  # the side bar, which pictures need not show
    window.wait_for_status(READY, limit_s=120)
    return window


@pytest.fixture
def window(first_window: Workbench, request: pytest.FixtureRequest) -> Iterator[Workbench]:
    """The shared window, with no editor open; a picture of it is kept when the test fails."""
    first_window.close_all()
    yield first_window
    keep_picture_of_failure(request, first_window)


@pytest.fixture
def edit(site: Site, window: Workbench) -> Callable[..., Path]:
    """Makes a file with a text, opens it, and puts the cursor at its end or at a line and column."""

    def edit_file(name: str, text: str, at: tuple[int, int] | None = None) -> Path:
        file = site.workspace("workspace") / name
        file.write_bytes(text.encode())
        window.open(file)
        window.go_to(*(at or (text.count("\n") + 1, 999)))
        return file

    return edit_file


def packaged_extension() -> Path:
    version = json.loads((ROOT / "vscode-extension/package.json").read_text(encoding="utf-8"))["version"]
    extension = ROOT / f"vscode-extension/dflash-lsp-{version}.vsix"
    if not extension.exists():
        raise SystemExit(f"no {extension.name} in vscode-extension: run `npm run package` first")
    return extension


def keep_picture(page: Page, name: str) -> Path:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    picture = ARTEFACTS / f"{name}.png"
    page.screenshot(path=picture)
    return picture


def keep_picture_of_failure(request: pytest.FixtureRequest, window: Workbench, more: str = "") -> None:
    outcome = request.node.stash.get(OUTCOME, None)
    if outcome is not None and outcome.failed:
        keep_picture(window.page, f"failed-{request.node.name}{more}")


OUTCOME = pytest.StashKey[pytest.TestReport]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.when == "call":
        item.stash[OUTCOME] = report
    return report


def run_server_command(site: Site, *arguments: str) -> str:
    """What a command of the server's own prints, on this site's directories."""
    environment = {**os.environ, **site.environment}
    done = subprocess.run([SERVER, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout
