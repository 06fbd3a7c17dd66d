"""Lines of a text as LSP counts them: ended by `\\n`, `\\r\\n` or `\\r`, and by nothing else."""

from __future__ import annotations

import re

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)")
_SURROGATE = re.compile("[\ud800-\udfff]")


def split_lines(text: str) -> list[str]:
    """Split into lines that keep their endings; the last one has none and may be empty.

    `"".join(split_lines(text)) == text`. `str.splitlines` would also split at U+2028, VT, FF and NEL.
    """
    if "\r" not in text:
        *ended, last = text.split("\n")
        return [line + "\n" for line in ended] + [last]
    lines = _LINE.findall(text)
    lines.append(text[sum(map(len, lines)) :])
    return lines


def without_ending(line: str) -> str:
    """The line without its `\\n`, `\\r\\n` or `\\r`."""
    return line.rstrip("\r\n")


def line_ending(line: str) -> str:
    """The line's own ending, or "" for a last line."""
    return line[len(without_ending(line)) :]


def to_line_feeds(text: str) -> str:
    """The text with every line ending as `\\n`, which is how models and boundaries see it."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def without_lone_surrogates(text: str) -> str:
    """The text with halves of surrogate pairs as U+FFFD: same length in UTF-16, and UTF-8 can hold it.

    Editors can send such halves through JSON; nothing behind the store could encode them.
    """
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
