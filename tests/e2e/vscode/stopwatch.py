"""What a key takes until its ghost text is drawn, piece by piece.

The marks of one key, all on the clock of the machine, in ms:
    key        the event's own time in the page
    asked      VS Code's request to the extension leaves the page (its frame on the connection to the extension host)
    requested  the extension's request to the server leaves the extension  (the extension's log)
    answered   the server's first text for it is there                     (the extension's log)
    returned   the extension's answer reaches the page                     (its frame)
    inserted   the ghost text stands in the document
    drawn      the frame that shows it has been laid out and painted

The log has whole milliseconds. Nothing is sampled: a frame is heard of when it is over, not looked for in the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

MARKS = ("key", "asked", "requested", "answered", "returned", "inserted", "drawn")
# What lies between one mark and the next.
PIECES = (
    "VS Code: from the key to its request, 50 ms of waiting among it",
    "VS Code and the extension: to the extension host, and from there to the server",
    "the server's own answer",
    "VS Code and the extension: from the extension host to the page",
    "VS Code: from the answer to text in the document, the wait for a frame among it",
    "the browser: laid out and painted",
)
# Before anything of VS Code runs: what goes over its connections is kept, and read when it is asked for.
CONNECTIONS = """(() => {
    const frames = window.dflashFrames = [];
    const note = (way, data) => frames.push([way, performance.timeOrigin + performance.now(), data]);
    const Own = window.WebSocket;
    window.WebSocket = class extends Own {
        constructor(...all) {
            super(...all);
            this.addEventListener('message', event => note('in', event.data));
        }
        send(data) {
            note('out', data.slice ? data.slice(0) : data);
            super.send(data);
        }
    };
})()"""
WATCH = """() => {
    const watch = window.dflashWatch = {};
    const now = () => performance.timeOrigin + performance.now();
    addEventListener('keydown', event => {
        watch.marks = {key: performance.timeOrigin + event.timeStamp};
        watch.waits = true;
    }, true);
    const after = new MessageChannel();
    after.port1.onmessage = () => { watch.marks.drawn = now(); };
    new MutationObserver(() => {
        if (!watch.waits || !document.querySelector('.ghost-text-decoration, .ghost-text')) return;
        watch.waits = false;
        watch.marks.inserted = now();
        // Called within the frame in which the text is laid out; a message comes behind its painting.
        const laidOut = new ResizeObserver(() => { laidOut.disconnect(); after.port2.postMessage(0); });
        laidOut.observe(document.body);
    }).observe(document.body, {subtree: true, childList: true, characterData: true, attributeFilter: ['class']});
}"""
FORGET = "() => { window.dflashFrames.length = 0; window.dflashWatch.waits = false; }"
READ = """async () => {
    const text = async data => new TextDecoder('latin1').decode(data instanceof Blob ? await data.arrayBuffer() : data);
    const {key, inserted, drawn} = window.dflashWatch.marks;
    const behind = window.dflashFrames.filter(frame => frame[1] >= key);
    const find = async (way, word, from) => {
        for (const [where, time, data] of behind) {
            if (where === way && time >= from && (await text(data)).includes(word)) return time;
        }
    };
    const asked = await find('out', '$provideInlineCompletions', key);
    const returned = asked && await find('in', 'insertText', asked);
    return {key, asked, returned, inserted, drawn};
}"""
# The extension host tells the page of each provider, and when it is taken back.
PROVIDERS = r"""async () => {
    const text = async data => new TextDecoder('latin1').decode(data instanceof Blob ? await data.arrayBuffer() : data);
    const here = window.dflashProviders = window.dflashProviders || new Set();
    let told = 0;
    for (const [way, , data] of window.dflashFrames.splice(0)) {
        if (way !== 'in') continue;
        const calls = /\$(registerInlineCompletionsSupport|unregister)\W+(\d+)/g;
        for (const [, call, id] of (await text(data)).matchAll(calls)) {
            call === 'unregister' ? here.delete(id) : here.add(id) && told++;
        }
    }
    return [told, here.size];
}"""
ANSWERED = re.compile(r"^(\S+ \S+) \[debug\] First text of a completion after ([\d.]+) ms", re.MULTILINE)


@dataclass(frozen=True)
class Key:
    """The marks of one key, each with its time in ms."""

    marks: dict[str, float]

    @property
    def total(self) -> float:
        return self.marks["drawn"] - self.marks["key"]

    @property
    def server(self) -> float:
        return self.marks["answered"] - self.marks["requested"]

    @property
    def over(self) -> float:
        """What is not the server's own."""
        return self.total - self.server

    def pieces(self) -> Iterator[tuple[str, float]]:
        for piece, (begin, end) in zip(PIECES, pairwise(MARKS), strict=True):
            yield piece, self.marks[end] - self.marks[begin]


class Stopwatch:
    """Of one window; made before the page loads VS Code, started when an editor is there."""

    def __init__(self, page: Page, logs: Path) -> None:
        """logs: of the extension, at level debug."""
        self._page, self._logs = page, logs
        self._answers = 0
        page.add_init_script(CONNECTIONS)

    def start(self) -> None:
        self._page.evaluate(WATCH)

    def forget(self) -> None:
        """What comes from now on belongs to the next key."""
        self._answers = len(self._answered())
        self._page.evaluate(FORGET)

    def read(self) -> Key | None:
        """The marks of the last key; None where one of them was missed."""
        answered = self._answered()
        if len(answered) <= self._answers:
            return None
        time, took = answered[-1]
        marks: dict[str, Any] = self._page.evaluate(READ)
        marks |= {"requested": time - took, "answered": time}
        return Key(marks) if all(marks.get(mark) for mark in MARKS) else None

    def providers(self) -> tuple[int, int]:
        """How many providers of inline completions were registered since this was asked last, and are by now."""
        told, here = self._page.evaluate(PROVIDERS)
        return told, here

    def _answered(self) -> list[tuple[float, float]]:
        """When the server's first texts came, and what each took, as the extension logs them; ms."""
        text = "".join(log.read_text(encoding="utf-8") for log in sorted(self._logs.rglob("DFlash.log")))
        found = ANSWERED.findall(text)
        return [(datetime.fromisoformat(time).timestamp() * 1000, float(took)) for time, took in found]
