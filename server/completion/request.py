"""One request for a completion: it waits for a generation's text as far as it needs it, and makes its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from server.completion.boundaries.boundary import CursorText
from server.completion.fit import Insertion, cursor_range, fit, replaceable
from server.completion.generated import Generated, Piece, Reader
from server.completion.generation import Attachment, Generation, RoundText
from server.completion.measuring import Stopwatch
from server.completion.result import SUPERSEDED, CompletionResult, Finish, Stats, empty
from server.completion.shown import Shown
from server.completion.sound_text import WOULD_NOT_PARSE, Ending, SoundTexts, is_surely_kept, may_be_kept
from server.completion.soundness import errors_around
from server.completion.surroundings import Surroundings
from server.context.file_errors import FileErrors, Snapshot
from server.engine.protocol import DraftMode

_KNOWN = SoundTexts()


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """How one completion is made.

    exact_stats: generate nothing past the unit, and wait for the engine's own numbers, a round longer.
    raise_errors: raise an EngineError instead of answering with nothing and its text as the reason.
    explicit: the user asked for it, so it is made even where none would be offered.
    selected: text is selected.
    """

    draft: DraftMode = "auto"
    exact_stats: bool = False
    raise_errors: bool = False
    explicit: bool = True
    selected: bool = False


@dataclass(frozen=True)
class Growth:
    """A completion so far: the rounds of its generation, of whose characters `start` to `settled` are decided.

    file: the document at the site, which is made when it is asked for. answered: the request is about to be.
    """

    site: Surroundings
    rounds: tuple[RoundText, ...]
    start: int
    settled: int
    file: Callable[[], FileErrors | None] = lambda: None
    answered: bool = False

    @property
    def text(self) -> str:
        """What will be shown, come what may, with `\n` line ends."""
        return self._generated[self.start : self.settled]

    @property
    def ends_line(self) -> bool:
        """Whether nothing more will be added to the last line of the text."""
        return self._generated[self.settled :].lstrip(" \t").startswith("\n")

    async def may_be_kept(self) -> bool:
        """Whether the text may be shown: what is shown is never taken back, and some texts cannot be made whole.

        What takes time to parse is done in a thread.
        """
        if self.site.cursor.language.syntax is None:
            return True
        if is_surely_kept(self.text, self.site.cursor, self.file()):
            return True
        return await asyncio.to_thread(lambda: may_be_kept(self.text, self.site.cursor, self.file()))

    @property
    def _generated(self) -> str:
        return "".join(each.text for each in self.rounds)

    @property
    def insertion(self) -> Insertion:
        """The text as it goes into the document."""
        return fit(self.text, self.site)


class Request:
    """A request at a site, from its arrival to its answer."""

    def __init__(
        self, site: Surroundings, options: CompletionOptions, on_growth: Callable[[Growth], None] | None = None
    ) -> None:
        self.site = site
        self.options = options
        self.stopwatch = Stopwatch()
        self.shown: Shown | None = None  # by its answer
        self.snapshot: Snapshot | None = None  # of the whole document, where it is at hand
        self.told = ""  # what the user has seen growing
        self._on_growth = on_growth
        self._file_of_unit: Callable[[], FileErrors | None] = lambda: None

    async def follow(self, generation: Generation) -> Piece:
        """Wait for what a generation that agrees brings: complete, or without a finish when it is of no use.

        It is of no use when it turns out to disagree, ends too soon or fails. The finish is "cancelled" for a
        request that was superseded.
        """
        self._file_of_unit = generation.file
        typed = generation.generated.spot.typed_until(self.site.spot)
        assert typed is not None, "the generation does not agree"
        reader = Reader(self.site.spot, len(typed))
        piece = self._read(reader, generation)
        if piece.finish is not None:
            return piece
        attachment = Attachment(asyncio.Event())
        generation.attach(attachment)
        try:
            while piece.finish is None and not generation.ended:
                await attachment.changed.wait()
                attachment.changed.clear()
                if attachment.superseded:
                    return Piece(0, 0, "cancelled", SUPERSEDED)
                if not generation.generated.agrees(self.site.spot):
                    return Piece(0, 0)  # what was typed ahead of the text is not what came
                piece = self._read(reader, generation)
        finally:
            generation.detach(attachment)
        if self.options.exact_stats:
            await generation.wait_ended()
        return piece

    def _read(self, reader: Reader, generation: Generation) -> Piece:
        piece = reader.read(generation.generated)
        if piece.settled > piece.start:
            self.stopwatch.text_came()
        if self._on_growth is not None and generation.rounds:
            answered = piece.finish is not None and not self.options.explicit
            rounds = tuple(generation.rounds)
            self._on_growth(Growth(self.site, rounds, piece.start, piece.settled, self.file, answered))
        return piece

    async def answer(self, generated: Generated, piece: Piece, stats: Stats) -> CompletionResult:
        """The answer that a piece of a generated text is. What parses is done in a thread."""
        text, reason, insertion = generated.text[piece.start : piece.settled], piece.reason, None
        if text:
            at_once = self._text_at_once(generated, piece)
            if at_once is not None:
                text = at_once
            elif self.site.cursor.language.syntax is None:
                text = self._sound_text(generated, piece)
            else:
                text, insertion = await asyncio.to_thread(self._sound, generated, piece)
            reason = reason if text else WOULD_NOT_PARSE
        return self.answer_with(text, piece.finish or "cancelled", reason, stats, insertion)

    def _sound(self, generated: Generated, piece: Piece) -> tuple[str, Insertion | None]:
        """What is offered of the piece, and where it goes."""
        text = self._sound_text(generated, piece)
        return text, fit(text, self.site, self.file) if text else None

    def _text_at_once(self, generated: Generated, piece: Piece) -> str | None:
        """What is offered of the piece where that takes no time: its unit was answered with, or is sound as it is."""
        if piece.settled != generated.decision.end or self.site.cursor.after != generated.spot.cursor.after:
            return None
        whole, cursor = generated.text[: piece.settled], generated.spot.cursor
        unit = _KNOWN.at_once(whole, cursor, self._file_of_unit(), _ending_of(piece))
        if unit is None or not unit.startswith(generated.text[: piece.start] + self.told):
            return None
        text = unit[piece.start :]
        return text if len(replaceable(text, self.site.cursor)) == 1 else None

    def _sound_text(self, generated: Generated, piece: Piece) -> str:
        """What of a unit was typed already, the unit as a whole decides about."""
        text, cursor, ending = generated.text, generated.spot.cursor, _ending_of(piece)
        if piece.settled == generated.decision.end and self.site.cursor.after == cursor.after:
            typed = text[: piece.start]
            of_unit = self._file_of_unit
            unit = _KNOWN.find(text[: piece.settled], cursor, lambda: of_unit() or self.file(typed, cursor), ending)
            if unit.startswith(typed + self.told):
                return unit[piece.start :]
        rest = text[piece.start : piece.settled]
        return _KNOWN.find(rest, self.site.cursor, self.file, ending, self.told)

    def file(self, typed: str = "", cursor: CursorText | None = None) -> FileErrors | None:
        """The document as it was before `typed` was, or the windows around the cursor that was there."""
        whole = None if self.snapshot is None else self.snapshot.errors
        if whole is not None and typed:
            whole = whole.before_typed(typed)
        return whole or errors_around(cursor or self.site.cursor)

    def answer_with(
        self, text: str, finish: Finish, reason: str, stats: Stats, insertion: Insertion | None = None
    ) -> CompletionResult:
        """The answer that a text with `\\n` line ends is, or nothing."""
        if not text:
            return self.nothing(reason, stats, "cancelled" if finish == "cancelled" else "empty")
        self.shown = Shown(self.site.spot, text, finish, reason)
        insertion = insertion or self.fitted(text)
        return CompletionResult(insertion.text, insertion.range, finish, reason, stats)

    def fitted(self, text: str) -> Insertion:
        """A text with `\n` line ends as it goes into the document."""
        return fit(text, self.site)

    def nothing(self, reason: str, stats: Stats | None = None, finish: Finish = "empty") -> CompletionResult:
        """An answer with nothing to show, and why."""
        return empty(cursor_range(self.site), reason, stats, finish)


def _ending_of(piece: Piece) -> Ending:
    return Ending.of(piece.finish, piece.reason)
