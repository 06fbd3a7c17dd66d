"""Generated texts that were not thrown away, found again from where they began and from within them."""

from __future__ import annotations

from collections import OrderedDict

from server.completion.generated import Generated, Reader
from server.completion.spot import Spot

TEXTS = 200
WALK_BACK = 512  # characters that may have been typed since a text began


class CompletionCache:
    """The last texts of one profile. Each is keyed by the text before its spot, the text after, and the language.

    A spot is found by walking back from it: at each character before it a text may begin that goes on with
    what was typed from there.
    """

    def __init__(self, size: int = TEXTS) -> None:
        self._size = size
        self._texts: OrderedDict[Spot, Generated] = OrderedDict()
        self._spots: dict[int, set[Spot]] = {}  # by offset

    def __len__(self) -> int:
        return len(self._texts)

    def put(self, generated: Generated) -> None:
        """Keep a text, in the place of what was kept for its spot."""
        if generated.ending in (None, "cancelled"):
            return  # it breaks off inside its unit
        spot = generated.spot
        self._texts[spot] = generated
        self._texts.move_to_end(spot)
        self._spots.setdefault(spot.offset, set()).add(spot)
        while len(self._texts) > self._size:
            self._forget(next(iter(self._texts)))

    def find(self, spot: Spot) -> tuple[Generated, Reader] | None:
        """The text with a complete answer for a spot that begins nearest before it."""
        here = spot.offset
        for offset in sorted((each for each in self._spots if here - WALK_BACK <= each <= here), reverse=True):
            for begun in self._spots[offset]:
                generated = self._texts[begun]
                typed = generated.typed(spot)
                if typed is None:
                    continue
                reader = Reader(spot, len(typed))
                if reader.read(generated).finish is not None:
                    self._texts.move_to_end(begun)
                    return generated, reader
        return None

    def _forget(self, spot: Spot) -> None:
        del self._texts[spot]
        others = self._spots[spot.offset]
        others.discard(spot)
        if not others:
            del self._spots[spot.offset]
