"""Completions for one editor window: one generation per document, newer requests before older ones."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from asyncio_throttle import Throttler

from server.completion.engine_link import EngineLink, LinkListener
from server.completion.fit import cursor_range, fit
from server.completion.generation import Generation, Growth
from server.completion.offer import Offer, Situation, inside_line, offer_at
from server.completion.result import SUPERSEDED, CompletionResult, Stats, empty
from server.completion.surroundings import Surroundings, surroundings
from server.context.assembly import ContextAssembler
from server.context.languages import language_for
from server.context.open_documents import file_of
from server.context.prompt import Prompt, PromptBuilder
from server.context.workspace import Workspace
from server.documents.document import Document, Place
from server.engine.client import CompletionStream, EngineClient
from server.engine.protocol import (
    CompletionRequest,
    DraftMode,
    EngineError,
    EngineLoading,
    EngineStalled,
    EngineUnavailable,
)
from server.profiles import Profile

SUBMISSIONS_PER_S = 20  # more keys than this a second nobody types; a client gone wild is held back
SUMMARY_S = 2.0  # how long the engine may take to end a generation whose boundary was found
TEXT_MAX_TOKENS = 256  # for profiles that send text, which have no limit of their own
RECENT = 20  # completions whose numbers the status shows


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """How one completion is made.

    exact_stats: wait for the engine's own numbers, a round longer.
    raise_errors: raise an EngineError instead of answering with nothing and its text as the reason.
    explicit: the user asked for it, so it is made even where none would be offered.
    selected: text is selected.
    """

    draft: DraftMode = "auto"
    exact_stats: bool = False
    raise_errors: bool = False
    explicit: bool = True
    selected: bool = False


@dataclass(frozen=True)
class Pace:
    """How fast the last completions were; 0.0 before the first."""

    acceptance_length: float = 0.0
    tokens_per_s: float = 0.0


class CompletionService:
    """Belongs to one event loop. Failures of the engine are empty results with a reason, not exceptions."""

    def __init__(
        self,
        profile: Profile,
        listener: LinkListener | None = None,
        on_pace: Callable[[], None] = lambda: None,
        workspace: Workspace | None = None,
    ) -> None:
        """Load the profile's tokenizer. Raises DflashError, one line, when the profile cannot be served.

        on_pace: hears that `pace` has changed, which can be after a completion was answered.
        workspace: what prompts may draw on beside the open documents.
        """
        self.profile = profile
        self.prompts = PromptBuilder(profile)
        self.context = ContextAssembler(self.prompts, workspace)
        self.link = EngineLink(profile, listener or LinkListener())
        self.accepted = 0
        self._client_id = secrets.token_hex(8)
        self._throttler = Throttler(rate_limit=SUBMISSIONS_PER_S)
        self._running: dict[str, asyncio.Task[CompletionResult]] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._recent: deque[Stats] = deque(maxlen=RECENT)
        self._on_pace = on_pace

    @property
    def pace(self) -> Pace:
        rounds = sum(stats.rounds for stats in self._recent)
        tokens = sum(stats.tokens for stats in self._recent)
        seconds = sum(stats.tokens / stats.tokens_per_s for stats in self._recent if stats.tokens_per_s)
        return Pace(round(tokens / rounds, 2) if rounds else 0.0, round(tokens / seconds, 1) if seconds else 0.0)

    async def complete(
        self,
        document: Document,
        place: Place,
        path: str,
        options: CompletionOptions | None = None,
        on_growth: Callable[[Growth], None] | None = None,
    ) -> CompletionResult:
        """The completion at a place of the document as it is now.

        A request for the same document that still runs is superseded: its answer is empty, finish
        "cancelled". Cancelling this call ends the generation at the engine.
        """
        site = surroundings(document, place, path, self.prompts.limit)
        older = self._running.get(site.uri)
        if older is not None:
            older.cancel()
        work = asyncio.get_running_loop().create_task(
            self._complete(document, site, options or CompletionOptions(), on_growth), name="completion"
        )
        self._running[site.uri] = work
        try:
            await asyncio.wait({work})
        finally:
            # Reached with the work still running only when the client cancelled.
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
            if self._running.get(site.uri) is work:
                del self._running[site.uri]
        if work.cancelled():
            return empty(cursor_range(site), SUPERSEDED, finish="cancelled")
        return work.result()

    async def prompt(self, document: Document, site: Surroundings) -> Prompt:
        """What the engine is shown at a site of the document."""
        self.opened(document, site.path)
        return await self.context.prompt(document, site.place, site.before, site.cursor.after)

    def opened(self, document: Document, path: str) -> None:
        """A document is open: its tree is made before a completion is asked for."""
        self.context.opened(document, path, file_of(document.uri), language_for(document.language, path))

    def saved(self, uri: str) -> None:
        """A file was written."""
        file = file_of(uri)
        if self.context.index is not None and file is not None:
            self.context.index.changed([file])

    def closed(self, uri: str) -> None:
        self.context.closed(uri)

    async def start(self) -> None:
        """Start the index of the workspace, in the background."""
        if self.context.index is not None and self.prompts.related_budget:
            await self.context.index.start()

    async def ready(self, document: Document, path: str) -> None:
        """Wait until all is known of a document that a prompt may show."""
        self.opened(document, path)
        await self.context.ready(document)

    def offer(self, document: Document, site: Surroundings, options: CompletionOptions) -> Offer:
        """What is offered at a site of the document, and why not more."""
        file = file_of(site.uri)
        verdict = self.context.privacy.may_be_completed(file or site.path, site.language.name)
        if not verdict.allowed:
            return Offer(verdict.reason)
        inside = self.context.inside(document, site.place) or inside_line(site.cursor.line_before, site.language)
        situation = Situation(options.explicit, options.selected, self.context.last_edit(document), inside)
        return offer_at(site.cursor, site.place, situation)

    async def aclose(self) -> None:
        """End everything of this window; the engine goes on for others."""
        tasks = [*self._running.values(), *self._endings]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.context.aclose()
        await self.link.aclose()

    async def _complete(
        self,
        document: Document,
        site: Surroundings,
        options: CompletionOptions,
        on_growth: Callable[[Growth], None] | None,
    ) -> CompletionResult:
        self.opened(document, site.path)
        offer = self.offer(document, site, options)
        if offer.reason:
            return empty(cursor_range(site), offer.reason)
        client = self.link.client
        if client is None:
            self.link.launch()
            return empty(cursor_range(site), self.link.reason)
        prompt = await self.prompt(document, site)
        generation = Generation(site, prompt, self.prompts, on_growth, single_line=bool(offer.single_line))
        async with self._throttler:
            try:
                return await self._generate(client, site, self.request(site, prompt, options), generation, options)
            except EngineError as error:
                if options.raise_errors:
                    raise
                reason = await self._reason(client, error)
                return empty(cursor_range(site), reason, generation.stats(self.link.health, None))

    async def _reason(self, client: EngineClient, error: EngineError) -> str:
        """What a failure is called in an empty answer; an engine that is not there is looked for again."""
        if not isinstance(error, EngineLoading | EngineUnavailable | EngineStalled):
            return str(error)
        await self.link.lost(client, error.health.reason if isinstance(error, EngineLoading) else str(error))
        return self.link.reason

    async def _generate(
        self,
        client: EngineClient,
        site: Surroundings,
        request: CompletionRequest,
        generation: Generation,
        options: CompletionOptions,
    ) -> CompletionResult:
        async with contextlib.AsyncExitStack() as leaving:
            stream = await leaving.enter_async_context(client.stream(request))
            outcome = await generation.read(stream)
            self.link.succeeded()
            if stream.summary is None and options.exact_stats:
                await self._end(stream)
            stats = generation.stats(self.link.health, stream.summary)
            if stream.summary is None:
                # The answer does not wait for the engine's numbers; the status gets them later.
                self._keep_until_ended(stream, generation, leaving.pop_all())
            else:
                self._note(stats)
        if not outcome.text:
            return empty(cursor_range(site), outcome.reason, stats)
        insertion = fit(outcome.text, site)
        return CompletionResult(insertion.text, insertion.range, outcome.finish, outcome.reason, stats)

    def request(self, site: Surroundings, prompt: Prompt, options: CompletionOptions) -> CompletionRequest:
        """What is asked of the engine for a site."""
        return CompletionRequest(
            prompt=prompt.content,
            max_tokens=prompt.max_tokens or TEXT_MAX_TOKENS,
            stop_token_ids=prompt.stop_ids,
            draft=options.draft,
            session=hashlib.sha256(site.uri.encode()).hexdigest()[:16],
            client=self._client_id,
            heal=prompt.heal,
        )

    def _keep_until_ended(
        self, stream: CompletionStream, generation: Generation, leaving: contextlib.AsyncExitStack
    ) -> None:
        async def ending() -> None:
            async with leaving:
                await self._end(stream)
                if stream.summary is not None:
                    self._note(generation.stats(self.link.health, stream.summary))

        task = asyncio.get_running_loop().create_task(ending(), name="end of a generation")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    def _note(self, stats: Stats) -> None:
        self._recent.append(stats)
        self._on_pace()

    async def _end(self, stream: CompletionStream) -> None:
        """Tell the engine that the boundary was found, and wait for its summary."""
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(SUMMARY_S):
                await stream.cancel()
                async for _ in stream:
                    pass
