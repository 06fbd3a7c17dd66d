"""Where a profile's engine can be found: its lock, socket, token, log, and the record it leaves of itself.

Launcher and engine process agree through this file alone.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from server.engine.protocol import Endpoint, EngineError
from server.paths import log_dir, runtime_dir
from server.profiles import Profile

ALREADY_RUNS = 75  # exit code of an engine process that found another one running
# sun_path holds 104 bytes on macOS and 108 on Linux, the closing zero included.
SOCKET_PATH_LIMIT = 103


@dataclass(frozen=True)
class EngineRecord:
    """What a running engine writes about itself.

    started: time.monotonic(), which is the same clock in all processes since the machine started, and never jumps.
    """

    pid: int
    address: str
    version: str
    started: float
    token_file: str | None = None


@dataclass(frozen=True)
class EngineFiles:
    """The files of one engine: one per user and profile key."""

    directory: Path
    key: str
    log: Path

    @classmethod
    def of(cls, profile: Profile) -> EngineFiles:
        """Files of this profile's engine. DflashError when the runtime directory cannot be trusted."""
        return cls(runtime_dir(), profile.key, log_dir() / f"engine-{profile.name}.log")

    @property
    def lock(self) -> Path:
        """Held by the engine for its life. Never removed: whoever waits on a removed file waits on nothing."""
        return self.directory / f"engine-{self.key}.lock"

    @property
    def record(self) -> Path:
        return self.directory / f"engine-{self.key}.json"

    @property
    def token(self) -> Path:
        return self.directory / f"engine-{self.key}.token"

    @property
    def socket(self) -> Path:
        """Path of the Unix socket; EngineError when the system could not bind it."""
        path = self.directory / f"engine-{self.key}.sock"
        length = len(os.fsencode(path))
        if length > SOCKET_PATH_LIMIT:
            raise EngineError(
                f"the socket path {path} has {length} bytes, at most {SOCKET_PATH_LIMIT} fit: "
                "set XDG_RUNTIME_DIR to a shorter directory"
            )
        return path

    def read_record(self) -> EngineRecord | None:
        """The record an engine left, which may be of one that has died since; None when there is none."""
        try:
            found = json.loads(self.record.read_text(encoding="utf-8"))
            record = EngineRecord(
                pid=int(found["pid"]),
                address=str(found["address"]),
                version=str(found["version"]),
                started=float(found["started"]),
                token_file=found.get("token_file"),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None
        # What we never write is damage: then nothing is known, and an engine is looked for anew.
        ours = record.address.startswith("unix:") or record.address.startswith("http://127.0.0.1:")
        sound = ours and isinstance(record.token_file, str | None) and record.pid > 0
        return record if sound else None

    def write_record(self, record: EngineRecord) -> None:
        """Put the record in place as a whole, readable by the user alone."""
        write_private(self.record, json.dumps(asdict(record)))

    def is_held(self) -> bool:
        """Whether an engine process lives: the system lets go of the lock however its holder ends."""
        lock = FileLock(self.lock, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return True
        lock.release()
        return False

    def remove(self) -> None:
        """Take away what says that an engine runs. For the holder of the lock only."""
        for path in (self.record, self.token, self.directory / f"engine-{self.key}.sock"):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise EngineError(f"{path} is in the way and cannot be removed: {error.strerror}") from error


def endpoint_of(record: EngineRecord) -> Endpoint | None:
    """How to reach the engine of a record; None when its token is gone, and so the engine."""
    if record.token_file is None:
        return Endpoint(record.address)
    try:
        return Endpoint(record.address, Path(record.token_file).read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 as a whole: readers see the old text or the new one."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
