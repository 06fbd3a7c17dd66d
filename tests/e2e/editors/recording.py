"""What the replay engine answers in these proofs: code that goes on where a test's file ends."""

from __future__ import annotations

AREA = "    if width < 0 or height < 0:\n        raise ValueError(width, height)\n    return width * height"
GO_AREA = "\tif width < 0 {\n\t\treturn 0\n\t}\n\treturn width * height\n}"
ROWS = "\n    first,\n    second,\n]"

# What a client would expand that took it for a snippet.
PATHS = '\n    "$HOME/${name}",\n    "C:\\\\{a}",\n)'


def entry(after: str, text: str, chunk: int = 8, delay_ms: int = 0) -> dict[str, object]:
    chunks = [text[place : place + chunk] for place in range(0, len(text), chunk)]
    return {"after": after, "text": text, "chunks": chunks, "delay_ms": delay_ms}


def slow_head(name: str) -> str:
    """A function whose body takes a second to come, in pieces that are told ten times in it."""
    return f"def {name}_area(width, height):\n"


# One for each test that needs one, for a server remembers what it has shown.
SLOW = (
    "grow",
    "along",
    "against",
    "leave_0",
    "leave_1",
    "last_0",
    "last_1",
    "last_2",
    "killed",
    "native",
    "native_against",
)
RECORDING = [
    entry("def area(width, height):\n", AREA + "\n\n\ndef perimeter(width, height):\n"),
    *(entry(slow_head(name), AREA + "\n\n\ndef perimeter(width, height):\n", 4, 40) for name in SLOW),
    entry("func area(width, height int) int {\n", GO_AREA + "\n\nfunc perimeter() int {\n"),
    entry("area = ", "width * height\n"),
    entry("total = add(", "first, second)\n"),
    entry("rows = [", ROWS + "\n"),
    entry('print("😀漢字", ', '"größe 😀", 漢字)\n'),
    entry("path = join(", PATHS + "\n"),
    entry("Dear reader,\n", "this is a note of several words.\n"),
]
