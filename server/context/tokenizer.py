"""Text to token ids and back, the way a prompt needs it: no text is ever a special token.

The file is a tokenizer.json of a byte-level BPE. Its `added_tokens` are taken out before the tokenizer is
built, because the library matches them in any text, those marked `special: false` even when told to encode
special tokens as text. Markers are put into prompts by id instead.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from server.errors import DflashError


class TokenizerError(DflashError):
    """A tokenizer file that cannot be used; the text names it and why."""


def byte_alphabet() -> dict[str, int]:
    """The character with which a byte-level BPE vocabulary writes each byte, mapped back to that byte.

    Source: GPT-2's encoder. Printable Latin-1 stands for itself, the other 68 bytes take U+0100 onwards.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return alphabet


class PromptTokenizer:
    """Encodes user text as ordinary characters only, and decodes ids to exactly their bytes.

    token_bytes: id -> its bytes, for every id of the file; b"" for ids of former added tokens and for holes.
    longest_token: bytes of the longest; a text has at least its own bytes over that many tokens.
    missing_bytes: bytes that no token spells. `encode` leaves these out of the prompt (the library does;
    for the embedded tokenizer they are six control characters and what is not UTF-8 or unassigned).
    """

    def __init__(self, tokenizer: Any, token_bytes: Sequence[bytes]) -> None:
        self._tokenizer = tokenizer
        self.token_bytes = token_bytes

    @cached_property
    def longest_token(self) -> int:
        return max(map(len, self.token_bytes))

    @cached_property
    def missing_bytes(self) -> frozenset[int]:
        return frozenset(range(0x100)) - {piece[0] for piece in self.token_bytes if len(piece) == 1}

    @classmethod
    def from_file(cls, path: Path) -> PromptTokenizer:
        """Read a tokenizer.json. Raises TokenizerError when it is missing, broken or not byte-level BPE."""
        from tokenizers import Tokenizer

        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TokenizerError(f"tokenizer {path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise TokenizerError(f"tokenizer {path} is not valid JSON") from error
        try:
            token_bytes = _make_plain(data)
            tokenizer = Tokenizer.from_str(json.dumps(data))
        except _NotByteLevel as error:
            raise TokenizerError(f"tokenizer {path} is not a byte-level BPE: {error}") from error
        except Exception as error:  # the library raises bare Exception for a file it does not understand
            raise TokenizerError(f"tokenizer {path} is not a usable tokenizer file") from error
        return cls(tokenizer, token_bytes)

    def encode(self, text: str) -> list[int]:
        """Token ids of the text, every character of it taken as text; no token is put before or after."""
        # A lone surrogate (half a pair, which an editor can send) has no UTF-8 form.
        clean = text.encode("utf-8", errors="replace").decode("utf-8")
        ids: list[int] = self._tokenizer.encode(clean, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; bytes that form no character become U+FFFD. Unknown ids have no text."""
        size = len(self.token_bytes)
        joined = b"".join(self.token_bytes[id] for id in ids if 0 <= id < size)
        return joined.decode("utf-8", errors="replace")


class CharacterTokenizer(PromptTokenizer):
    """For engines that are sent text: a token is a character, so that sizes can be told without their tokenizer."""

    def __init__(self) -> None:
        super().__init__(None, _Characters())
        self.longest_token = 4
        self.missing_bytes = frozenset()

    def encode(self, text: str) -> list[int]:
        return [ord(each) for each in text.encode("utf-8", errors="replace").decode("utf-8")]


class _Characters(Sequence[bytes]):
    """The bytes of each character, by its number."""

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return chr(place).encode("utf-8", errors="replace")

    def __len__(self) -> int:
        return sys.maxunicode + 1


class _NotByteLevel(Exception):
    """Why a tokenizer file is not a byte-level BPE."""


def _make_plain(data: Any) -> list[bytes]:
    """Take the added tokens out of the parsed file, in place; returns the bytes of each id."""
    model = data["model"]
    if model.get("type") != "BPE":
        raise _NotByteLevel(f"its model is {model.get('type')}")
    if not _has_step(data.get("pre_tokenizer"), "ByteLevel"):
        raise _NotByteLevel("its pre-tokenizer has no ByteLevel step")
    vocabulary: dict[str, int] = model["vocab"]
    merged = {"".join(pair if isinstance(pair, list) else pair.split(" ")) for pair in model["merges"]}
    added = data.get("added_tokens") or []
    added_ids = {token["id"] for token in added}
    data["added_tokens"] = []
    data["post_processor"] = None
    alphabet = byte_alphabet()
    # With `ignore_merges` a word that is a whole vocabulary entry is that token, so a marker must not be one.
    # What merging ordinary characters gives is ordinary text and stays, also where the file calls it added.
    for content in (token["content"] for token in added):
        if content not in merged and content not in alphabet:
            vocabulary.pop(content, None)
    token_bytes = [b""] * (1 + max([*vocabulary.values(), *added_ids]))
    for text, id in vocabulary.items():
        if not all(character in alphabet for character in text):
            raise _NotByteLevel(f"token {id} is not written in the byte alphabet")
        token_bytes[id] = bytes(alphabet[character] for character in text)
    return token_bytes


def _has_step(step: Any, kind: str) -> bool:
    if not isinstance(step, dict):
        return False
    return step.get("type") == kind or any(_has_step(part, kind) for part in step.get("pretokenizers", []))
