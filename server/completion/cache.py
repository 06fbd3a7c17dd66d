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
        self._spots: OrderedDict[Spot, None] = OrderedDict()  # the longest unused first
        self._texts: dict[int, dict[Spot, Generated]] = {}  # by offset, so that hardly a spot is compared or hashed

    def __len__(self) -> int:
        return len(self._spots)

    def put(self, generated: Generated) -> None:
        """Keep a text, in the place of what was kept for its spot."""
        if generated.ending in (None, "cancelled"):
            return  # it breaks off inside its unit
        spot = generated.spot
        self._spots[spot] = None
        self._spots.move_to_end(spot)
        self._texts.setdefault(spot.offset, {})[spot] = generated
        while len(self._spots) > self._size:
            self._forget(next(iter(self._spots)))

    def find(self, spot: Spot) -> tuple[Generated, Reader] | None:
        """The text with a complete answer for a spot that begins nearest before it."""
        here = spot.offset
        for offset in sorted((each for each in self._texts if here - WALK_BACK <= each <= here), reverse=True):
            for generated in self._texts[offset].values():
                typed = generated.typed(spot)
                if typed is None:
                    continue
                reader = Reader(spot, len(typed))
                if reader.read(generated).finish is not None:
                    self._spots.move_to_end(generated.spot)
                    return generated, reader
        return None

    def _forget(self, spot: Spot) -> None:
        del self._spots[spot]
        others = self._texts[spot.offset]
        del others[spot]
        if not others:
            del self._texts[spot.offset]
