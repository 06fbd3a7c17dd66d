"""Server-sent events from bytes.

Lines end at \\n, \\r\\n or \\r and nowhere else: text-based line splitting would also break at U+2028,
VT and FF, which completions of source code do contain.
"""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.protocol import EngineError

EVENT_LIMIT = 16 * 1024 * 1024  # bytes; an event beyond this is no completion chunk


class EventParser:
    """Feed bytes as they come; complete events' data come out, comments and other fields are passed over."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._begun = False

    def feed(self, part: bytes) -> Iterator[str]:
        """The data of each event that this part completes. EngineError for an event that is no text."""
        self._buffer += part
        if not self._begun and self._buffer:
            # A mark of three bytes may itself be split; nothing else begins with its first byte.
            if self._buffer[:3] != b"\xef\xbb\xbf"[: len(self._buffer)]:
                self._begun = True
            elif len(self._buffer) < 3:
                return
            else:
                del self._buffer[:3]
                self._begun = True
        while (line := self._line()) is not None:
            if not line:
                if self._data:
                    yield self._event()
                continue
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._size += len(value)
            self._check(self._size)
        self._check(self._size + len(self._buffer))

    def _line(self) -> bytes | None:
        ends = [at for at in (self._buffer.find(b"\n"), self._buffer.find(b"\r")) if at >= 0]
        if not ends:
            return None
        end = min(ends)
        step = 1
        if self._buffer[end] == 0x0D:
            if end + 1 == len(self._buffer):
                return None  # whether \n follows is not known yet
            step = 2 if self._buffer[end + 1] == 0x0A else 1
        line = bytes(self._buffer[:end])
        del self._buffer[: end + step]
        return line

    def _event(self) -> str:
        data = b"\n".join(self._data)
        self._data, self._size = [], 0
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise EngineError("the engine's answer is not UTF-8") from error

    def _check(self, size: int) -> None:
        if size > EVENT_LIMIT:
            raise EngineError("the engine's answer holds an event of more than 16 MiB")
