"""The bytes that tokens stand for, and which tokens can spell a given text (token healing)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Vocabulary:
    """token id -> bytes. An id without text of its own (a marker, a padding row) has b"" and spells nothing."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self.token_bytes = list(token_bytes)
        self._sorted = sorted((text, token) for token, text in enumerate(self.token_bytes) if text)
        self._ids: dict[bytes, list[int]] = {}
        for text, token in self._sorted:
            self._ids.setdefault(text, []).append(token)
        self._longest = max(map(len, self._ids), default=0)

    def text(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.token_bytes[token] if token < len(self.token_bytes) else b"" for token in tokens)

    def spells(self, text: bytes) -> bool:
        """Whether tokens can spell the text, the last of them perhaps beyond its end."""
        reached = [True] + [False] * len(text)
        for start in range(len(text)):
            if reached[start]:
                for token in self.spelling(text[start : start + self._longest]):
                    reached[min(len(text), start + len(self.token_bytes[token]))] = True
        return reached[-1]

    def spelling(self, rest: bytes) -> list[int]:
        """Tokens that begin to spell `rest`: their bytes are a prefix of it, or it is a prefix of theirs."""
        within = [
            token
            for length in range(1, min(len(rest), self._longest) + 1)
            for token in self._ids.get(rest[:length], ())
        ]
        beyond = []
        for place in range(bisect_left(self._sorted, (rest, -1)), len(self._sorted)):
            text, token = self._sorted[place]
            if not text.startswith(rest):
                break
            if len(text) > len(rest):
                beyond.append(token)
        return within + beyond


class Healing:
    """Follows a text that the first tokens must spell; what the last of them spells beyond it belongs to the answer.

    A prompt that stops inside a token (mid-identifier, or in white space that the tokenizer joins with what follows)
    is cut back to a token edge, and the model is held to the cut text while it finds its own tokens for it.
    """

    def __init__(self, text: bytes, vocabulary: Vocabulary) -> None:
        self.rest = text
        self._vocabulary = vocabulary

    @property
    def done(self) -> bool:
        return not self.rest

    def allowed(self) -> list[int]:
        return self._vocabulary.spelling(self.rest)

    def advance(self, token: int) -> bytes:
        """Takes the chosen token; returns its bytes beyond the text that had to be spelled."""
        text = self._vocabulary.token_bytes[token]
        beyond = text[len(self.rest) :]
        self.rest = self.rest[len(text) :]
        return beyond
