"""How far to generate ahead of the user: past the unit that is shown, and as if it had been accepted."""

from __future__ import annotations

from server.completion.closing import closed
from server.completion.generated import Generated
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


def spot_if_accepted(generated: Generated) -> Spot | None:
    """Where the cursor will be once the shown unit is accepted, if nothing was generated past it; else None."""
    end = generated.decision.end
    if end is None or not generated.text[:end].strip() or generated.stream_finish not in ("eos", "length"):
        return None
    unit = generated.text[:end]
    if generated.text[end:].strip() or closed(unit, generated.spot.cursor, shown=True) != unit:
        return None  # what is accepted will not be what was generated
    return generated.spot.with_accepted(unit)
