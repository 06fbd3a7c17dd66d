"""Which rotary base a draft was trained with, found by trying: published MiMo drafts name two and do not say which.

With the wrong one the text stays right and next to nothing is accepted, so a few prompts tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dflash_core.engine import Engine
from dflash_core.generation import GenerationRequest

_TOKENS = 32
"""A prompt: at acceptance lengths of 1 and 4 that is 32 rounds against 8, which over a few prompts is no chance."""


@dataclass(frozen=True)
class RotaryTrial:
    """acceptance: tokens a round by base, all prompts together. kept: the base that the engine now drafts with."""

    acceptance: dict[float, float]
    kept: float

    def words(self) -> str:
        """For a person, one line."""
        tried = ", ".join(f"{base:g} gives {tokens:.2f} tokens a round" for base, tokens in self.acceptance.items())
        return f"rotary base of the draft: {tried}; {self.kept:g} is kept"


def try_rotary_bases(
    engine: Engine, bases: Sequence[float], prompts: Sequence[Sequence[int]], stop: Callable[[], bool] = lambda: False
) -> RotaryTrial | None:
    """Drafts the same prompts with every base and leaves the engine with the best; of equals the first.

    None when stopped, or when the engine had to give up its draft for want of memory: nothing was found out then.
    """
    acceptance: dict[float, float] = {}
    for base in bases:
        engine.use_rotary_base(base)
        rounds = committed = 0
        for prompt in prompts:
            generation = engine.submit(GenerationRequest(prompt=list(prompt), max_tokens=_TOKENS, draft="on"))
            while generation.finish is None:
                engine.step()
                if stop():
                    generation.cancel()
            rounds += generation.stats.rounds
            committed += generation.stats.accepted + generation.stats.rounds
        if stop() or not engine.has_draft or not rounds:
            return None
        acceptance[base] = committed / rounds
    kept = max(acceptance, key=lambda base: acceptance[base])
    engine.use_rotary_base(kept)
    return RotaryTrial(acceptance, kept)
