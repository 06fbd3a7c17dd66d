"""How much two texts begin with alike."""

from __future__ import annotations

from typing import TypeVar

Text = TypeVar("Text", str, bytes)


def common_prefix(one: Text, other: Text) -> int:
    """How many characters, or bytes, both begin with; by halving, since a line may be half a megabyte long."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
