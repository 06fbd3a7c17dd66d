"""One generation: an engine's stream, read to the boundary of the unit and, where that is wanted, past it.

    waiting -> growing -> past the unit -> ended
       any state, when nobody wants it -> aborted, which ends it as well

Requests attach to it and are woken by each change; it knows nothing else about them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from server.completion.boundaries.boundary import Decision
from server.completion.boundaries.line_boundary import NO_TEXT
from server.completion.closing import closings_ready
from server.completion.cut import Cut
from server.completion.generated import Generated
from server.completion.result import Finish
from server.completion.speculation import reaches_far_enough
from server.completion.spot import Spot
from server.context.file_errors import FileErrors
from server.context.prompt import Prompt, PromptBuilder
from server.engine.client import CompletionStream, EngineClient
from server.engine.protocol import (
    INTERACTIVE,
    WARM_UP,
    CompletionChunk,
    CompletionRequest,
    CompletionSummary,
    EngineError,
)

SUMMARY_S = 2.0  # how long the engine may take to end a generation that was cancelled
# A generation that nobody waits for goes on so long, since the next key may agree with it. It must end within 20 ms
# and a round; the rest of them is for the way to the engine.
GRACE_S = 0.008

ANSWER_TURNS = 3  # of the event loop: the waiting request wakes, its handler ends, its answer is written

NOT_RETYPED = "the answer does not go on with what was typed"

# How an engine's stream ends, in the words of a result.
_FINISHES: dict[str, Finish] = {"eos": "eos", "stop": "eos", "length": "length", "cancelled": "cancelled"}


@dataclass(frozen=True)
class RoundText:
    """What one round added to the generated text: `text`, of which the last part is the bonus token's."""

    text: str
    bonus: str


@dataclass(eq=False)
class Attachment:
    """One request that waits for a generation. superseded: a newer request has taken its place."""

    changed: asyncio.Event
    superseded: bool = False

    def supersede(self) -> None:
        self.superseded = True
        self.changed.set()


class Generation:
    """Belongs to one event loop. `start` it with the work that leads to `read`; `failure` says what ended it."""

    def __init__(self, spot: Spot, prompts: PromptBuilder, *, goes_past: bool, speculative: bool = False) -> None:
        """goes_past: read on behind the unit. speculative: nobody has asked for it, and nobody need wait for it."""
        self.generated = Generated(spot)
        self.speculative = speculative
        self.rounds: list[RoundText] = []
        self.tokens = 0
        self.prompt: Prompt | None = None
        self.summary: CompletionSummary | None = None
        self.failure: Exception | None = None
        self.first_text_s: float | None = None  # from sending until something could be shown
        self.on_end: Callable[[], None] = lambda: None
        self.file: Callable[[], FileErrors | None] = lambda: None  # the document at the spot, made when asked for
        self._prompts = prompts
        self._goes_past = goes_past
        self._attached: set[Attachment] = set()
        self._task: asyncio.Task[None] | None = None
        self._stream: CompletionStream | None = None
        self._urgent = not speculative
        self._urging: asyncio.Task[None] | None = None
        self._sent_at = 0.0
        self._reading: asyncio.Future[Cut] | None = None
        self._known: Cut | None = None  # once the surroundings are read
        self._retyped = ""  # what an engine that knows no healing must still begin with

    def start(self, work: asyncio.Task[None]) -> None:
        self._task = work
        work.add_done_callback(self._ended)

    @property
    def ended(self) -> bool:
        return self._task is not None and self._task.done()

    @property
    def is_sent(self) -> bool:
        """Whether the engine knows of it."""
        return self._sent_at > 0

    @property
    def is_past_unit(self) -> bool:
        return self.generated.ending is not None

    def attach(self, attachment: Attachment) -> None:
        """A request waits from now on, and no longer with the last in the engine's queue."""
        self._attached.add(attachment)
        self.speculative = False
        if not self._urgent and self._stream is not None:
            self._urge(INTERACTIVE)
        self._urgent = True

    def detach(self, attachment: Attachment) -> None:
        """A request no longer waits. What nobody wants is aborted after a grace."""
        self._attached.discard(attachment)
        if not self._attached and not self.is_past_unit and not self.ended:
            asyncio.get_running_loop().call_later(GRACE_S, self._abort_if_unwanted)

    def supersede(self) -> None:
        for attachment in self._attached:
            attachment.supersede()

    def abort(self) -> None:
        """End it at the engine within a round.

        Once only: a second cancellation would meet the first one's closing of the connection, and leave it behind in
        the client's pool, which holds so many and then lets nobody in.
        """
        if self._task is not None and not self._task.done() and not self._task.cancelling():
            if self._stream is not None:
                self._stream.hang_up()
            self._task.cancel()

    async def wait_ended(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})

    async def read(self, client: EngineClient, request: CompletionRequest, prompt: Prompt) -> None:
        """Read the engine's whole stream. Raises EngineError."""
        self.prompt = prompt
        self._retyped = prompt.retyped
        if not self._urgent:
            request = replace(request, priority=WARM_UP)
        self._sent_at = time.monotonic()
        async with client.stream(request, self._read_surroundings, self._prompts.text_of) as stream:
            self._stream = stream
            async for chunk in stream:
                await self._ready_to_cut()
                self._add(chunk)
                if self.is_past_unit and self._attached:
                    await _answers_first()
                if self.is_past_unit and await self._is_enough(stream):
                    await self._end(stream)
                    break
            self.summary = stream.summary
            self._close(_FINISHES.get(self.summary.finish, "eos") if self.summary is not None else "cancelled")

    def _read_surroundings(self) -> None:
        """Read the file around the cursor while the engine is at the prompt, and not when its text is there.

        In a thread: it takes parses, and a key or a cancellation must be heard meanwhile.
        """
        if self.speculative:
            return
        loop = asyncio.get_running_loop()
        self._reading = loop.run_in_executor(None, self._read_around)
        self._reading.add_done_callback(lambda done: loop.run_in_executor(None, self._count_errors))

    def _read_around(self) -> Cut:
        cut, file = self._make_cut(), self.file()
        if file is not None:
            file.get_ready()
            closings_ready(self.generated.spot.cursor)
        return cut

    def _count_errors(self) -> None:
        """Where what is near the spot does not tell: broken code takes a parser long.

        A long file that has no tree yet is being parsed in another thread, and may have one by the time of the answer.
        """
        file = self.file()
        if file is not None and not file.is_ready and not file.is_long_unread:
            file.errors_with("")

    def _make_cut(self) -> Cut:
        spot = self.generated.spot
        return Cut(spot.cursor, single_line=spot.single_line)

    async def _ready_to_cut(self) -> None:
        if self._known is None:
            self._known = await (self._reading or asyncio.to_thread(self._make_cut))

    @property
    def _cut(self) -> Cut:
        if self._known is None:  # nothing was generated
            self._known = self._make_cut()
        return self._known

    def _add(self, chunk: CompletionChunk) -> None:
        # The replay engine has no tokens: each of its rounds counts as one.
        self.tokens += len(chunk.token_ids) or 1
        fresh = self._without_retyped(chunk.text)
        if fresh is None:
            self._become(replace(self.generated, decision=Decision(0, 0, NOT_RETYPED), ending="boundary"))
            return
        text = self._cut.add(fresh)
        bonus = self._prompts.text_of(chunk.token_ids[chunk.accepted :]) if chunk.accepted else text
        self.rounds.append(RoundText(text, text[-len(bonus) :] if bonus else ""))
        decision = self._cut.decision
        if decision.settled and self.first_text_s is None:
            self.first_text_s = time.monotonic() - self._sent_at
        ending: Finish | None = self.generated.ending or ("boundary" if decision.end is not None else None)
        self._become(replace(self.generated, text=self._cut.text, decision=decision, ending=ending))

    def _without_retyped(self, text: str) -> str | None:
        """The text without what it must begin with; None when it begins with something else."""
        common = min(len(text), len(self._retyped))
        if text[:common] != self._retyped[:common]:
            return None
        self._retyped = self._retyped[common:]
        return text[common:]

    async def _is_enough(self, stream: CompletionStream) -> bool:
        """Whether to read no further; what is read past the unit waits for everybody else's text."""
        if not self._goes_past or reaches_far_enough(self.generated):
            return True
        if self._urgent and not self._attached:
            self._urgent = False
            self._urge(WARM_UP)
        return False

    async def _end(self, stream: CompletionStream) -> None:
        """Tell the engine that it is enough, and wait for its numbers."""
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(SUMMARY_S):
                await stream.cancel()
                async for chunk in stream:
                    self._add(chunk)

    def _close(self, finish: Finish) -> None:
        seen = self.generated
        if finish == "cancelled" and not seen.text:
            self._become(replace(seen, decision=Decision(0, 0, NO_TEXT), ending=finish, stream_finish=finish))
            return
        decision = (
            seen.decision
            if seen.decision.end is not None
            else self._cut.finish(ran_out=finish in ("length", "cancelled"))
        )
        self._become(replace(seen, decision=decision, ending=seen.ending or finish, stream_finish=finish))

    def _become(self, generated: Generated) -> None:
        self.generated = generated
        for attachment in self._attached:
            attachment.changed.set()

    def _urge(self, priority: int) -> None:
        async def urging(stream: CompletionStream) -> None:
            with contextlib.suppress(EngineError):
                await stream.set_priority(priority)

        if self._stream is not None:
            self._urging = asyncio.get_running_loop().create_task(urging(self._stream), name="priority")

    def _abort_if_unwanted(self) -> None:
        if not self._attached and not self.is_past_unit and not self.speculative:
            self.abort()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._close("cancelled")
        elif (error := task.exception()) is not None:
            self.failure = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
            self._close("cancelled")
        else:
            self._become(self.generated)
        self.on_end()


async def _answers_first() -> None:
    """Let those who waited for the unit answer before the stream is read on, which takes the loop a while."""
    for _ in range(ANSWER_TURNS):
        await asyncio.sleep(0)
