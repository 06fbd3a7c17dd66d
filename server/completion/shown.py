"""The text that a document was last shown, and what has become of it since."""

from __future__ import annotations

from dataclasses import dataclass, replace

from server.completion.result import Finish
from server.completion.spot import Spot


@dataclass(frozen=True)
class Shown:
    """`text` (with `\\n` line ends) as it is shown at `spot`; finish and reason of the answer that brought it.

    grows: it is no answer yet, and more may come.
    """

    spot: Spot
    text: str
    finish: Finish
    reason: str
    grows: bool = False

    def typed_through(self, spot: Spot) -> Shown | None:
        """What is left to show at a spot to which the user has typed or accepted a part of the text.

        `text` is "" when all of it was. None when something else was typed.
        """
        typed = self.spot.typed_until(spot)
        if typed is None or not self.text.startswith(typed):
            return None
        return replace(self, spot=spot, text=self.text[len(typed) :])
