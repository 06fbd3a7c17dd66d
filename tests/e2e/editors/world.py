"""What the editors share: directories of their own, a replay engine with its recording, and the server's command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PICTURES = ROOT / "build/e2e"


def cache_dir() -> Path:
    """Where editors_setup.sh puts the editors."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("DFLASH_E2E") or Path(base) / "dflash-e2e")


@dataclass(frozen=True)
class World:
    """`root` is a short path: the engine's socket lies under it."""

    root: Path
    profile: str
    server: Path

    @property
    def environment(self) -> dict[str, str]:
        names = {"XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
        return {name: str(self.root / folder) for name, folder in names.items()}

    @property
    def workspace(self) -> Path:
        return self.root / "work"

    def write(self, name: str, text: str | bytes) -> Path:
        """A file in the workspace, with the bytes as they are given."""
        file = self.workspace / name
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    @contextmanager
    def recorded(self, after: str, text: str) -> Iterator[None]:
        """Meanwhile the engine answers this text as well, which it reads when it is next asked."""
        file = self.root / "recording.jsonl"
        before = file.read_text(encoding="utf-8")
        file.write_text(before + json.dumps({"after": after, "text": text, "chunks": [text]}) + "\n", encoding="utf-8")
        yield
        file.write_text(before, encoding="utf-8")

    def dflash(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line in this world."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            [self.server, *arguments], env=environment, check=False, capture_output=True, text=True, timeout=60
        )

    def metric(self, name: str) -> float:
        """The value of one series of the running engine; 0.0 when it is not there."""
        (record,) = (self.root / "run").glob("dflash-lsp/engine-*.json")
        address = json.loads(record.read_text(encoding="utf-8"))["address"].removeprefix("unix:")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: engine\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        values = [line.rpartition(" ") for line in answer.splitlines()]
        return sum(float(value) for series, _, value in values if series == name)

    def engine_pids(self) -> list[int]:
        """The engines that run here, by the records they keep."""
        records = (self.root / "run").glob("dflash-lsp/engine-*.json")
        return [int(json.loads(record.read_text(encoding="utf-8"))["pid"]) for record in records]

    def server_pid(self, editor: int) -> int:
        """The language server that an editor has started, however many processes lie between."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if b"lsp" in words and editor in _ancestors(int(folder.name)):
                    return int(folder.name)
        raise AssertionError("no server runs")


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        pid = int(stat.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


@contextmanager
def world(recording: list[dict[str, object]] | None) -> Iterator[World]:
    """A world whose profile replays the recording; without one, the embedded pair serves."""
    root = Path(tempfile.mkdtemp(prefix="dflash-", dir="/tmp"))
    for folder in ("run", "config", "state", "work", "data"):
        (root / folder).mkdir(mode=0o700)
    profile = "embedded"
    if recording is not None:
        lines = "".join(json.dumps(entry) + "\n" for entry in recording)
        (root / "recording.jsonl").write_text(lines, encoding="utf-8")
        file = root / "recorded.toml"
        file.write_text('[engine]\nkind = "replay"\nrecording = "recording.jsonl"\n', encoding="utf-8")
        profile = str(file)
    server = Path(os.environ.get("DFLASH_LSP") or ROOT / ".venv/bin/dflash-lsp")
    found = World(root, profile, server)
    try:
        yield found
    finally:
        found.dflash("engine", "stop", "--profile", profile)
        shutil.rmtree(root, ignore_errors=True)
