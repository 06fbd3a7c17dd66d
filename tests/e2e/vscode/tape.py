"""What the replay engine answers, and what it counts."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any


class Tape:
    """A replay profile whose recording each test adds to; the engine reads it again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self.profile = folder / "taped.toml"
        self.profile.write_text('[engine]\nkind = "replay"\nrecording = "tape.jsonl"\n', encoding="utf-8")
        self._recording = folder / "tape.jsonl"
        self._entries: list[dict[str, object]] = []
        self._write()

    def add(self, after: str, chunks: list[str], delay_ms: float = 0) -> None:
        """Text that ends with `after` is continued by the chunks, one a round, each `delay_ms` after the last."""
        self._entries.append({"after": after, "text": "".join(chunks), "chunks": chunks, "delay_ms": delay_ms})
        self._write()

    def replace(self, after: str, chunks: list[str], delay_ms: float = 0) -> None:
        """What follows `after` is another text from now on."""
        self._entries = [entry for entry in self._entries if entry["after"] != after]
        self.add(after, chunks, delay_ms)

    def _write(self) -> None:
        fresh = self._recording.with_suffix(".fresh")
        fresh.write_text("".join(json.dumps(entry) + "\n" for entry in self._entries), encoding="utf-8")
        fresh.replace(self._recording)


class Engine:
    """The engine of a profile under a runtime directory: the one that all windows share."""

    def __init__(self, runtime: Path, profile: Path) -> None:
        self._folder = runtime / "dflash-lsp"
        self._profile = str(profile).encode()

    @property
    def pids(self) -> list[int]:
        """Processes of the profile's engines: one, or none."""
        return [record["pid"] for record in self._records() if self._profile in _command(record["pid"])]

    def kill(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """Those of other profiles too."""
        for record in self._records():
            if b"server.engine.resident" in _command(record["pid"]):
                os.kill(record["pid"], signal.SIGKILL)

    def _records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text(encoding="utf-8")) for path in self._folder.glob("engine-*.json")]

    def count(self, name: str) -> float:
        """The sum of the series of a counter."""
        (address,) = [record["address"] for record in self._records() if record["pid"] in self.pids]
        connection = _UnixConnection(address.removeprefix("unix:"))
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(float(each) for each in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))

    @property
    def rounds(self) -> int:
        return int(self.count("dflash_rounds_total"))

    def wait_until_idle(self, limit_s: float = 60) -> None:
        """Wait until no completion is under way, of which none is begun within a short while."""
        deadline, idle_since = time.monotonic() + limit_s, None
        while time.monotonic() < deadline:
            if self.count("dflash_running_requests") > 0:
                idle_since = None
            else:
                idle_since = idle_since or time.monotonic()
                if time.monotonic() - idle_since > 0.3:
                    return
            time.sleep(0.05)
        raise AssertionError("the engine is still busy")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def _command(pid: int) -> bytes:
    """The command line of a process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
