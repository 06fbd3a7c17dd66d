"""From the text around the cursor to the prompt: what the target is shown, token for token.

What a prompt holds and in which order is the format's affair (`formats`); here it is fitted into the
budget. Two rules keep it cheap to type on: the text's start moves only in large steps, so that the tokens
before the cursor stay the same from key to key and the engine reuses their KV; and the same input always
gives the same tokens.

The end is healed: the text before the cursor is cut back to a token edge and what was cut off goes to the
engine as `heal`, which makes the first tokens spell it. Cut off are all blanks at the end, since after code
the line break belongs to the token that follows it ("\\n    "), which a prompt that ends in it could never
get; otherwise the word that is being typed, since all of its tokens change with its next letter (` op` and
`e`, but ` open`), or the last token, since the vocabulary joins punctuation too (`(` and `):`). It costs a
step or two of the target without a draft. An engine that is not ours knows no healing: its answer must begin
with what was cut off (`retyped`).

An engine that is sent text gets the same prompt as text, sized by its characters and with special strings broken
up, and beside it what to ask in a chat, should it take no completions of raw text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from server.context.encoding import PieceEncoder
from server.context.formats import (
    FENCE,
    FORMATS,
    Chunk,
    Layout,
    Parts,
    Piece,
    likeliest_format,
    question,
    shows_suffix,
)
from server.context.languages import Language
from server.context.special_text import JOINT, SpecialText
from server.context.tokenizer import CharacterTokenizer, PromptTokenizer
from server.engine.protocol import Chat
from server.errors import DflashError
from server.profiles import Profile, PromptSettings, TextSettings
from server.profiles.settings import PromptFormat

STEPS = 4  # the start moves by a quarter of the budget
LINE_SHARE = 16  # a sixteenth of the budget is kept for the line that is being typed
RELATED_SHARE = 0.25  # of the budget: what other places may take from the text before the cursor
HEAD_SHARE = 0.15  # of the budget: imports and heads of scopes above the text's start
CHARACTERS_PER_TOKEN = 3  # of code, roughly; the size of a step depends on it, no limit does
MOST_CHARACTERS_PER_TOKEN = 8  # text beyond so many a token is not even looked at
HEAL_LIMIT = 64  # characters; more blanks than that say nothing more
TEXT_LIMIT = 16_000  # characters of a prompt that is sent as text
_CLOSERS = ")]}"
# Blanks, or letters with the blank before them, which tokens of words begin with.
_UNFINISHED = re.compile(r"[ \t\n]+\Z| ?[^\W\d_]+\Z")


@dataclass(frozen=True)
class Prompt:
    """What is sent for one completion. `content` is token ids, or text where the profile has no prompt.

    heal: what the engine must spell first and leaves out of its answer. retyped: what the answer of an
    engine that knows no healing must begin with. start: where the shown text begins, in characters of the file.
    stop: texts that end the answer. chat: the same as a chat. joint: the character that breaks up special strings
    in `content`, if there are any.
    """

    content: str | list[int]
    heal: str = ""
    stop_ids: tuple[int, ...] = ()
    max_tokens: int = 0
    retyped: str = ""
    start: int = 0
    stop: tuple[str, ...] = ()
    chat: Chat | None = None
    joint: str = ""


@dataclass(frozen=True)
class TextBefore:
    """The text before the cursor with `\\n` line ends, or its end.

    skipped: characters that come before it. row: of the line that it begins in.
    """

    text: str
    skipped: int = 0
    row: int = 0


def _no_head(row: int) -> str:
    return ""


@dataclass(frozen=True)
class Around:
    """What a prompt may show beside the text before the cursor.

    head: what of the file above a row to show if the text starts there. begins: whether something begins on
    a row, so that the text may start there. suffix: the text after the cursor, with `\\n` line ends.
    """

    related: Sequence[Chunk] = ()
    head: Callable[[int], str] = _no_head
    begins: Callable[[int], bool] | None = None
    suffix: str = ""
    repository: str = ""


NOTHING_AROUND = Around()


class PromptBuilder:
    """Builds prompts for one profile. `limit` is how many characters before the cursor it looks at.

    suffix_limit: the same after the cursor; 0 where the format does not show them. shows_context: whether a prompt
    holds more than text before the cursor.
    """

    def __init__(self, profile: Profile) -> None:
        """Load the profile's tokenizer. DflashError, one line, when the profile asks for what we lack."""
        self._profile = profile
        self._special = SpecialText(profile.text.special) if profile.text is not None else None
        self._settings = _in_characters(profile.text) if profile.text is not None else profile.prompt
        self.limit = TEXT_LIMIT
        self.suffix_limit = self.related_budget = 0
        self.shows_context = self._settings is not None
        if self._settings is None:
            return
        is_text = self._special is not None
        self._tokenizer = CharacterTokenizer() if is_text else PromptTokenizer.from_file(self._settings.tokenizer)
        self._encoder = PieceEncoder(self._tokenizer)
        # Engines that are not ours know no healing.
        self._heals = self._settings.heal
        self._engine_heals = profile.engine.kind == "resident"
        self._lay_out(self._settings)

    def change_format(self, format: PromptFormat) -> None:
        """Lay prompts out in another format from now on."""
        assert self._settings is not None
        self._lay_out(replace(self._settings, format=format))

    def _lay_out(self, settings: PromptSettings) -> None:
        """Take a format and the budgets that go with it."""
        self._settings = settings
        name = likeliest_format(settings.marker_ids) if settings.format == "auto" else settings.format
        self._format = FORMATS[name]
        # A token of a prompt that is sent as text is a character.
        is_text = self._special is not None
        context = self._profile.engine.context * (CHARACTERS_PER_TOKEN if is_text else 1)
        shows = is_text or shows_suffix(name, settings.marker_ids)
        suffix_budget = settings.suffix_budget if shows else 0
        room = context - settings.max_tokens - suffix_budget
        self._budget = min(settings.budget, room)
        if self._budget < 2:
            raise DflashError(f"profile {self._profile.name}: no tokens are left for the prompt")
        self._step = max(1, self._budget * (1 if is_text else CHARACTERS_PER_TOKEN) // STEPS)
        self._suffix_budget = suffix_budget
        self.limit = self._budget * (1 if is_text else MOST_CHARACTERS_PER_TOKEN)
        self.suffix_limit = suffix_budget * (1 if is_text else MOST_CHARACTERS_PER_TOKEN)
        related = settings.related_budget
        self.related_budget = int(self._budget * RELATED_SHARE) if related is None else min(related, self._budget // 2)
        self._head_budget = int(self._budget * HEAD_SHARE) if settings.head else 0

    def build(self, before: TextBefore, path: str, language: Language, around: Around = NOTHING_AROUND) -> Prompt:
        """The prompt at the end of `before`. `path`: of the file, as the target should see it."""
        settings = self._settings
        if settings is None:
            return Prompt(before.text[-TEXT_LIMIT:])
        suffix = self._fitting_suffix(around.suffix)
        parts = Parts(path, language, around.related, "", suffix, around.repository)
        layout, prefix_ids, start = self._fitting(before, parts, around)
        front, back = self._ids(layout.before), self._ids(layout.after)
        cut_off = ""
        if self._heals:
            edge = self._token_edge(prefix_ids, lowest=0 if front else 1)
            prefix_ids, cut_off = prefix_ids[:edge], self._tokenizer.decode(prefix_ids[edge:])
        if self._special is not None:
            # Related text is text before the cursor here, and need not be asked about.
            return self._as_text(
                self._tokenizer.decode(prefix_ids), replace(parts, related=()), cut_off, before.skipped + start
            )
        heal, retyped = (cut_off, "") if self._engine_heals else ("", cut_off)
        content = [*front, *prefix_ids, *back]
        stop = (f"\n{FENCE}",) if settings.format == "chat" else ()
        return Prompt(content, heal, settings.stop_ids, settings.max_tokens, retyped, before.skipped + start, stop)

    def _as_text(self, text: str, parts: Parts, cut_off: str, start: int) -> Prompt:
        """The prompt for an engine that is sent text, or asked in a chat."""
        assert self._special is not None and self._settings is not None
        fence = FENCE
        while fence in text or fence in parts.suffix:
            fence += "`"
        asked = self._special.broken_up(question(parts, fence))
        content = self._special.broken_up(text)
        joint = JOINT if JOINT in content + asked else ""
        chat = Chat(asked, f"{fence}{parts.language.name}\n", f"\n{fence}")
        return Prompt(content, "", (), self._settings.max_tokens, cut_off, start, chat=chat, joint=joint)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of generated tokens; "" where the profile has no tokenizer."""
        known = self._settings is not None and self._special is None
        return self._tokenizer.decode(ids) if ids and known else ""

    def fitting_chunks(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """As many of the chunks, in their order, as the related budget holds; a chunk is whole or left out."""
        fitting, room = [], self.related_budget
        for chunk in chunks:
            # A few tokens more for what the format puts around it.
            size = len(self._tokenizer.encode(f"{chunk.path}\n{chunk.text}\n\n")) + 4
            if size <= room:
                fitting.append(chunk)
                room -= size
        return fitting

    def fitting_head(self, lines: Sequence[str]) -> str:
        """The last of the lines that the head's share holds."""
        room = self._head_budget
        kept: list[str] = []
        for line in reversed(lines):
            room -= len(self._tokenizer.encode(line))
            if room < 0:
                break
            kept.append(line)
        return "".join(reversed(kept))

    def _fitting(self, before: TextBefore, parts: Parts, around: Around) -> tuple[Layout, list[int], int]:
        """The layout, ids of its lead with as much of the text as fits, and where in the text they start.

        If nothing else fits, ids of the text's end.
        """
        layout = self._layout(parts)
        budget = self._budget - self._fixed(layout, parts.suffix)
        room = budget - self._budget // LINE_SHARE
        # Chosen for whole lines: half a word has more tokens than the word, and the start must not sway.
        whole_lines = before.text[: before.text.rfind("\n") + 1]
        earliest = self._earliest_start(before, whole_lines, room - len(self._encoder.encode(layout.lead)))
        for start, row in self._starts(before, around.begins, earliest):
            if start < earliest:
                continue
            head = "" if before.skipped + start == 0 else around.head(row)
            each = self._layout(replace(parts, head=head)) if head else layout
            if start < len(whole_lines) and len(self._encoder.encode(each.lead + whole_lines[start:])) > room:
                continue
            ids = self._encoder.encode(each.lead + before.text[start:])
            if len(ids) <= budget:
                return each, ids, start
        end = before.text[-max(1, budget) :]
        ids = self._tokenizer.encode(end)[-max(1, budget) :]
        return replace(layout, lead=""), ids, len(before.text) - len(end)

    def _layout(self, parts: Parts) -> Layout:
        assert self._settings is not None
        return self._format(parts, self._settings.marker_ids)

    def _fixed(self, layout: Layout, suffix: str) -> int:
        """Tokens of what stands around lead and text; the suffix has a budget of its own."""
        size = len(self._ids(layout.before)) + len(self._ids(layout.after))
        return size - len(self._encoder.encode(suffix))

    def _ids(self, pieces: Sequence[Piece]) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            ids += [piece] if isinstance(piece, int) else self._encoder.encode(piece)
        return ids

    def _fitting_suffix(self, text: str) -> str:
        """As much of the suffix as its budget holds, to the end of a line where it can."""
        text = text[: self.suffix_limit]
        ids = self._encoder.encode(text)
        if len(ids) <= self._suffix_budget:
            return text
        text = self._tokenizer.decode(ids[: self._suffix_budget]).rstrip("\ufffd")
        return text[: text.rfind("\n") + 1] or text

    def _earliest_start(self, before: TextBefore, text: str, room: int) -> int:
        """Where the last `room` tokens of the text begin: no earlier start can fit."""
        # From a step on, so that the same text is encoded from key to key.
        base = -before.skipped % self._step
        ids = self._encoder.encode(text[base:])
        if len(ids) <= room:
            return 0
        return len(text) - len(self._tokenizer.decode(ids[-room:])) if room > 0 else len(text)

    def _starts(
        self, before: TextBefore, begins: Callable[[int], bool] | None, earliest: int
    ) -> Iterator[tuple[int, int]]:
        """Where the text may start, and the row there: at the file's beginning, and once in each step."""
        text, skipped, step = before.text, before.skipped, self._step
        if not skipped:
            yield 0, before.row
        mark = (skipped // step + 1) * step
        while (start := mark - skipped) < len(text):
            mark += step
            if start + step < earliest:
                continue
            found = self._line_start(before, start, begins)
            # A line longer than a step is cut inside, at the mark.
            begin = start if found is None else found
            yield begin, before.row + text.count("\n", 0, begin)

    def _line_start(self, before: TextBefore, start: int, begins: Callable[[int], bool] | None) -> int | None:
        """The start of the step's line that stands furthest to the left, the first of them; None without a line.

        Such a line begins a statement, or even a definition, rather than the middle of one.
        """
        text, limit = before.text, start - 1 + self._step
        best: tuple[bool, int, int] | None = None
        newline = text.find("\n", start - 1, limit)
        row = before.row + text.count("\n", 0, newline + 1)
        while newline >= 0:
            begin = newline + 1
            newline = text.find("\n", begin, limit)
            line = text[begin : text.find("\n", begin) if text.find("\n", begin) >= 0 else len(text)]
            code = line.lstrip(" \t")
            at_edge = bool(code) and code[0] not in _CLOSERS and (begins is None or begins(row))
            rank = (not at_edge, len(line) - len(code), begin)
            best = rank if best is None or rank < best else best
            row += 1
        return None if best is None else best[2]

    def _token_edge(self, ids: list[int], lowest: int) -> int:
        """How many ids stay in the prompt; the rest is the smallest end to heal that is whole characters.

        lowest: so many must stay, for an engine needs a token to begin with.
        """
        pieces = self._tokenizer.token_bytes
        end = self._tokenizer.decode(ids[-HEAL_LIMIT:])[-HEAL_LIMIT:]
        unfinished = _UNFINISHED.search(end)
        wanted = len(unfinished[0].encode()) if unfinished else 1
        edge, tail = len(ids), b""
        while len(tail) < wanted or not _begins_a_character(tail):
            if edge <= lowest:
                return edge if _begins_a_character(tail) else len(ids)
            edge -= 1
            tail = pieces[ids[edge]] + tail
        return edge


def _in_characters(text: TextSettings) -> PromptSettings:
    """Settings of a prompt whose tokens are characters."""
    return PromptSettings(
        tokenizer=Path(),
        budget=text.budget * CHARACTERS_PER_TOKEN,
        suffix_budget=text.suffix_budget * CHARACTERS_PER_TOKEN,
        heal=text.heal,
        max_tokens=text.max_tokens,
    )


def _begins_a_character(data: bytes) -> bool:
    return bool(data) and data[0] & 0xC0 != 0x80
