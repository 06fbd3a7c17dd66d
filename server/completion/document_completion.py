"""What goes on for one document: at most one generation, whose text every new spot agrees with or ends.

a request agrees      -> it attaches to the generation, and supersedes the request before it
a request disagrees   -> the generation is aborted, and another begins
an edit disagrees     -> the generation is aborted at once
the request is cancelled, or its unit is complete -> `Generation` goes on for its grace, or past the unit
"""

from __future__ import annotations

from server.completion.generation import Generation
from server.completion.shown import Shown
from server.completion.spot import Spot


class DocumentCompletion:
    """One open document of one window. `shown` is what the user sees, as far as the server can know."""

    def __init__(self) -> None:
        self.shown: Shown | None = None
        self.alternative: Generation | None = None  # sampled for the last request, beside the greedy one
        self._running: Generation | None = None
        self._ending: list[Generation] = []  # aborted, and perhaps not ended yet

    @property
    def running(self) -> Generation | None:
        """The generation that has not ended, if any."""
        return None if self._running is None or self._running.ended else self._running

    def begin(self, generation: Generation) -> list[Generation]:
        """Make it the document's generation. Returns those before, which must have ended before it is sent."""
        self._abort_running()
        self._ending = [each for each in (*self._ending, self._running) if each is not None and not each.ended]
        self._running = generation
        return list(self._ending)

    def meet(self, spot: Spot) -> Generation | None:
        """A request at a spot: the generation that it can attach to. One that disagrees is aborted."""
        self._end_alternative()
        running = self.running
        if running is None:
            return None
        running.supersede()
        # One that was not sent yet would only be late for a text that the newer request knows better.
        if running.generated.agrees(spot) and (running.is_sent or running.generated.typed(spot) == ""):
            return running
        self._abort_running()
        return None

    def edited(self, spots: list[Spot]) -> None:
        """The text has changed, and the cursor is probably at one of the spots."""
        self._end_alternative()
        running = self.running
        if running is not None and not any(running.generated.agrees(spot) for spot in spots):
            self._abort_running()

    def abort(self) -> None:
        """End what runs, within a round."""
        self._end_alternative()
        self._abort_running()

    def _abort_running(self) -> None:
        if self.running is not None:
            self.running.supersede()
            self.running.abort()

    def _end_alternative(self) -> None:
        if self.alternative is not None:
            self.alternative.supersede()
            self.alternative.abort()
            self.alternative = None
