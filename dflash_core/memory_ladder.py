"""What an engine gives up, rung by rung, when memory does not suffice (decoding rule 7 of the design)."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import torch

LEAST_CONTEXT = 256
"""Tokens; with less there is no completion worth waiting for."""

_WORDS = ("can't allocate memory", "out of memory", "not enough memory", "bad_alloc", "bad allocation", "ALLOC_FAILED")
"""How allocators say it that raise a plain RuntimeError: the CPU's, the drivers', the libraries under torch."""


@dataclass(frozen=True, kw_only=True)
class Provision:
    """What an engine holds beside the weights of its target. context: positions of one session."""

    sessions: int
    context: int
    draft: bool

    def smaller(self) -> Provision | None:
        """One rung down: first the cached sessions go, then the draft, then half the context. None at the foot."""
        if self.sessions > 1:
            return replace(self, sessions=1)
        if self.draft:
            return replace(self, draft=False)
        if self.context > LEAST_CONTEXT:
            return replace(self, context=max(LEAST_CONTEXT, self.context // 2))
        return None

    def shortfall(self, held: Provision) -> str:
        """What of this is not held, in one line; "" when all of it is."""
        given_up = []
        if held.sessions < self.sessions:
            given_up.append(f"{held.sessions} of {self.sessions} sessions kept")
        if self.draft and not held.draft:
            given_up.append("draft dropped")
        if held.context < self.context:
            given_up.append(f"context shrunk from {self.context} to {held.context} tokens")
        return f"out of memory: {', '.join(given_up)}" if given_up else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def release_memory() -> None:
    """Gives back what is no longer referred to. Not inside `except`: a traceback holds the tensors of what failed."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
