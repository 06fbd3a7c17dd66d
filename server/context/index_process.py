"""The workspace index: definitions of all files that may be context, in a process of its own.

Speaks JSON, one object a line, on its standard input and output; ends when its input does. Scanning is the
process's only work but for questions, which a second thread answers from what is known so far.

    {"folders": [...], "exclude": [...], "exclude_by_language": {...}}           first line
    {"id": 1, "find": [NAME, ...], "near": PATH, "imports": [TEXT, ...], "most": 8}
                                        -> {"id": 1, "found": [{name, path, text}, ...]}
    {"id": 2, "state": true}            -> {"id": 2, "files": ..., "definitions": ..., ...}
    {"changed": [PATH, ...]}
    {"exclude": [...]}                                                         instead of those before
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from server.context.families import may_use
from server.context.grammars import ParseLimit, parse_lines, parser_for
from server.context.injections import all_definitions, holds_others
from server.context.languages import Language, language_for
from server.context.privacy import Privacy, holds_secret
from server.context.tags import Definition, definition_query
from server.documents.lines import split_lines

MOST_FILES = 10_000
MOST_ENTRIES = 300_000  # of all directories: a workspace may be somebody's home
MOST_TEXT = 60_000_000  # characters of all definitions
PARSE_LIMIT_S = 0.5  # of one file
RESCANS = 20  # times as long as a scan took is it until the next
RESCAN_S = (
    120.0  # and at least so long: how often the folders are looked through for files that are new, changed or gone
)
COMMON = 50  # a name that more files define says nothing
SCAN: Final = "scan"  # asks for a scan at once
NICENESS = 5  # requests come first; much more, and a busy machine would never get it done
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class IndexedFile:
    """Definitions of one file; changed: its modification time in nanoseconds when they were read."""

    folder: Path
    changed: int
    definitions: list[Definition]


class Index:
    """Definitions by file and by name. Locked, for questions come while it grows."""

    def __init__(self, privacy: Privacy) -> None:
        self.privacy = privacy
        self._files: dict[Path, IndexedFile] = {}
        self._paths_by_name: defaultdict[str, list[Path]] = defaultdict(list)
        self._lock = threading.Lock()
        self._text = 0  # characters of all definitions
        self.scanned = False
        self.scan_s = self.processor_s = 0.0  # of the last scan
        self.skipped: defaultdict[str, int] = defaultdict(int)  # reason -> files

    def scan(self) -> None:
        """Bring the index in line with the folders."""
        begun, processor_begun = time.monotonic(), time.process_time()
        seen: set[Path] = set()
        self.skipped.clear()
        for folder in self.privacy.folders:
            for path in _source_files(folder, self.privacy):
                if len(seen) >= MOST_FILES or self._text >= MOST_TEXT:
                    break
                seen.add(path)
                self.update(path, folder)
        with self._lock:
            gone = [path for path in self._files if path not in seen]
        for path in gone:
            self._drop(path)
        self.scanned, self.scan_s = True, time.monotonic() - begun
        self.processor_s = time.process_time() - processor_begun

    def update(self, path: Path, folder: Path | None = None) -> None:
        """Read a file again if it has changed; forget one that is gone or may not be context any more."""
        folder = folder or next((each for each in self.privacy.folders if path.is_relative_to(each)), None)
        language = language_for("", path.name)
        syntax = language.syntax
        if folder is None or syntax is None:
            return
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            self._drop(path)
            return
        known = self._files.get(path)
        if known is not None and known.changed == changed and self.privacy.may_be_context(path).allowed:
            return
        text, verdict = self.privacy.read(path)
        if not verdict.allowed:
            self.skipped[verdict.reason] += 1
            self._drop(path)
            return
        lines = split_lines(text)
        try:
            tree = parse_lines(parser_for(syntax), lines, PARSE_LIMIT_S)
            found = [each for each in all_definitions(tree, lines, language) if not holds_secret(each.text)]
        except ParseLimit:
            self.skipped["not parsed in time"] += 1
            found = []
        self._drop(path)
        with self._lock:
            self._files[path] = IndexedFile(folder, changed, found)
            self._text += sum(len(each.text) for each in found)
            for name in {sys.intern(each.name) for each in found}:
                self._paths_by_name[name].append(path)

    def find(self, names: Sequence[str], near: Path, imports: Sequence[str], most: int) -> list[dict[str, str]]:
        """A definition of each name, in the order of the names, none of them from `near` itself.

        Of several the one whose path the name's import tells of, then the nearest. A name that is not
        imported must have one definition only, or the wrong one might be shown.
        """
        found: list[dict[str, str]] = []
        user = language_for("", near.name)
        with self._lock:
            for name in names:
                paths = [
                    path
                    for path in self._paths_by_name.get(name, ())
                    if path != near and may_use(user, language_for("", path.name))
                ]
                words = {word for text in imports if name in (of := _WORD.findall(text)) for word in of}
                if not 0 < len(paths) <= (COMMON if words else 1):
                    continue
                path = min(paths, key=lambda each: (-_told(each, words), _steps(each, near), str(each)))
                file = self._files[path]
                definition = next(each for each in file.definitions if each.name == name)
                shown = path.relative_to(file.folder).as_posix()
                found.append({"name": name, "path": shown, "text": definition.text, "file": str(path)})
                if len(found) >= most:
                    break
        # A file that is gone, was changed behind our back or excluded since must not speak.
        return [each for each in found if self._still_holds(Path(each.pop("file")))]

    def state(self) -> dict[str, Any]:
        with self._lock:
            count = sum(len(file.definitions) for file in self._files.values())
            return {
                "files": len(self._files),
                "definitions": count,
                "scanned": self.scanned,
                "scan_s": round(self.scan_s, 2),
                "processor_s": round(self.processor_s, 2),
                "skipped": dict(self.skipped),
                "peak_memory_mb": round(_peak_memory_mb(), 1),
            }

    def _still_holds(self, path: Path) -> bool:
        file = self._files.get(path)
        try:
            unchanged = file is not None and path.stat().st_mtime_ns == file.changed
            return unchanged and self.privacy.may_be_context(path).allowed
        except OSError:
            return False

    def _drop(self, path: Path) -> None:
        with self._lock:
            file = self._files.pop(path, None)
            self._text -= sum(len(each.text) for each in file.definitions) if file else 0
            for name in {each.name for each in file.definitions} if file else ():
                paths = self._paths_by_name[name]
                paths.remove(path)
                if not paths:
                    del self._paths_by_name[name]


def main() -> int:
    """Serve until the input ends."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    first = sys.stdin.readline()
    if not first:
        return 0
    given = json.loads(first)
    folders = [Path(folder) for folder in given["folders"]]
    index = Index(Privacy(folders, given.get("exclude", ()), given.get("exclude_by_language", {})))
    changed: queue.SimpleQueue[Path | Literal["scan"] | None] = queue.SimpleQueue()
    threading.Thread(target=_answer, args=(index, changed), daemon=True).start()
    while True:
        index.scan()
        until = time.monotonic() + max(RESCAN_S, RESCANS * index.scan_s)
        while (left := until - time.monotonic()) > 0:
            try:
                path = changed.get(timeout=left)
            except queue.Empty:
                break
            if path is None:
                return 0
            if path == SCAN:
                break
            index.update(path)


def _answer(index: Index, changed: queue.SimpleQueue[Path | Literal["scan"] | None]) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        for path in asked.get("changed", ()):
            changed.put(Path(path))
        if "exclude" in asked:
            index.privacy.exclude = asked["exclude"]
            changed.put(SCAN)
        if "find" in asked:
            found = index.find(asked["find"], Path(asked["near"]), asked["imports"], asked["most"])
            _say({"id": asked["id"], "found": found})
        elif "state" in asked:
            _say({"id": asked["id"], **index.state()})
    changed.put(None)
    if not index.scanned:
        os._exit(0)  # nobody is left to scan for


def _say(answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _source_files(folder: Path, privacy: Privacy) -> Iterator[Path]:
    """Files of languages that we know, nearest to the folder first."""
    directories, left = [folder], MOST_ENTRIES
    for directory in directories:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue
        left -= len(entries)
        if left < 0:
            return
        for entry in entries:
            path = Path(entry.path)
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    if privacy.may_enter(folder, path):
                        directories.append(path)
                elif entry.is_file() and _defines(language_for("", entry.name)):
                    yield path


def _defines(language: Language) -> bool:
    """Whether files of the language define what others may use."""
    defines = language.syntax is not None and definition_query(language.syntax) is not None
    return defines or holds_others(language)


def _told(path: Path, words: set[str]) -> int:
    """How many parts of a path, from its end on, an import names: `from a.b import c` tells of a/b.py."""
    parts = [path.stem, *reversed(path.parts[:-1])]
    if path.stem in ("__init__", "index", "mod"):
        parts = parts[1:]
    return next((count for count, part in enumerate(parts) if part not in words), len(parts))


def _steps(one: Path, other: Path) -> int:
    """How many directories lie between two files."""
    common = 0
    for a, b in zip(one.parts, other.parts, strict=False):
        if a != b:
            break
        common += 1
    return len(one.parts) + len(other.parts) - 2 * common


def _peak_memory_mb() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 2**20 if sys.platform == "darwin" else size / 2**10


if __name__ == "__main__":
    sys.exit(main())
