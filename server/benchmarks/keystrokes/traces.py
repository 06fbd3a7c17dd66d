"""Traces of typing: how a text came to be, key by key, with times. JSONL, one trace a file.

The first line is `{language, text, line, character}`: the text before the first key and the cursor (0-based,
in characters). Each further line is one event: `{at_ms, type}`, with `mistake` true where it is erased again;
`{at_ms, erase}` (characters before the cursor); or `{at_ms, goes_on}`: here the user would accept what is shown
if it is how `goes_on` begins, and the keys that it spares are left out.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from server.errors import DflashError

KEY_MS = 120.0  # usual time between two keys
READ_MS = 400.0  # of a pause at a line's end, in which a completion is looked at
MISTAKES = 0.03  # share of keys that are wrong and are erased


@dataclass(frozen=True)
class Event:
    at_ms: float
    type: str = ""
    erase: int = 0
    goes_on: str = ""
    mistake: bool = False


@dataclass(frozen=True)
class Trace:
    language: str
    text: str
    line: int
    character: int
    events: tuple[Event, ...]


def read_trace(path: Path) -> Trace:
    """A trace; DflashError names file and line of what is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DflashError(f"cannot read the trace {path}") from error
    events: list[Event] = []
    try:
        head = json.loads(lines[0])
        for line in lines[1:]:
            events.append(Event(**json.loads(line)))
        return Trace(**head, events=tuple(events))
    except (IndexError, TypeError, ValueError) as error:
        raise DflashError(f"{path}: not a trace at event {len(events)}") from error


def write_trace(trace: Trace, path: Path) -> None:
    """Write it so that `read_trace` reads the same."""
    head = {key: value for key, value in asdict(trace).items() if key != "events"}
    events = [{key: value for key, value in asdict(each).items() if value or key == "at_ms"} for each in trace.events]
    path.write_text("".join(json.dumps(each) + "\n" for each in [head, *events]), encoding="utf-8")


def traces_of(path: Path, seed: int = 1) -> Iterator[Trace]:
    """One trace for each function of a Python file: its body is typed anew, with pauses, mistakes and corrections."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    dice = random.Random(seed)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
            continue
        first, last = node.body[0].lineno - 1, node.end_lineno
        if first <= node.lineno - 1 or last - first > 40:
            continue  # its body begins on the line of its head, or is very long
        body = "".join(lines[first:last]).rstrip("\n")
        rest = "".join(lines[:first]) + "\n" + "".join(lines[last:])
        yield Trace("python", rest, first, 0, tuple(_typed(body, dice)))


def _typed(body: str, dice: random.Random) -> Iterator[Event]:
    at_ms, place = 500.0, 0
    while place < len(body):
        pause = place == 0 or body[place - 1] == "\n" or body[place] in "(.="
        if pause:
            yield Event(round(at_ms + READ_MS), goes_on=body[place:])
            at_ms += READ_MS
        end = place + 1
        if body[place - 1 : place] == "\n" or place == 0:  # an editor indents by itself
            while end < len(body) and body[end - 1] == " " and body[end] == " ":
                end += 1
        at_ms += KEY_MS * dice.uniform(0.6, 1.6)
        if dice.random() < MISTAKES and body[place].isalpha():
            yield Event(round(at_ms), type="q", mistake=True)
            at_ms += 2 * KEY_MS
            yield Event(round(at_ms), erase=1)
            at_ms += KEY_MS
        yield Event(round(at_ms), type=body[place:end])
        place = end
