"""How generations reach the engine: one after the other in a document, paced, and none that was overtaken."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace

from asyncio_throttle import Throttler

from server.completion.engine_link import EngineLink
from server.completion.generation import Generation
from server.completion.pacing import Pacing
from server.completion.spot import Spot
from server.context.prompt import Prompt
from server.engine.client import EngineClient
from server.engine.protocol import (
    ORDINARY,
    BadRequest,
    CompletionRequest,
    DraftMode,
    EngineError,
    EngineLoading,
    EngineStalled,
    EngineUnavailable,
)

# Nobody types faster, and what a client gone wild asks for is overtaken while it waits. One at a time, since
# the window slides: twenty a second would let twenty through at once and then hold the next for a second.
THROTTLED_S = 0.025
TEXT_MAX_TOKENS = 256  # for profiles that send text, which have no limit of their own

MakePrompt = Callable[[Spot], Awaitable[Prompt]]


@dataclass(frozen=True)
class Sampling:
    """How a text that is not the greedy one is drawn; behind all greedy ones."""

    seed: int
    temperature: float = 0.6
    top_p: float = 0.95


class Submission:
    """All generations of one window go through here to its engine."""

    def __init__(self, link: EngineLink) -> None:
        self.link = link
        self.pacing = Pacing()
        self._client_id = secrets.token_hex(8)
        self._throttler = Throttler(1, THROTTLED_S, retry_interval=0.005)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self,
        generation: Generation,
        client: EngineClient,
        make_prompt: MakePrompt,
        *,
        draft: DraftMode = "auto",
        sampling: Sampling | None = None,
        after: Sequence[Generation] = (),
        delay_s: float = 0.0,
    ) -> None:
        """Start a generation: it is sent when those before it have ended and `delay_s` is over."""

        async def work() -> None:
            if delay_s:
                await asyncio.sleep(delay_s)
            for before in after:
                await before.wait_ended()
            spot = generation.generated.spot
            prompt = await make_prompt(spot)
            request = self.request(spot, prompt, draft)
            if sampling is not None:
                request = replace(request, priority=ORDINARY, **asdict(sampling))
            if not generation.speculative:
                await self._throttler.acquire()
            try:
                await generation.read(client, request, prompt)
            except (EngineLoading, EngineUnavailable, EngineStalled) as error:
                await self._lost(client, error, broke_off=bool(generation.rounds))
                raise
            except EngineError as error:
                if self.link.is_shared and not isinstance(error, BadRequest):
                    await self.link.failed(client, error)
                raise
            self.link.succeeded()
            if generation.first_text_s is not None and not generation.speculative:
                self.pacing.first_text(generation.first_text_s)

        task = asyncio.get_running_loop().create_task(work(), name="generation")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        generation.start(task)

    def request(self, spot: Spot, prompt: Prompt, draft: DraftMode = "auto") -> CompletionRequest:
        """What is asked of the engine for a spot."""
        return CompletionRequest(
            prompt=prompt.content,
            max_tokens=prompt.max_tokens or TEXT_MAX_TOKENS,
            stop=prompt.stop,
            stop_token_ids=prompt.stop_ids,
            draft=draft,
            session=hashlib.sha256(spot.uri.encode()).hexdigest()[:16],
            client=self._client_id,
            heal=prompt.heal,
            chat=prompt.chat,
            joint=prompt.joint,
        )

    async def aclose(self) -> None:
        """End all generations."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _lost(self, client: EngineClient, error: EngineError, *, broke_off: bool) -> None:
        """The engine is not there, or says nothing: it is looked for again, and ended first if it hangs."""
        if self.link.is_shared:
            await self.link.failed(client, error)
            return
        if isinstance(error, EngineStalled):
            await self.link.stalled(client, str(error))
            return
        reason = error.health.reason if isinstance(error, EngineLoading) else str(error)
        await self.link.lost(client, reason, broke_off=broke_off)
