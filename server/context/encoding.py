"""Encodes long texts piece by piece and remembers the pieces: typing encodes only what it touches."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator

from server.context.tokenizer import PromptTokenizer

PIECE = 400  # characters, at least
MOST_PIECES = 1_000
# Where a text may be cut at a line break without changing a token depends on how the tokenizer splits text
# before it merges: some leave a line break with what is before it, some with the blanks after it.
_CUTS = (re.compile(r"(?<=\S)(?=\n[ \t]*\S)"), re.compile(r"(?<=\S\n)(?=[ \t]*\S)"))
_PROBES = [
    f"{before}{blank}\n{after}"
    for before in ("x", "1", "x)", "x;", "x):", "'a'", "x,", "x\n}", "ü", "漢", "x = {")
    for blank in ("", "\n", "  \n\n")
    for after in ("class A", "    x = 1", "\tz", "  )", "        1", " #", "z")
]


class PieceEncoder:
    """Gives the same ids as encoding the text whole."""

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: OrderedDict[str, list[int]] = OrderedDict()
        self._cut = next((cut for cut in _CUTS if _changes_nothing(tokenizer, cut)), None)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self._pieces(text):
            ids += self._encode_piece(piece)
        return ids

    def _encode_piece(self, piece: str) -> list[int]:
        known = self._known.get(piece)
        if known is None:
            known = self._known[piece] = self._tokenizer.encode(piece)
            if len(self._known) > MOST_PIECES:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(piece)
        return known

    def _pieces(self, text: str) -> Iterator[str]:
        begin = 0
        while self._cut is not None and len(text) - begin > PIECE:
            cut = self._cut.search(text, begin + PIECE)
            if cut is None:
                break
            yield text[begin : cut.start()]
            begin = cut.start()
        yield text[begin:]


def _changes_nothing(tokenizer: PromptTokenizer, cut: re.Pattern[str]) -> bool:
    for text in _PROBES:
        for found in cut.finditer(text):
            pieces = text[: found.start()], text[found.start() :]
            if tokenizer.encode(text) != [id for piece in pieces for id in tokenizer.encode(piece)]:
                return False
    return True
