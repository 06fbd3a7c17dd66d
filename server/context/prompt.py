"""From the text before the cursor to the prompt: what the target is shown, token for token.

The plain format is `bos`, a comment line with the file's path, and as much of the text before the cursor
as the budget allows. Two rules keep it cheap to type on: the text's start moves only in large steps, so
that the tokens before the cursor stay the same from key to key and the engine reuses their KV; and the
same input always gives the same tokens.

The end is healed: the prompt is cut back to a token edge and the text cut off goes to the engine as
`heal`, which makes the first tokens spell it. Cut off are all blanks at the end, since after code the
line break belongs to the token that follows it ("\\n    "), which a prompt that ends in it could never
get; otherwise the word that is being typed, since all of its tokens change with its next letter (` op`
and `e`, but ` open`), or the last token, since the vocabulary joins punctuation too (`(` and `):`). It
costs a step or two of the target without a draft.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from server.context.languages import Language
from server.context.tokenizer import PromptTokenizer
from server.errors import DflashError
from server.profiles import Profile

STEPS = 4  # the start moves by a quarter of the budget
LINE_SHARE = 16  # a sixteenth of the budget is kept for the line that is being typed
CHARACTERS_PER_TOKEN = 3  # of code, roughly; the size of a step depends on it, no limit does
MOST_CHARACTERS_PER_TOKEN = 8  # text beyond so many a token is not even looked at
HEAL_LIMIT = 64  # characters; more blanks than that say nothing more
TEXT_LIMIT = 16_000  # characters of a prompt that is sent as text
# Blanks, or letters with the blank before them, which tokens of words begin with.
_UNFINISHED = re.compile(r"[ \t\n]+\Z| ?[^\W\d_]+\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\x85]")


@dataclass(frozen=True)
class Prompt:
    """What is sent for one completion. `content` is token ids, or text where the profile has no prompt."""

    content: str | list[int]
    heal: str = ""
    stop_ids: tuple[int, ...] = ()
    max_tokens: int = 0


@dataclass(frozen=True)
class TextBefore:
    """The text before the cursor with `\\n` line ends, or its end; `skipped` characters come before it."""

    text: str
    skipped: int = 0


class PromptBuilder:
    """Builds prompts for one profile. `limit` is how many characters before the cursor it looks at."""

    def __init__(self, profile: Profile) -> None:
        """Load the profile's tokenizer. DflashError, one line, when the profile asks for what we lack."""
        self._settings = profile.prompt
        self.limit = TEXT_LIMIT
        if self._settings is None:
            return
        if self._settings.format != "plain":
            raise DflashError(
                f"profile {profile.name}: the prompt format {self._settings.format} is not built yet; use plain"
            )
        self._tokenizer = PromptTokenizer.from_file(self._settings.tokenizer)
        bos = self._settings.marker_ids.get("bos")
        self._start_ids = [] if bos is None else [bos]
        room = profile.engine.context - self._settings.max_tokens
        self._budget = min(self._settings.budget, room) - len(self._start_ids)
        if self._budget < 1:
            raise DflashError(f"profile {profile.name}: no tokens are left for the prompt")
        # Engines that are not ours know no healing.
        self._heals = self._settings.heal and profile.engine.kind == "resident"
        self._step = max(1, self._budget * CHARACTERS_PER_TOKEN // STEPS)
        self.limit = self._budget * MOST_CHARACTERS_PER_TOKEN

    def build(self, before: TextBefore, path: str, language: Language) -> Prompt:
        """The prompt at the end of `before`. `path`: of the file, as the target should see it."""
        settings = self._settings
        if settings is None:
            return Prompt(before.text[-TEXT_LIMIT:])
        ids = self._fitting_ids(before, _header(path, language))
        heal = ""
        if self._heals:
            edge = self._token_edge(ids)
            ids, heal = ids[:edge], self._tokenizer.decode(ids[edge:])
        return Prompt([*self._start_ids, *ids], heal, settings.stop_ids, settings.max_tokens)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of generated tokens; "" where the profile has no tokenizer."""
        return self._tokenizer.decode(ids) if ids and self._settings is not None else ""

    def _fitting_ids(self, before: TextBefore, header: str) -> list[int]:
        """Ids of the header with as much of the text as fits, or, if nothing else does, of the text's end."""
        room = self._budget - self._budget // LINE_SHARE - len(self._tokenizer.encode(header))
        # Chosen for whole lines: half a word has more tokens than the word, and the start must not sway.
        earliest = self._earliest_start(before.text[: before.text.rfind("\n") + 1], room)
        for start in self._starts(before):
            if start < earliest:
                continue
            ids = self._tokenizer.encode(header + before.text[start:])
            if len(ids) <= self._budget:
                return ids
        return self._tokenizer.encode(before.text[-self._budget :])[-self._budget :]

    def _earliest_start(self, text: str, room: int) -> int:
        """Where the last `room` tokens of the text begin: no earlier start can fit."""
        ids = self._tokenizer.encode(text)
        if len(ids) <= room:
            return 0
        return len(text) - len(self._tokenizer.decode(ids[-room:])) if room > 0 else len(text)

    def _starts(self, before: TextBefore) -> Iterator[int]:
        """Where the text may start: at the file's beginning, and at the first line of each step."""
        text, skipped, step = before.text, before.skipped, self._step
        if not skipped:
            yield 0
        mark = (skipped // step + 1) * step
        while (start := mark - skipped) < len(text):
            newline = text.find("\n", start - 1, start - 1 + step)
            # A line longer than a step is cut inside, at the mark.
            yield start if newline < 0 else newline + 1
            mark += step

    def _token_edge(self, ids: list[int]) -> int:
        """How many ids stay in the prompt; the rest is the smallest end to heal that is whole characters."""
        pieces = self._tokenizer.token_bytes
        end = self._tokenizer.decode(ids[-HEAL_LIMIT:])[-HEAL_LIMIT:]
        unfinished = _UNFINISHED.search(end)
        wanted = len(unfinished[0].encode()) if unfinished else 1
        lowest = 0 if self._start_ids else 1  # an engine needs a token to begin with
        edge, tail = len(ids), b""
        while len(tail) < wanted or not _begins_a_character(tail):
            if edge <= lowest:
                return edge if _begins_a_character(tail) else len(ids)
            edge -= 1
            tail = pieces[ids[edge]] + tail
        return edge


def _begins_a_character(data: bytes) -> bool:
    return bool(data) and data[0] & 0xC0 != 0x80


def _header(path: str, language: Language) -> str:
    """A comment line with the path; small targets write the right language after it."""
    opening, closing = language.comment
    name = _CONTROL.sub("?", PurePath(path).as_posix()) if path else ""
    return f"{opening} {name} {closing}".rstrip() + "\n" if name else ""
