"""One request for a completion: it waits for a generation's text as far as it needs it, and makes its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from server.completion.boundaries.line_boundary import REPETITION
from server.completion.closing import closed, leaves_open, parses_worse
from server.completion.fit import Insertion, cursor_range, fit
from server.completion.generated import Generated, Piece, Reader
from server.completion.generation import Attachment, Generation, RoundText
from server.completion.measuring import Stopwatch
from server.completion.result import SUPERSEDED, CompletionResult, Finish, Stats, empty
from server.completion.shown import Shown
from server.completion.surroundings import Surroundings
from server.engine.protocol import DraftMode


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
    """A completion so far: the rounds of its generation, whose characters `start` to `settled` will be shown."""

    site: Surroundings
    rounds: tuple[RoundText, ...]
    start: int
    settled: int

    @property
    def text(self) -> str:
        """What will be shown, come what may, with `\n` line ends."""
        return self._generated[self.start : self.settled]

    @property
    def ends_line(self) -> bool:
        """Whether nothing more will be added to the last line of the text."""
        return self._generated[self.settled :].lstrip(" \t").startswith("\n")

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
        self._on_growth = on_growth

    async def follow(self, generation: Generation) -> Piece:
        """Wait for what a generation that agrees brings: complete, or without a finish when it is of no use.

        It is of no use when it turns out to disagree, ends too soon or fails. The finish is "cancelled" for a
        request that was superseded.
        """
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
            self._on_growth(Growth(self.site, tuple(generation.rounds), piece.start, piece.settled))
        return piece

    async def answer(self, generated: Generated, piece: Piece, stats: Stats) -> CompletionResult:
        """The answer that a piece of a generated text is. What parses is done in a thread."""
        text = generated.text[piece.start : piece.settled]
        if text and (_broke_off(piece) or leaves_open(text, self.site.cursor)):
            text = await asyncio.to_thread(self._closed, generated, piece, self._on_growth is not None)
        return self.answer_with(text, piece.finish or "cancelled", piece.reason, stats)

    def _closed(self, generated: Generated, piece: Piece, shown: bool) -> str:
        """The piece with what closes it where it broke off or would do harm; nothing of a loop that does harm still."""
        text = generated.text[piece.start : piece.settled]
        if not _broke_off(piece) and not parses_worse(text, self.site.cursor):
            return text
        text = self._with_closers(generated, piece, shown)
        if piece.reason == REPETITION and not shown and parses_worse(text, self.site.cursor):
            return ""  # a loop is no loss
        return text

    def _with_closers(self, generated: Generated, piece: Piece, shown: bool) -> str:
        """What was typed of a unit leaves open what the unit as a whole does."""
        cursor = generated.spot.cursor
        if piece.settled == generated.decision.end and self.site.cursor.after == cursor.after:
            unit = closed(generated.text[: piece.settled], cursor, shown=shown)
            if unit.startswith(generated.text[: piece.start]):
                return unit[piece.start :]
        return closed(generated.text[piece.start : piece.settled], self.site.cursor, shown=shown)

    def answer_with(self, text: str, finish: Finish, reason: str, stats: Stats) -> CompletionResult:
        """The answer that a text with `\\n` line ends is, or nothing."""
        if not text:
            return self.nothing(reason, stats, "cancelled" if finish == "cancelled" else "empty")
        self.shown = Shown(self.site.spot, text, finish, reason)
        insertion = self.fitted(text)
        return CompletionResult(insertion.text, insertion.range, finish, reason, stats)

    def fitted(self, text: str) -> Insertion:
        """A text with `\n` line ends as it goes into the document."""
        return fit(text, self.site)

    def nothing(self, reason: str, stats: Stats | None = None, finish: Finish = "empty") -> CompletionResult:
        """An answer with nothing to show, and why."""
        return empty(cursor_range(self.site), reason, stats, finish)


def _broke_off(piece: Piece) -> bool:
    return piece.finish in ("length", "eos") or piece.reason == REPETITION
