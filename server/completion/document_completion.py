"""What goes on for one document: at most one generation, whose text every new spot agrees with or ends.

a request agrees      -> it attaches to the generation, and supersedes the request before it
a request disagrees   -> the generation is aborted, and another begins
an edit disagrees     -> the generation is aborted at once
the request is cancelled, or its unit is complete -> `Generation` goes on for its grace, or past the unit

What follows a unit may be generated as if the unit had been accepted. That goes on as long as what is typed agrees
with the unit, though no request can attach to it yet.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from server.completion.generated import Generated
from server.completion.generation import Generation
from server.completion.request import Request
from server.completion.shown import Shown
from server.completion.spot import Spot


@dataclass
class Speculation:
    """What is done as if `unit` had been accepted: first found out what that is, then generated."""

    unit: Generated
    preparing: asyncio.Task[None]
    generation: Generation | None = None


class DocumentCompletion:
    """One open document of one window. `shown` is what the user sees, as far as the server can know."""

    def __init__(self) -> None:
        self.shown: Shown | None = None
        self.latest: Request | None = None  # a request that is not the latest was superseded
        self.alternative: Generation | None = None  # sampled for the last request, beside the greedy one
        self._running: Generation | None = None
        self._speculation: Speculation | None = None
        self._ending: list[Generation] = []  # aborted, and perhaps not ended yet

    @property
    def running(self) -> Generation | None:
        """The generation that has not ended, if any."""
        return None if self._running is None or self._running.ended else self._running

    def left(self, spot: Spot) -> Shown | None:
        """What is left at a spot of what is shown; None when something else was typed."""
        return None if self.shown is None else self.shown.typed_through(spot)

    def begin(self, generation: Generation) -> list[Generation]:
        """Make it the document's generation. Returns those before, which must have ended before it is sent."""
        self._abort_running()
        if self._speculation is not None and generation.speculative:
            self._speculation.generation = generation
        else:
            self._end_speculation()
        self._ending = [each for each in (*self._ending, self._running) if each is not None and not each.ended]
        self._running = generation
        return list(self._ending)

    def meet(self, spot: Spot) -> Generation | None:
        """A request at a spot: the generation that it can attach to. One that disagrees is aborted."""
        self._end_alternative()
        self._weigh_speculation([spot])
        running = self.running
        if running is None:
            return None
        running.supersede()
        # One that was not sent yet would only be late for a text that the newer request knows better.
        if running.generated.agrees(spot) and (running.is_sent or running.generated.typed(spot) == ""):
            return running
        if not self._is_speculated(running):
            self._abort_running()
        return None

    def edited(self, spots: list[Spot]) -> None:
        """The text has changed, and the cursor is probably at one of the spots."""
        self._end_alternative()
        self._weigh_speculation(spots)
        running = self.running
        if running is None or any(running.generated.agrees(spot) for spot in spots):
            return
        if not self._is_speculated(running):
            self._abort_running()

    def speculate(self, unit: Generated, preparing: asyncio.Task[None]) -> None:
        """Begin to go on as if the unit had been accepted, as long as what is typed agrees with it."""
        self._end_speculation()
        self._speculation = Speculation(unit, preparing)

    def has_speculated(self, unit: Generated) -> bool:
        """Whether what follows a unit is being found out, or was."""
        return self._speculation is not None and self._speculation.unit is unit

    def abort(self) -> None:
        """End what runs, within a round."""
        self._end_alternative()
        self._end_speculation()
        self._abort_running()

    def _weigh_speculation(self, spots: list[Spot]) -> None:
        """End it unless one of the spots is on the way through its unit, or through what follows that."""
        speculation = self._speculation
        if speculation is None:
            return
        texts = [speculation.unit] + ([speculation.generation.generated] if speculation.generation is not None else [])
        if not any(text.agrees(spot) for text in texts for spot in spots):
            self._end_speculation()

    def _is_speculated(self, generation: Generation) -> bool:
        return self._speculation is not None and self._speculation.generation is generation

    def _end_speculation(self) -> None:
        speculation, self._speculation = self._speculation, None
        if speculation is not None:
            speculation.preparing.cancel()
            if speculation.generation is not None and speculation.generation.speculative:
                speculation.generation.abort()  # unless a request waits for it by now

    def _abort_running(self) -> None:
        if self.running is not None:
            self.running.supersede()
            self.running.abort()

    def _end_alternative(self) -> None:
        if self.alternative is not None:
            self.alternative.supersede()
            self.alternative.abort()
            self.alternative = None
