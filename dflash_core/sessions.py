"""Sessions: one document's tokens with the keys and values of both models, reused across requests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dflash_core.draft import Draft
from dflash_core.errors import RequestError
from dflash_core.generic_target import GenericCache, GenericTarget
from dflash_core.kv_cache import CachedAttention, KVCache
from dflash_core.layers.packed_linear import is_packed
from dflash_core.target import Target

_WORTH_COPYING = 32
"""Tokens that another session must share beyond our own before its keys and values are copied."""


class Session:
    """Tokens whose keys and values are valid, position by position, in the target's cache AND in the draft's.

    The two always move together (decoding rule 4): a draft whose context lags behind its target's cache still runs,
    with acceptance fallen to nothing.
    """

    def __init__(self, target: Target, draft: Draft | None, context: int) -> None:
        # A block may start at the last position of the context, so there is room for one more block behind it.
        room = context + (draft.spec.block_size if draft else 1)
        self.context = context
        self.tokens: list[int] = []
        self.device = target.device
        self.target_cache: Any = (
            target.new_cache(room)
            if isinstance(target, GenericTarget)
            else KVCache(target.spec.layers, 1, room, [layer.device for layer in target.layers], target.dtype)
        )
        # Packed products round activations: unlike in fp32, what differs in a last bit would differ in the text.
        self._least_rows = draft.spec.block_size if draft and is_packed(target) else 1
        self.draft_cache = KVCache(draft.spec.layers, 1, room, target.device, target.dtype) if draft else None
        self.id: str | None = None
        self.busy = False
        self.last_used = 0

    @property
    def length(self) -> int:
        """Valid positions, 0 .. length - 1; also the position where the next anchor stands."""
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        return int(self.target_cache.nbytes) + (self.draft_cache.nbytes if self.draft_cache else 0)

    def next_positions(self, count: int) -> Tensor:
        """Positions of the next `count` rows, [1, count]."""
        return torch.arange(self.length, self.length + count, device=self.device)[None]

    def target_attention(self, positions: Tensor) -> CachedAttention | GenericCache:
        if isinstance(self.target_cache, GenericCache):
            return self.target_cache
        return CachedAttention(self.target_cache, positions, self.length + positions.shape[1], self._least_rows)

    def draft_attention(self, positions: Tensor) -> CachedAttention:
        assert self.draft_cache is not None
        return CachedAttention(self.draft_cache, positions, self.length + positions.shape[1])

    def commit(self, tokens: Sequence[int]) -> None:
        """These tokens' keys and values were just written from `length` on, and they are the text."""
        self.tokens.extend(tokens)

    def rewind(self, length: int) -> None:
        """Forgets what lies at `length` and beyond. Nothing is erased: it is masked until it is overwritten."""
        del self.tokens[length:]

    def shared_prefix(self, prompt: Sequence[int]) -> int:
        """Leading tokens that this session shares with a prompt."""
        for n, (mine, theirs) in enumerate(zip(self.tokens, prompt, strict=False)):
            if mine != theirs:
                return n
        return min(len(self.tokens), len(prompt))

    def take_over(self, other: Session, length: int) -> None:
        """Copies the first `length` positions of both caches from another session."""
        self.target_cache.copy_prefix(other.target_cache, length)
        if self.draft_cache and other.draft_cache:
            self.draft_cache.copy_prefix(other.draft_cache, length)
        self.tokens = other.tokens[:length]


class SessionPool:
    """A fixed number of sessions; the least recently used one makes room."""

    def __init__(self, target: Target, draft: Draft | None, *, context: int, sessions: int) -> None:
        self.context = context
        self._sessions = [Session(target, draft, context) for _ in range(sessions)]
        self._clock = itertools.count(1)

    @property
    def nbytes(self) -> int:
        return sum(session.nbytes for session in self._sessions)

    @property
    def count(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Lets go of every session, whoever uses it."""
        self._sessions = []

    def has_free(self) -> bool:
        return not all(session.busy for session in self._sessions)

    def acquire(self, session_id: str | None, prompt: Sequence[int]) -> Session:
        """A free session, rewound to what it shares with the prompt, less the last token.

        The last token of a prompt is never taken from the cache: it is the anchor of the first round.
        """
        free = [session for session in self._sessions if not session.busy]
        wanted = prompt[:-1]
        own = [session for session in free if session_id is not None and session.id == session_id]
        session = own[0] if own else min(free, key=lambda s: s.last_used)
        shared = session.shared_prefix(wanted)
        longest, best = max(((s.shared_prefix(wanted), s) for s in self._sessions), key=lambda found: found[0])
        if longest >= shared + _WORTH_COPYING:
            shared = longest
            session.take_over(best, shared)
        session.rewind(shared)
        session.id = session_id
        session.busy = True
        session.last_used = next(self._clock)
        return session

    def release(self, session: Session) -> None:
        session.busy = False
        session.last_used = next(self._clock)

    def check(self, prompt_tokens: int, because: str = "") -> None:
        """Raises RequestError for a prompt that leaves no room to generate; because: why the context is so short."""
        if prompt_tokens >= self.context:
            reason = f" ({because})" if because else ""
            raise RequestError(f"the prompt has {prompt_tokens} tokens, the context holds {self.context}{reason}")
