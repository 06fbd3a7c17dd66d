"""What the scenarios must come to on two processor cores, beside what they came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Report = dict[str, Any]
GRACE_ROUNDS = 4  # of 5 ms, within the 20 ms that a cancelled generation may go on


@dataclass(frozen=True)
class Goal:
    """A figure of a report that must not be above `most`."""

    what: str
    unit: str
    most: float
    figure: Callable[[Report], float]


GOALS = (
    Goal("own share of a request, p50", "ms", 4, lambda report: report["own_share"]["p50"]),
    Goal("own share of a request, p95", "ms", 10, lambda report: report["own_share"]["p95"]),
    Goal("typed-through answer, p95", "ms", 5, lambda report: report["known"]["shown"]["p95"]),
    Goal("cached answer, p95", "ms", 5, lambda report: report["known"]["cache"]["p95"]),
    Goal("$/cancelRequest to its answer, p95", "ms", 5, lambda report: report["cancel"]["p95"]),
    # One more may have ended while they were counted.
    Goal("engine after an edit and a cancel", "rounds", 2, lambda report: _rounds(report, "after_an_edit")),
    Goal("engine after a cancel alone", "rounds", GRACE_ROUNDS + 2, lambda report: _rounds(report, "alone")),
    Goal("50 matching keys: generations", "", 2, lambda report: report["matching"]["generations"]),
    Goal("50 matching keys: empty after the first", "", 0, lambda report: report["matching"]["empty_after_first"]),
    Goal("50 disagreeing keys: at once running", "", 1, lambda report: report["disagreeing"]["most_running"]),
    Goal("50 disagreeing keys: not all aborted", "", 0, lambda report: not report["disagreeing"]["all_were_aborted"]),
    Goal("50 disagreeing keys: wrong last answers", "", 0, lambda report: not report["disagreeing"]["last_is_right"]),
    Goal("4 windows: worst p95 by a single one's", "times", 2.5, lambda report: report["windows"]["ratio"]),
)


def _rounds(report: Report, kind: str) -> float:
    return float(report["cancel"]["most_rounds"][kind])


def goals_met(report: Report) -> list[dict[str, Any]]:
    """Each goal with its figure, and whether it was reached."""
    found = [(goal, round(float(goal.figure(report)), 2)) for goal in GOALS]
    return [
        {"what": goal.what, "unit": goal.unit, "figure": figure, "at_most": goal.most, "met": figure <= goal.most}
        for goal, figure in found
    ]
