"""The replay backend: streams recorded completions, each recorded chunk as one round. No model.

A recording is a JSONL file of `{after, text, chunks, delay_ms}`. A prompt that ends with `after` is
answered with `text`, piece by piece, `delay_ms` before each; the longest such `after` wins. When no
`after` ends the prompt, one followed by the beginning of its `text` may: the recorded text is being typed,
and what is left of it is the answer. Anything else is answered with nothing, finish "eos". `max_tokens`
other than 0 does not cut a recording, whose chunks are no tokens.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from server.engine.backend import Ending, QueuedHandle, Round, Statistics
from server.engine.protocol import BadRequest, CompletionRequest, EngineError, EngineHealth
from server.monitoring.metrics import Metrics

KEYS = {"after", "text", "chunks", "delay_ms"}


@dataclass(frozen=True)
class Recorded:
    """One line of a recording; `chunks` joined are `text`, `delay_s` is waited before each chunk."""

    after: str
    text: str
    chunks: tuple[str, ...]
    delay_s: float


def read_recording(path: Path) -> list[Recorded]:
    """All entries of a recording; EngineError names file and line of the first that is wrong."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise EngineError(f"cannot read the recording {path}: {error.strerror}") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                entries.append(_entry(line))
            except ValueError as error:
                raise EngineError(f"{path}:{number}: {error}") from error
    return entries


def _entry(line: bytes) -> Recorded:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError("not JSON") from error
    if not isinstance(found, dict):
        raise ValueError("must be a JSON object")
    unknown = sorted(set(found) - KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    for key in ("after", "text"):
        if not isinstance(found.get(key), str):
            raise ValueError(f"{key} must be a string")
    chunks = found.get("chunks", [found["text"]])
    if not isinstance(chunks, list) or not all(isinstance(chunk, str) for chunk in chunks):
        raise ValueError("chunks must be a list of strings")
    try:
        for piece in (found["after"], found["text"], *chunks):
            piece.encode()
    except UnicodeEncodeError as error:
        raise ValueError("half a surrogate pair") from error
    if "".join(chunks) != found["text"]:
        raise ValueError("chunks do not join to text")
    delay = found.get("delay_ms", 0)
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < math.inf:
        raise ValueError("delay_ms must be a number of at least 0")
    return Recorded(found["after"], found["text"], tuple(chunks), delay / 1000)


def find_chunks(entries: list[Recorded], prompt: str) -> tuple[tuple[str, ...], float]:
    """The chunks that follow `prompt` and the delay before each, seconds; `((), 0.0)` when none matches."""
    ended = [entry for entry in entries if prompt.endswith(entry.after)]
    if ended:
        best = max(ended, key=lambda entry: len(entry.after))
        return best.chunks, best.delay_s
    typed = [(entry, length) for entry in entries if (length := _typed_length(entry, prompt))]
    if not typed:
        return (), 0.0
    best, length = max(typed, key=lambda pair: (len(pair[0].after), pair[1]))
    return _without(best.chunks, length), best.delay_s


def _typed_length(entry: Recorded, prompt: str) -> int:
    """How much of the entry's text already follows its `after` at the end of the prompt; 0 when none."""
    start = prompt.find(entry.after, max(0, len(prompt) - len(entry.text) - len(entry.after)))
    while 0 <= start < len(prompt) - len(entry.after):
        typed = prompt[start + len(entry.after) :]
        if entry.text.startswith(typed):
            return len(typed)
        start = prompt.find(entry.after, start + 1)
    return 0


def _without(chunks: tuple[str, ...], length: int) -> tuple[str, ...]:
    left = []
    for chunk in chunks:
        if length < len(chunk):
            left.append(chunk[length:])
        length = max(0, length - len(chunk))
    return tuple(left)


class ReplayHandle(QueuedHandle):
    """One recorded completion on its way."""

    def __init__(self, chunks: tuple[str, ...], delay_s: float, priority: int, prompt_tokens: int) -> None:
        super().__init__()
        self.chunks = chunks
        self.delay_s = delay_s
        self.priority = priority
        self.cancelled = False
        self.statistics = Statistics(prompt_tokens=prompt_tokens)

    def cancel(self) -> None:
        self.cancelled = True

    def set_priority(self, priority: int) -> None:
        self.priority = priority


class ReplayBackend:
    """Serves a recording one round at a time, the most urgent generation first, as an engine does."""

    def __init__(self, recording: Path, profile: str, metrics: Metrics) -> None:
        self.name = "replay" if profile == "replay" else f"replay:{profile}"
        self._recording = recording
        self._profile = profile
        self._metrics = metrics
        self._entries: list[Recorded] = []
        self._read_at: tuple[int, int] | None = None  # size and mtime of what was read
        self._failure = ""
        self._queue: list[ReplayHandle] = []
        self._wake = asyncio.Event()
        self._units = 0
        self._runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._read()
        self._runner = asyncio.get_running_loop().create_task(self._run(), name="replay")

    def stop(self) -> None:
        for handle in self._queue:
            handle.cancel()
        self._wake.set()

    def health(self) -> EngineHealth:
        self._read()
        return EngineHealth(
            state="failed" if self._failure else "ready",
            reason=self._failure,
            profile=self._profile,
            target="replay",
            device="replay",
            dtype="replay",
            kind="replay",
        )

    def units_done(self) -> int:
        return self._units

    def submit(self, request: CompletionRequest) -> ReplayHandle:
        if not isinstance(request.prompt, str):
            raise BadRequest("the replay engine takes a string as prompt, not token ids")
        self._read()
        chunks, delay_s = find_chunks(self._entries, request.prompt + request.heal)
        if request.max_tokens == 0:
            chunks = ()
        handle = ReplayHandle(chunks, delay_s, request.priority, len(request.prompt))
        self._queue.append(handle)
        self._metrics.running.inc()
        self._wake.set()
        return handle

    def _read(self) -> None:
        """Read the recording when it is new or was edited, so that an edit needs no restart."""
        try:
            found = self._recording.stat()
            mark = (found.st_size, found.st_mtime_ns)
        except OSError:
            mark = (-1, 0)
        if mark == self._read_at:
            return
        self._read_at = mark
        try:
            self._entries, self._failure = read_recording(self._recording), ""
        except EngineError as error:
            self._entries, self._failure = [], str(error)
        self._metrics.set_state("failed" if self._failure else "ready")

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            if not self._queue:
                self._wake.clear()
                continue
            # min() takes the first among equals, and whoever had a round goes to the end: they take turns.
            handle = min(self._queue, key=lambda waiting: (not waiting.cancelled, waiting.priority))
            if handle.cancelled or not handle.chunks:
                self._end(handle, "cancelled" if handle.cancelled else "eos")
            else:
                await self._round(handle)

    async def _round(self, handle: ReplayHandle) -> None:
        begun = time.monotonic()
        await asyncio.sleep(handle.delay_s)
        seconds = time.monotonic() - begun
        chunk, handle.chunks = handle.chunks[0], handle.chunks[1:]
        done = handle.statistics
        handle.statistics = replace(
            done,
            rounds=done.rounds + 1,
            acceptance_length=1.0,
            completion_tokens=done.completion_tokens + 1,
            decode_ms=done.decode_ms + seconds * 1000,
        )
        self._units += 1
        self._metrics.count_round(tokens=1, drafted=0, accepted=0, seconds=seconds)
        handle.put(Round(chunk.encode(), handle.statistics))
        self._queue.remove(handle)
        self._queue.append(handle)

    def _end(self, handle: ReplayHandle, finish: str) -> None:
        self._queue.remove(handle)
        self._units += 1
        self._metrics.running.dec()
        handle.put(Ending(finish, handle.statistics))
