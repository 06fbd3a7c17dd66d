"""Text that was generated from one spot, and what of it is shown to a request that came later.

A request may come from further on: what was typed since is the beginning of the text, and the rest is its
answer. While the text's own unit lasts, the decision of where it ends stands, so that nothing that is shown
ever changes; behind it, a boundary of the request's own decides about what was generated past the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from server.completion.boundaries.boundary import Boundary, Decision
from server.completion.boundaries.choice import boundary_for
from server.completion.result import Finish
from server.completion.spot import Spot

AHEAD = 8  # characters; with more of them, what was typed is worth a generation of its own


@dataclass(frozen=True)
class Generated:
    """`text` as generated at `spot`, so far; it may go on past the unit that ends at `decision.end`.

    decision: of the boundary at the spot. ending: how the unit ended, None while it grows.
    stream_finish: how the engine's stream ended, None while more text may come.
    """

    spot: Spot
    text: str = ""
    decision: Decision = field(default_factory=Decision)
    ending: Finish | None = None
    stream_finish: Finish | None = None

    def typed(self, spot: Spot) -> str | None:
        """What was typed to get to `spot`, when that is how this text begins; else None."""
        length = spot.offset - self.spot.offset
        # Comparing the windows costs more than the answer is mostly worth: a spot has many texts behind it.
        if not 0 <= length <= len(self.text) or not spot.before.text.endswith(self.text[:length]):
            return None
        return self.spot.typed_until(spot)

    def agrees(self, spot: Spot) -> bool:
        """Whether this text, as far as it has come, goes with what was typed to get to `spot`.

        Keys may be a little ahead of the text: what is on its way may turn out to be just what was typed.
        """
        typed = self.spot.typed_until(spot)
        if typed is None:
            return False
        if self.text.startswith(typed):
            return True
        may_come = self.stream_finish is None and len(typed) <= len(self.text) + AHEAD
        return may_come and typed.startswith(self.text)


@dataclass(frozen=True)
class Piece:
    """What a request sees of a generated text: characters `start` to `settled` of it will be shown.

    finish: how the piece ended, None while it is not complete. reason: why there.
    """

    start: int
    settled: int
    finish: Finish | None = None
    reason: str = ""


class Reader:
    """Reads one generated text, as it grows, for the request at one spot."""

    def __init__(self, spot: Spot, typed: int) -> None:
        """typed: so many characters at the text's beginning have been typed by now."""
        self._spot = spot
        self._typed = typed
        self._own: Boundary | None = None

    def read(self, generated: Generated) -> Piece:
        """The piece as it now is; its settled part never shrinks.

        When the stream has ended and the piece is still not complete, the text does not reach far enough.
        """
        end = generated.decision.end
        if len(generated.text) < self._typed:
            return Piece(self._typed, self._typed)
        if end is None or self._typed < end or self._typed == 0:
            return self._piece(0, generated.decision, generated.ending)
        rest = generated.text[self._typed :]
        if not rest.strip():
            return Piece(self._typed, self._typed)  # nothing to show yet, and a boundary costs a parse
        own = self._own = self._own or boundary_for(self._spot.cursor, single_line=self._spot.single_line)
        decision = own.feed(rest)
        ending: Finish = "boundary"
        # Behind a text that ended with its unit there may be more: that is for the engine to say.
        if decision.end is None and generated.stream_finish == "eos" and rest.strip():
            decision = own.finish(rest)
            ending = "eos"
        return self._piece(self._typed, decision, ending)

    def _piece(self, origin: int, decision: Decision, ending: Finish | None) -> Piece:
        if decision.end is None or ending is None:
            return Piece(self._typed, max(self._typed, origin + decision.settled))
        settled = origin + decision.end
        if settled <= self._typed:
            return Piece(self._typed, self._typed, "empty", decision.reason)
        return Piece(self._typed, settled, ending, decision.reason if ending == "boundary" else ending)
