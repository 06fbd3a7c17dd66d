"""What the replay engine answers in these proofs: code that begins where a test's file ends."""

from __future__ import annotations

AREA = "    if width < 0 or height < 0:\n        raise ValueError(width, height)\n    return width * height"


def entry(after: str, text: str, chunk: int = 8, delay_ms: int = 0) -> dict[str, object]:
    chunks = [text[place : place + chunk] for place in range(0, len(text), chunk)]
    return {"after": after, "text": text, "chunks": chunks, "delay_ms": delay_ms}


RECORDING = [
    entry("def area(width, height):\n", AREA + "\n\n\ndef perimeter(width, height):\n"),
    entry("def slow_area(width, height):\n", AREA + "\n\n\ndef perimeter(width, height):\n", 4, 40),
]
