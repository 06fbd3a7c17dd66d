"""How far to generate ahead of the user: past the unit that is shown, and as if it had been accepted."""

from __future__ import annotations

from server.completion.generated import Generated
from server.completion.sound_text import Ending, sound_text
from server.completion.soundness import errors_around
from server.completion.spot import Spot

LINES_PAST = 4  # lines with text past the unit: what the next accept or key needs at once


def reaches_far_enough(generated: Generated) -> bool:
    """Whether what was generated past the unit is enough for the next requests."""
    end = generated.decision.end
    if end is None:
        return False
    if not generated.text[:end].strip():
        return True  # nothing is shown, so nothing is accepted
    *lines, _ = generated.text[end:].split("\n")
    return sum(bool(line.strip()) for line in lines) >= LINES_PAST


def may_be_accepted_whole(generated: Generated) -> bool:
    """Whether a unit is shown that nothing was generated past, though more may come."""
    end = generated.decision.end
    if end is None or generated.stream_finish not in ("eos", "length"):
        return False
    return bool(generated.text[:end].strip()) and not generated.text[end:].strip()


def spot_if_accepted(generated: Generated) -> Spot | None:
    """Where the cursor will be once the shown unit is accepted; None when it is not shown as it was generated."""
    unit = generated.text[: generated.decision.end]
    ending = Ending.of(generated.ending, generated.decision.reason)
    cursor = generated.spot.cursor
    if sound_text(unit, cursor, errors_around(cursor), ending) != unit:
        return None
    return generated.spot.with_accepted(unit)
