"""What is offered of a generated text: as much of it as leaves the file with no more errors than it has.

A text that ends at its boundary is mostly sound as it is. One that broke off, for its tokens ran out, its target ended
it or it was a loop, leaves brackets and strings open: they are closed. Where that does not help, or a target wrote
what does not belong to the place, the text ends sooner: with an earlier line, or on its first line with an earlier
token. Nothing is offered of a text that has no such piece.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from server.completion.boundaries.boundary import CursorText
from server.completion.boundaries.line_boundary import REPETITION
from server.completion.closing import closed_unread, closers_of_line, closings, leaves_open
from server.completion.fit import replaceable
from server.completion.result import Finish
from server.completion.soundness import errors_around
from server.context.file_errors import FileErrors

WOULD_NOT_PARSE = "would leave the file with errors"

MOST_AT_ONCE = 2  # parses that the event loop tries for a growing text
SEARCH_S = 0.06  # of processor time for one text; one that is found to be no good by then is none
_GOES_ON = " ,.+-*/%&|^=<>!:~@\\"  # signs behind which more was to come
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Ending:
    """How a text ended. off: it broke off, not at a boundary. looped: because it was a loop."""

    off: bool = False
    looped: bool = False

    @classmethod
    def of(cls, finish: Finish | None, reason: str) -> Ending:
        looped = reason == REPETITION
        return cls(looped or finish in ("length", "eos", "cancelled"), looped)


class SoundTexts:
    """What was found out lately: each request inside a unit asks what is offered of the whole of it."""

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._found: OrderedDict[tuple[CursorText, str, Ending, str], str] = OrderedDict()

    def at_once(self, text: str, cursor: CursorText, file: FileErrors | None, ending: Ending) -> str | None:
        """What was found out, or takes no time to; None where `find` would hold up the event loop."""
        key = (cursor, text, ending, "")
        is_open = key not in self._found and not ending.off and len(replaceable(text, cursor)) == 1
        if is_open and file is not None and _is_sound_at_once(text, file):
            self._keep(key, text)
        return self._found.get(key)

    def find(
        self, text: str, cursor: CursorText, file: Callable[[], FileErrors | None], ending: Ending, shown: str = ""
    ) -> str:
        """`sound_text`; the file is only made where the answer is not known."""
        key = (cursor, text, ending, shown)
        found = self._found.get(key)
        if found is None:
            found = self._keep(key, sound_text(text, cursor, file(), ending, shown))
        return found

    def _keep(self, key: tuple[CursorText, str, Ending, str], found: str) -> str:
        self._found[key] = found
        while len(self._found) > self._size:
            self._found.popitem(last=False)
        return found


def sound_text(text: str, cursor: CursorText, file: FileErrors | None, ending: Ending, shown: str = "") -> str:
    """The text, closed or cut back so that the file parses no worse with it; "" when none of it would do.

    file: where it goes; None without a grammar. shown: what of the text somebody has seen growing: more may come, but
    less is never shown, so it is this much or nothing.
    """
    if cursor.language.prose or not text.strip():
        return text
    now = None if file is None else file.errors_with("")
    if file is None or now is None:
        return closed_unread(text, cursor) if ending.off else text
    # Open brackets are closed also where the parser has mended them, unless the text ended at a boundary.
    if not ending.off and _is_sound(text, cursor, file, now):
        return text
    limit = time.thread_time() + SEARCH_S
    for candidate in _candidates(text, cursor, ending):
        if candidate.startswith(shown) and _is_sound(candidate, cursor, file, now):
            return candidate
        if time.thread_time() > limit:
            break
    for candidate in closings(shown, cursor) if shown else ():
        if _is_sound(candidate, cursor, file, now):
            return candidate
    near = errors_around(cursor)
    # What takes a parser too long in a large file may be found out of what stands near.
    return sound_text(text, cursor, near, ending, shown) if file.gave_up and file is not near else ""


def may_be_kept(text: str, cursor: CursorText, file: FileErrors | None) -> bool:
    """Whether a text can be offered as it is or closed, so that it may be shown before more of it has come."""
    now = None if file is None or cursor.language.prose else file.errors_with("")
    if file is None or now is None:
        return True
    return any(_is_sound(closed, cursor, file, now) for closed in closings(text, cursor))


def is_surely_kept(text: str, cursor: CursorText, file: FileErrors | None) -> bool:
    """The same where it takes no time to tell that it is so. For the event loop."""
    if file is None or cursor.language.prose:
        return True
    if not file.is_ready:
        return False
    tries = ((closed, replaced) for closed in closings(text, cursor) for replaced in replaceable(closed, cursor))
    return any(file.is_surely_sound(closed, replaced) for closed, replaced in islice(tries, MOST_AT_ONCE))


def _is_sound_at_once(text: str, file: FileErrors) -> bool:
    if file.is_surely_sound(text):
        return True
    now, errors = file.errors_at_once(""), file.errors_at_once(text)
    return now is not None and errors is not None and errors <= now


def _is_sound(text: str, cursor: CursorText, file: FileErrors, now: int) -> bool:
    """Whether the file has at most `now` errors with the text, in the range that it gets."""
    found = (file.errors_with(text, replaced) for replaced in replaceable(text, cursor))
    return any(errors is not None and errors <= now for errors in found)


def _candidates(text: str, cursor: CursorText, ending: Ending) -> Iterator[str]:
    yield from closings(text, cursor)
    begun = closers_of_line(cursor)
    if begun:
        yield from (each + begun for each in closings(text, cursor))
    if ending.off or leaves_open(text, cursor):
        yield from closings(text.rstrip(_GOES_ON), cursor)
    for shorter in _shorter(text, ending.looped):
        if not _WORD.search(shorter):
            return  # signs alone are worth nothing
        yield from closings(shorter, cursor)


def _shorter(text: str, looped: bool) -> Iterator[str]:
    """The text up to the end of each line before its last, the longest first, then of each token on its first line.

    A loop on one line is no loss.
    """
    while "\n" in text.strip("\n"):
        text = text[: text.rfind("\n")].rstrip()
        yield text
    if looped:
        return
    for end in sorted({found.end() for found in _TOKEN.finditer(text)}, reverse=True)[1:]:
        yield text[:end]
