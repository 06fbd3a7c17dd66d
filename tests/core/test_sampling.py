"""Sampling is the target's own distribution, and depends on seed and position alone."""

from __future__ import annotations

import torch

from dflash_core.sampling import Sampling, choose


def test_samples_follow_the_distribution_of_temperature_and_top_p() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
    draws = 20_000
    sampling = Sampling(temperature=0.8, top_p=0.9, seed=5)
    chosen = choose(logits.expand(1, draws, -1), torch.arange(draws)[None], sampling)
    probabilities = (logits / 0.8).softmax(-1)
    kept = probabilities.cumsum(-1) - probabilities < 0.9
    expected = torch.where(kept, probabilities, 0.0)
    expected /= expected.sum()
    observed = torch.bincount(chosen[0], minlength=6) / draws
    assert observed[~kept].sum() == 0
    # Chi-square with 3 degrees of freedom: 16.3 is passed by chance once in a thousand; the seed is fixed.
    chi = (draws * (observed - expected)[kept] ** 2 / expected[kept]).sum()
    assert chi < 16.3


def test_a_choice_does_not_depend_on_how_many_rows_are_chosen_at_once() -> None:
    logits = torch.randn(1, 8, 50, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(30, 38)[None]
    sampling = Sampling(temperature=1.0, seed=9)
    whole = choose(logits, positions, sampling)
    single = [choose(logits[:, i : i + 1], positions[:, i : i + 1], sampling) for i in range(8)]
    assert torch.equal(whole, torch.cat(single, dim=1))
