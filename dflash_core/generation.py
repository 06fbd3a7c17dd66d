"""One request on its way through the engine: prefill in chunks, then rounds, then a reason for its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from dflash_core.block_decoder import BlockDecoder, Round
from dflash_core.errors import DFlashError, RequestError
from dflash_core.policy import DraftPolicy
from dflash_core.sampling import Sampling, choose
from dflash_core.sessions import Session
from dflash_core.vocabulary import Healing, Vocabulary

LONGEST_HEAL = 1024
"""Bytes; a prompt is cut back by a word or some blanks, never by more."""

Finish = Literal["eos", "stop", "length", "cancelled", "error"]


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """What to generate.

    prompt: token ids, at least one. max_tokens: 0 only prefills. stop_ids end the text and are not part of it.
    draft "on" drafts every round, "off" never, "auto" leaves it to the policy; block_size caps the rows verified.
    session: requests of one document share keys and values. heal: bytes the first tokens must spell, left out of the
    answer. priority: 0 first, 2 last.
    """

    prompt: Sequence[int]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop_ids: frozenset[int] | Sequence[int] = ()
    draft: Literal["auto", "on", "off"] = "auto"
    block_size: int | None = None
    session: str | None = None
    heal: bytes = b""
    priority: int = 0

    def __post_init__(self) -> None:
        if not self.prompt:
            raise RequestError("the prompt is empty")
        if self.max_tokens < 0:
            raise RequestError(f"max_tokens must not be negative, got {self.max_tokens}")
        if not 0 <= self.temperature <= 10:
            raise RequestError(f"temperature must be between 0 and 10, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if len(self.heal) > LONGEST_HEAL:
            raise RequestError(f"the text to heal has {len(self.heal)} bytes, at most {LONGEST_HEAL} are healed")
        if self.block_size is not None and self.block_size < 1:
            raise RequestError(f"block_size must be at least 1, got {self.block_size}")


@dataclass
class GenerationStats:
    """Times in milliseconds. Rounds do not count the steps that spell healed text."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prefill_tokens: int = 0
    reused_tokens: int = 0
    healed_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0

    @property
    def acceptance_length(self) -> float:
        """Committed tokens a round, the bonus token included; 0 before the first round."""
        return (self.accepted + self.rounds) / self.rounds if self.rounds else 0.0


@dataclass(frozen=True)
class Block:
    """What one round gave: its committed tokens (accepted ones first, the bonus token last) and their text.

    A stop token and text that was healed are left out; `accepted` of the `drafted` tokens were right.
    """

    tokens: list[int]
    text: bytes
    accepted: int
    drafted: int


@dataclass
class Generation:
    """A request and its state. `cancel` and `priority` may be used from any thread, the rest by the engine's own."""

    request: GenerationRequest
    number: int
    priority: int = 0
    finish: Finish | None = None
    error: str = ""
    stats: GenerationStats = field(default_factory=GenerationStats)
    session: Session | None = None
    # In units of the engine: when it ran last, got its session, and began to wait for one.
    last_run: int = 0
    held_since: int = 0
    waits_since: int = 0
    _cancelled: bool = False
    _healing: Healing | None = None
    _tokens: list[int] = field(default_factory=list)
    """The prompt and all that was chosen after it; the last one is the anchor of the next round."""

    def cancel(self) -> None:
        """Ends this generation before its next unit."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    @property
    def tokens(self) -> Sequence[int]:
        """The prompt and what was generated so far: what a session must hold, the last one excepted, to go on."""
        return self._tokens or self.request.prompt

    def begin(self, session: Session, vocabulary: Vocabulary) -> None:
        """Takes a session that is already rewound to what it shares with `tokens`."""
        self.session = session
        if self._tokens:  # it was suspended and goes on
            return
        self._tokens = list(self.request.prompt)
        self.stats.prompt_tokens = len(self.request.prompt)
        self.stats.reused_tokens = session.length
        if self.request.heal:
            self._healing = Healing(self.request.heal, vocabulary)

    def suspend(self) -> Session:
        """Gives its session up to a more urgent request; what the session loses is prefilled again later."""
        assert self.session is not None
        session, self.session = self.session, None
        return session

    def run_unit(self, decoder: BlockDecoder, policy: DraftPolicy, vocabulary: Vocabulary) -> Block | None:
        """One prefill chunk or one round; sets `finish` with the last one."""
        assert self.session is not None
        started = time.perf_counter()
        # The last token is the anchor of the next round, so it is not prefilled.
        missing = self._tokens[self.session.length : -1]
        if missing:
            chunk = missing[: decoder.prefill_chunk]
            decoder.prefill(self.session, chunk)
            self.stats.prefill_tokens += len(chunk)
            self.stats.prefill_ms += _since(started)
            if self.request.max_tokens == 0 and len(chunk) == len(missing):
                self.finish = "length"
            return None
        if self.request.max_tokens == 0:
            self.finish = "length"
            return None
        healing = self._healing is not None and not self._healing.done
        block = self._heal(decoder) if healing else self._round(decoder, policy, vocabulary)
        self.stats.decode_ms += _since(started)
        return block

    def _round(self, decoder: BlockDecoder, policy: DraftPolicy, vocabulary: Vocabulary) -> Block:
        assert self.session is not None
        width = self._width(decoder, policy)
        started = policy.clock()
        choose = self._choose if self.request.temperature > 0 else None
        done = decoder.round(self.session, self._tokens[-1], width, choose)
        policy.observe(width, done.accepted, (policy.clock() - started) * 1000)
        self.stats.rounds += 1
        self.stats.drafted += done.drafted
        self.stats.accepted += done.accepted
        return self._commit(done, vocabulary)

    def _width(self, decoder: BlockDecoder, policy: DraftPolicy) -> int:
        limit = min(self._remaining(), decoder.block_size, self.request.block_size or decoder.block_size)
        if self.request.draft == "off" or limit < 2:
            return 1
        return limit if self.request.draft == "on" else policy.width(limit)

    def _remaining(self) -> int:
        assert self.session is not None
        room = self.session.context - self.session.length
        return min(self.request.max_tokens - self.stats.completion_tokens, room)

    def _heal(self, decoder: BlockDecoder) -> Block | None:
        """A step of width 1 whose choice is held to the text that must be spelled first."""
        assert self.session is not None and self._healing is not None
        allowed = torch.tensor(self._healing.allowed(), device=decoder.target.device)
        if not len(allowed):
            raise DFlashError("the text to heal cannot be spelled with this tokenizer")

        def constrained(logits: Tensor, positions: Tensor) -> Tensor:
            return allowed[self._choose(logits[..., allowed], positions)]

        done = decoder.round(self.session, self._tokens[-1], 1, constrained)
        self._tokens += done.tokens
        self.stats.healed_tokens += 1
        beyond = self._healing.advance(done.tokens[0])
        if beyond:  # this token is partly answer
            self.stats.completion_tokens += 1
        self._end_if_full()
        return Block(done.tokens, beyond, 0, 0) if beyond else None

    def _commit(self, done: Round, vocabulary: Vocabulary) -> Block:
        stop = next((i for i, token in enumerate(done.tokens) if token in self.request.stop_ids), None)
        tokens = done.tokens if stop is None else done.tokens[:stop]
        self._tokens += done.tokens
        self.stats.completion_tokens += len(tokens)
        if stop is not None:
            self.finish = "eos"
        else:
            self._end_if_full()
        return Block(tokens, vocabulary.text(tokens), min(done.accepted, len(tokens)), done.drafted)

    def _end_if_full(self) -> None:
        if self._remaining() < 1:
            self.finish = "length"

    def _choose(self, logits: Tensor, positions: Tensor) -> Tensor:
        request = self.request
        return choose(logits, positions, Sampling(request.temperature, request.top_p, request.seed))


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
