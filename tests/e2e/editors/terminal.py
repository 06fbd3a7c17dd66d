"""A terminal without a window: a program in a pty, and the screen that it has drawn, cell by cell."""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

LIMIT_S = float(os.environ.get("DFLASH_E2E_LIMIT_S", "30"))  # for whatever is waited for
FRAME_S = 0.004  # what comes without a longer pause is one picture
STALLED_S = 2.0  # a picture that was begun is whole by then
KEYS = {
    "<Esc>": "\x1b",
    "<Enter>": "\r",
    "<Tab>": "\t",
    "<BS>": "\x7f",
    "<Left>": "\x1b[D",
    "<Right>": "\x1b[C",
    "<Up>": "\x1b[A",
    "<Down>": "\x1b[B",
    "<End>": "\x1b[F",
    "<M-Right>": "\x1b[1;3C",
    "<M-C-Right>": "\x1b[1;7C",
}
# What pyte would take for text or for another sequence: private modes that ask back, key protocols, long strings.
_FOREIGN = re.compile(
    rb"\x1b\[[?>=<][0-9;:]*\$?[a-gi-km-z]|\x1b\[[0-9;]*[$ \"'*+][a-z~|}]|\x1b[P_^X].*?\x1b\\", re.DOTALL
)
# Synchronised output: whether the terminal knows it, and where a picture begins (h) and ends (l).
_ASKS_FOR_PICTURES, _KNOWS_PICTURES = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
_PICTURE = re.compile(rb"\x1b\[\?2026([hl])")
_UNFINISHED = re.compile(rb"\x1b(?:[P_^X\]](?:(?!\x1b\\|\x07).)*|\[?[0-9;:?>=<$ \"'*+]*)\Z", re.DOTALL)


class _Screen(pyte.Screen):
    """Answers what programs ask of a terminal."""

    answer: Callable[[bytes], object] = staticmethod(lambda answer: None)

    def write_process_input(self, data: str) -> None:
        self.answer(data.encode())


class Terminal:
    """`command` runs in `cwd` with `environment` added to a plain one; always `close()` it."""

    def __init__(
        self,
        command: Sequence[str | Path],
        cwd: Path,
        environment: Mapping[str, str],
        columns: int = 100,
        rows: int = 30,
    ) -> None:
        self.screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._pending = b""
        self._in_picture = False
        self._watched: Callable[[], str] | None = None
        self._seen: list[str] = []
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            own = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "HOME": os.environ["HOME"]}
            arguments = [str(each) for each in command]
            os.execvpe(arguments[0], arguments, {"PATH": os.environ["PATH"], **own, **environment})
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.answer = self._write
        self.ended = False
        self.drawn_at = 0.0  # time.monotonic() of the last byte

    def type(self, text: str) -> None:
        """Send text as keys, all at once; names as of KEYS, <M-x> and <C-x> stand for theirs."""
        self._write(b"".join(_bytes_of(key) for key in keys_of(text)))

    def type_slowly(self, text: str, seconds: float = 0.05) -> None:
        """Send text key by key, as somebody types it."""
        for key in keys_of(text):
            self._write(_bytes_of(key))
            self.watch(seconds)

    def watch(self, seconds: float) -> None:
        """Draw what comes for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.ended:
            self._draw(left)

    def wait(self, condition: Callable[[], object], wanted: str | Callable[[], str], limit_s: float = LIMIT_S) -> None:
        """Draw until the condition holds; AssertionError with the screen when it does not come to that."""
        until = time.monotonic() + limit_s
        while not condition():
            if self.ended or time.monotonic() > until:
                what = "the program has ended" if self.ended else f"not within {limit_s:.0f} s"
                named = wanted if isinstance(wanted, str) else wanted()
                raise AssertionError(f"{named}: {what}; the screen:\n{self.text}")
            self._draw(0.05)

    def wait_end(self) -> None:
        """Draw until the program has ended."""
        until = time.monotonic() + LIMIT_S
        while not self.ended:
            assert time.monotonic() < until, f"the program does not end; the screen:\n{self.text}"
            self._draw(0.05)

    def wait_for(self, text: str) -> None:
        self.wait(lambda: text in self.text, repr(text))

    def record(self, value: Callable[[], str]) -> list[str]:
        """From now on, each new value that a whole picture shows is added to the list."""
        self._watched, self._seen = value, [value()]
        return self._seen

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def coloured(self, colour: str) -> list[str]:
        """The pieces of each line that are drawn in a colour, for the lines that have some."""
        found = []
        for row in range(self.screen.lines):
            cells = self.screen.buffer[row]
            piece = "".join(cells[column].data for column in range(self.screen.columns) if cells[column].fg == colour)
            if piece:
                found.append(piece)
        return found

    def save_picture(self, path: Path) -> None:
        """The screen as an SVG: text in a fixed pitch, each run in its colour; most lines of nothing are left out."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_svg(self.screen), encoding="utf-8")

    def close(self) -> None:
        """End the program and wait for it."""
        if self.ended:
            return
        os.kill(self.pid, signal.SIGHUP)
        until = time.monotonic() + 5
        while not self.ended and time.monotonic() < until:
            self._draw(0.05)
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        os.write(self._descriptor, data)

    def _draw(self, seconds: float) -> None:
        """Wait for output, and draw all that comes without a pause."""
        wait = seconds
        while select.select([self._descriptor], [], [], max(0.0, wait))[0]:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:
                data = b""
            if not data:
                self.ended = True
                os.close(self._descriptor)
                os.waitpid(self.pid, 0)
                return
            self.drawn_at = time.monotonic()
            self._feed(data)
            wait = STALLED_S if self._in_picture else FRAME_S
        if self._watched is not None and (value := self._watched()) != self._seen[-1]:
            self._seen.append(value)

    def _feed(self, data: bytes) -> None:
        data = self._pending + data
        unfinished = _UNFINISHED.search(data)
        cut = unfinished.start() if unfinished else len(data)
        data, self._pending = data[:cut], data[cut:]
        if _ASKS_FOR_PICTURES in data:
            self._write(_KNOWS_PICTURES)
        for edge in _PICTURE.findall(data):
            self._in_picture = edge == b"h"
        self._stream.feed(_FOREIGN.sub(b"", data))


def keys_of(text: str) -> list[str]:
    return re.findall(r"<[MC]-\S>|<[A-Z][A-Za-z0-9-]*>|.", text, re.DOTALL)


def _bytes_of(key: str) -> bytes:
    if key in KEYS:
        return KEYS[key].encode()
    if found := re.fullmatch(r"<M-(.)>", key):
        return b"\x1b" + found[1].encode()
    if found := re.fullmatch(r"<C-(.)>", key):
        return bytes([ord(found[1].upper()) & 0x1F])
    return key.replace("\n", "\r").encode()


# The 16 colours of a terminal on white; others come from pyte as hexadecimal digits.
_COLOURS = {
    "default": "#24292f",
    "black": "#24292f",
    "red": "#cf222e",
    "green": "#116329",
    "brown": "#9a6700",
    "blue": "#0969da",
    "magenta": "#8250df",
    "cyan": "#1b7c83",
    "white": "#6e7781",
    "brightblack": "#8c959f",
    "brightblue": "#54aeff",
}
# Behind text they are shades of it.
_PAPERS = {"default": "#ffffff", "black": "#eaeef2", "brightblack": "#d0d7de", "white": "#d0d7de"}
_WIDTH, _HEIGHT, _MARGIN = 8.4, 18, 10


def _svg(screen: pyte.Screen) -> str:
    is_empty = [line.strip() in ("", "~") for line in screen.display]
    rows = [
        row for row in range(screen.lines) if row in (0, 1, screen.cursor.y) or not all(is_empty[row - 2 : row + 1])
    ]
    width, height = screen.columns * _WIDTH + 2 * _MARGIN, len(rows) * _HEIGHT + 2 * _MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">',
        '<rect width="100%" height="100%" rx="6" fill="#ffffff" stroke="#d0d7de"/>',
    ]
    for place, row in enumerate(rows):
        y = _MARGIN + place * _HEIGHT
        for column, text, cell in _runs(screen, row):
            x = _MARGIN + column * _WIDTH
            ink = _COLOURS.get(cell.fg, f"#{cell.fg}")
            paper = _PAPERS.get(cell.bg) or _COLOURS.get(cell.bg, f"#{cell.bg}")
            if cell.reverse:
                ink, paper = paper, ink
            if paper != "#ffffff":
                size = f'width="{len(text) * _WIDTH:.1f}" height="{_HEIGHT}"'
                out.append(f'<rect x="{x:.1f}" y="{y}" {size} fill="{paper}"/>')
            if text.strip():
                weight = ' font-weight="bold"' if cell.bold else ""
                place = f'x="{x:.1f}" y="{y + 13}" textLength="{len(text) * _WIDTH:.1f}"'
                out.append(f'<text {place} fill="{ink}"{weight} xml:space="preserve">{html.escape(text)}</text>')
    x, y = _MARGIN + screen.cursor.x * _WIDTH, _MARGIN + rows.index(screen.cursor.y) * _HEIGHT
    out.append(f'<rect x="{x:.1f}" y="{y}" width="2" height="{_HEIGHT}" fill="#24292f"/>')
    return "\n".join([*out, "</svg>", ""])


def _runs(screen: pyte.Screen, row: int) -> list[tuple[int, str, pyte.screens.Char]]:
    """Pieces of a row that look the same: column, text, a cell of it."""
    runs: list[tuple[int, str, pyte.screens.Char]] = []
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        look = cell._replace(data="")
        if runs and runs[-1][2] == look:
            start, text, _ = runs[-1]
            runs[-1] = (start, text + (cell.data or ""), look)
        else:
            runs.append((column, cell.data, look))
    return runs
