"""Bytes of rounds in, characters that are certain out: unfinished characters and stop strings wait."""

from __future__ import annotations

import codecs


class TextAssembly:
    """Turns the bytes of one completion into text that may be shown.

    Bytes that do not yet form a character are kept for the next round, and so is text that may be the
    beginning of a stop string. `stopped` becomes true when a stop string was found; it and everything
    after it are dropped.
    """

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = stop
        self._held = ""
        self.stopped = False

    def add(self, data: bytes) -> str:
        """The text that has become certain with this round's bytes."""
        return "" if self.stopped else self._release(self._decoder.decode(data))

    def finish(self) -> str:
        """What was held back and is text after all; an unfinished character becomes U+FFFD."""
        if self.stopped:
            return ""
        text = self._release(self._decoder.decode(b"", final=True)) + self._held
        self._held = ""
        return text

    def _release(self, fresh: str) -> str:
        text = self._held + fresh
        if not self._stop:
            return text
        # The stop string that is complete first wins, so the cut does not depend on where rounds end.
        found = [(start + len(stop), start) for stop in self._stop if (start := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        keep = max(_open_length(text, stop) for stop in self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _open_length(text: str, stop: str) -> int:
    """Length of the longest end of `text` that a stop string begins with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
