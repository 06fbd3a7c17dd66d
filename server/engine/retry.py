"""Asks again when an engine could not begin to answer: a few times, with growing, jittered pauses, as it asks for.

Only what failed before the first byte of an answer is asked again, and only while somebody at a keyboard would
still wait for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from server.engine.protocol import EngineBusy, EngineUnavailable

ATTEMPTS = 3
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
PATIENCE_S = 2.0  # a longer Retry-After is left to the circuit breaker
JITTER = 0.25  # of a Retry-After, or all clients that were told the same come back at once

Answer = TypeVar("Answer")
_backoff = wait_random_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)
_jitter = wait_random_exponential(multiplier=JITTER, max=JITTER)


async def with_retries(ask: Callable[[], Awaitable[Answer]], retried: Callable[[], None]) -> Answer:
    """What `ask` answers; `retried` hears of each further try. Raises the last error."""
    tries = AsyncRetrying(
        stop=stop_after_attempt(ATTEMPTS),
        wait=_pause,
        retry=retry_if_exception(_may_pass),
        before_sleep=lambda state: retried(),
        reraise=True,
    )
    return await tries(ask)


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, EngineBusy):
        return (error.retry_after_s or 0.0) <= PATIENCE_S
    return isinstance(error, EngineUnavailable)


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, EngineBusy) and error.retry_after_s is not None:
        return error.retry_after_s * (1 + _jitter(state))
    return _backoff(state)
