"""Asks the index process for definitions; a request never waits for it longer than it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from server.context.formats import Chunk

LINE_LIMIT = 4_000_000  # bytes of one answer
FIRST_PAUSE_S = 2.0  # before an index that ended is started again; doubled each time
MOST_STARTS = 4
END_S = 2.0  # to end by itself


class WorkspaceIndex:
    """The index of one window's folders. Without folders, or once it cannot be kept running, it knows nothing."""

    def __init__(
        self,
        folders: Sequence[Path],
        exclude: Sequence[str] = (),
        exclude_by_language: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {
            "folders": [str(folder) for folder in folders],
            "exclude": list(exclude),
            "exclude_by_language": {name: list(globs) for name, globs in (exclude_by_language or {}).items()},
        }
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = count(1)
        self._starts = 0
        self._next_start = 0.0  # time.monotonic()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process, unless it runs, there is nothing to index, or it has failed too often."""
        if self.running or not self._settings["folders"] or self._starts >= MOST_STARTS:
            return
        if time.monotonic() < self._next_start:
            return
        self._next_start = time.monotonic() + FIRST_PAUSE_S * 2**self._starts
        self._starts += 1
        with contextlib.suppress(OSError):
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "server.context.index_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LINE_LIMIT,
            )
            self._send(self._settings)
            self._reading = asyncio.get_running_loop().create_task(self._read(self._process), name="index")

    async def find(
        self, names: Sequence[str], near: Path, imports: Sequence[str], most: int, timeout_s: float
    ) -> list[Chunk] | None:
        """Definitions of the names in other files, in their order; None when there is no answer in time.

        near: the file that uses them. imports: its import statements, which say where a name is from.
        """
        question = {"find": list(names), "near": str(near), "imports": list(imports), "most": most}
        answer = await self._ask(question, timeout_s)
        if answer is None:
            return None
        return [Chunk(each["path"], each["text"]) for each in answer["found"]]

    async def state(self, timeout_s: float = 5.0) -> dict[str, Any] | None:
        """What it holds: files, definitions, scanned, scan_s, skipped, peak_memory_mb."""
        return await self._ask({"state": True}, timeout_s)

    def changed(self, paths: Iterable[Path]) -> None:
        """Tell that files were written, made or removed."""
        self._send({"changed": [str(path) for path in paths]})

    def exclude(self, globs: Iterable[str]) -> None:
        """Exclude files of these globs from now on, instead of those excluded before."""
        self._settings["exclude"] = list(globs)
        self._send({"exclude": self._settings["exclude"]})

    async def aclose(self) -> None:
        """End the process."""
        self._starts = MOST_STARTS
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def _ask(self, question: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        if not self.running:
            await self.start()
            if not self.running:
                return None
        id = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        try:
            self._send({"id": id, **question})
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(id, None)

    def _send(self, message: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                answer = json.loads(line)
                future = self._waiting.get(answer.get("id"))
                if future is not None and not future.done():
                    future.set_result(answer)
        except (ValueError, OSError):
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # one that cannot be understood is of no use
        await process.wait()
