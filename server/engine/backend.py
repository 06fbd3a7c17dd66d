"""What the app asks of a backend: the replay backend and the resident one both keep this contract."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from server.engine.protocol import CompletionRequest, EngineHealth


@dataclass(frozen=True)
class Statistics:
    """Numbers of one generation so far; times in milliseconds."""

    rounds: int = 0
    acceptance_length: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prefill_tokens: int = 0
    reused_tokens: int = 0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0


@dataclass(frozen=True)
class Round:
    """What one round committed. `data` holds its text as UTF-8 bytes, which may end inside a character."""

    data: bytes
    statistics: Statistics
    accepted: int = 0
    drafted: int = 0
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ending:
    """How a generation ended: "eos", "stop", "length", "cancelled", or "error" with one line in `reason`."""

    finish: str
    statistics: Statistics = field(default_factory=Statistics)
    reason: str = ""


class Handle(Protocol):
    """One submitted generation, used from the event loop only."""

    async def next_event(self) -> Round | Ending:
        """The next round, in order; after the last one exactly one Ending. May be cancelled while waiting."""
        ...

    def cancel(self) -> None:
        """End it before the next round. Harmless when it has ended."""
        ...

    def set_priority(self, priority: int) -> None:
        """Change its place in the queue, from the next round on."""
        ...


class Backend(Protocol):
    """An engine without HTTP."""

    name: str  # the model's id in GET /v1/models

    def start(self) -> None:
        """Begin to load. Called once, inside the running event loop; returns at once."""
        ...

    def stop(self) -> None:
        """Cancel everything and end within one round."""
        ...

    def health(self) -> EngineHealth:
        """State, progress and reason of now."""
        ...

    def units_done(self) -> int:
        """Grows with each unit of work for anybody: an engine that stopped growing is stuck."""
        ...

    def submit(self, request: CompletionRequest) -> Handle:
        """Queue a generation. Raises BadRequest, one line, for what this engine cannot do."""
        ...


class QueuedHandle:
    """The event queue that both backends' handles share; `put` is for the event loop's thread."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Round | Ending] = asyncio.Queue()

    def put(self, event: Round | Ending) -> None:
        self._events.put_nowait(event)

    async def next_event(self) -> Round | Ending:
        return await self._events.get()
