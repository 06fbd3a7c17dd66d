"""The policy drafts where measured cost and acceptance say that it pays, and finds back when either changes."""

from __future__ import annotations

from dflash_core.policy import DraftPolicy


def run(policy: DraftPolicy, costs: dict[int, float], right: int, rounds: int) -> list[int]:
    """Rounds in which the first `right` drafted rows are right; returns the widths that were chosen."""
    chosen = []
    for _ in range(rounds):
        width = policy.width(8)
        policy.observe(width, min(right, width - 1), costs[width])
        chosen.append(width)
    return chosen


CHEAP = {1: 10.0, 2: 12.0, 4: 13.0, 8: 15.0}
DEAR = {1: 10.0, 2: 19.0, 4: 38.0, 8: 76.0}


def calibrated(costs: dict[int, float]) -> DraftPolicy:
    policy = DraftPolicy(8)
    for width, cost in costs.items():
        policy.observe(width, 0, cost)
    policy.acceptance = [0.7] * 7
    return policy


def test_a_cheap_block_is_verified_whole_and_a_dear_one_not_at_all() -> None:
    assert set(run(calibrated(CHEAP), CHEAP, right=5, rounds=50)) == {8}
    assert run(calibrated(DEAR), DEAR, right=0, rounds=80)[40:].count(1) > 35


def test_it_narrows_where_later_rows_are_never_right() -> None:
    costs = {1: 10.0, 2: 12.0, 4: 18.0, 8: 40.0}
    assert run(calibrated(costs), costs, right=1, rounds=100)[-1] == 2


def test_one_round_beside_a_busy_neighbour_does_not_turn_the_draft_off() -> None:
    policy = calibrated(CHEAP)
    run(policy, CHEAP, right=5, rounds=5)
    policy.observe(8, 5, 900.0)
    assert policy.width(8) == 8


def test_a_draft_that_was_off_is_tried_again_and_comes_back() -> None:
    policy = calibrated(CHEAP)
    run(policy, CHEAP, right=0, rounds=200)
    assert policy.width(8) in (1, 2)
    assert 8 in run(policy, CHEAP, right=7, rounds=300)[-10:]


def test_the_width_never_passes_the_limit() -> None:
    policy = calibrated(CHEAP)
    assert [policy.width(limit) for limit in (1, 2, 3, 5, 8)] == [1, 2, 2, 4, 8]
