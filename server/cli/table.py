"""Rows of text in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], gap: str = "  ") -> str:
    """The rows as lines, each column as wide as its longest cell; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
