"""Messages over stdin and stdout: a thread that reads, and framing that finds its way back after what is wrong.

pygls takes four hops through its thread pool to read one message, allocates whatever Content-Length says,
and loses a message beside each that is framed wrongly. Here one hop brings all that has come; a length that
cannot be is refused without reading so much; and after a fault reading goes on with the next header, which
no JSON can contain, since its line ends would be escaped.
"""

from __future__ import annotations

import asyncio
import re
import threading
from io import RawIOBase
from typing import Protocol

MESSAGE_LIMIT = 256 * 1024 * 1024  # bytes; no document that an editor opens comes near it
HEADER_LIMIT = 4096  # bytes; of all header lines of one message
PART = 256 * 1024  # bytes read at once
PARTS_AHEAD = 16  # parts read before those before them are handled; then the client has to wait

_HEADER_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"Content-Length:[ \t]*(\d{1,20})[ \t]*\r\n", re.IGNORECASE)
_HEADER_LINE = re.compile(rb"[\w-]+:[^\r\n]*\r\n")


class Receiver(Protocol):
    """Takes what was read: each message, and why there is none where one should be."""

    def receive(self, body: bytes) -> bool:
        """Handle a message; False when it is no JSON."""
        ...

    def refuse(self, reason: str) -> None:
        """What came is no message."""
        ...


class Framing:
    """Bytes in, messages out. `add` what came, then ask for `next` until there is none.

    problem: why the last bytes were passed over, "" when they were not; whoever reads it clears it.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._length: int | None = None  # of the message whose header was read
        self._lost = False  # after a fault, until the next header
        self.problem = ""

    def add(self, part: bytes) -> None:
        self._data += part

    def next(self) -> bytes | None:
        """The next whole message; None when more bytes are needed."""
        while self._length is None:
            if self._lost and not self._find_header():
                return None
            end = self._data.find(_HEADER_END, 0, HEADER_LIMIT + len(_HEADER_END))
            if end < 0 and len(self._data) <= HEADER_LIMIT:
                return None
            self._length = _length(bytes(self._data[: end + 2])) if end >= 0 else None
            if self._length is None:
                self._refuse("a message has no header that says its length")
            elif self._length > MESSAGE_LIMIT:
                self._length = None
                self._refuse(f"a message is larger than {MESSAGE_LIMIT >> 20} MiB")
            else:
                del self._data[: end + len(_HEADER_END)]
        if len(self._data) < self._length:
            return None
        body = bytes(self._data[: self._length])
        del self._data[: self._length]
        self._length = None
        return body

    def put_back(self, body: bytes) -> None:
        """A message was none: perhaps its length was wrong, and it has swallowed another."""
        self._data[:0] = body
        self._lost, self.problem = True, "a message is not JSON"

    def _refuse(self, problem: str) -> None:
        """The header is none. Where it begins as one it must not be found again."""
        found = _LENGTH.match(bytes(self._data[:HEADER_LIMIT]))
        del self._data[: found.end() if found is not None else 0]
        self._lost, self.problem = True, problem

    def _find_header(self) -> bool:
        """Drop what comes before the next header; False when there is none yet."""
        starts = (found.start() for found in _LENGTH.finditer(bytes(self._data)) if int(found[1]) <= MESSAGE_LIMIT)
        start = next(starts, None)
        self._lost = start is None
        # Without one, the beginning of one may stand at the end.
        del self._data[: max(0, len(self._data) - 64) if start is None else start]
        return not self._lost


def _length(header: bytes) -> int | None:
    """What a message's header lines say; None when they are no header, or say nothing or two things."""
    if _HEADER_LINE.sub(b"", header):
        return None
    lengths = {int(found) for found in _LENGTH.findall(header)}
    return lengths.pop() if len(lengths) == 1 else None


class _Parts:
    """What a thread of its own reads: the pool's threads may all be at work. b"" is the end."""

    def __init__(self, source: RawIOBase) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._read: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(PARTS_AHEAD)
        # A daemon: nothing can wake a thread from its read, and it must not hold up the end.
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    async def get(self) -> bytes:
        part = await self._read.get()
        self._room.release()
        return part

    def _run(self) -> None:
        part = b"begun"
        while part:
            self._room.acquire()
            try:
                part = self._source.read(PART) or b""
            except (OSError, ValueError):  # ValueError: it was closed
                part = b""
            try:
                self._loop.call_soon_threadsafe(self._read.put_nowait, part)
            except RuntimeError:  # the loop has ended
                return


async def read_messages(receiver: Receiver, source: RawIOBase) -> None:
    """Hand all messages to the receiver, until the client closes its end.

    Between two messages the event loop has its turn, however many came at once.
    """
    parts, framing = _Parts(source), Framing()
    while part := await parts.get():
        framing.add(part)
        while (body := framing.next()) is not None or framing.problem:
            if body is not None and not receiver.receive(body):
                framing.put_back(body)
            if framing.problem:
                receiver.refuse(framing.problem)
                framing.problem = ""
            await asyncio.sleep(0)
