"""Completions for one editor window: of what is shown, of the cache, of what runs, or of the engine, in this order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from server.completion.acceptance import Acceptance
from server.completion.alternatives import alternatives
from server.completion.cache import CompletionCache
from server.completion.document_completion import DocumentCompletion
from server.completion.engine_link import EngineLink, LinkListener
from server.completion.generation import Generation
from server.completion.generations import Generations
from server.completion.measuring import Pace
from server.completion.offer import TAKEN_BACK, Offer, Situation, inside_line, offer_at
from server.completion.request import CompletionOptions, Growth, Request
from server.completion.result import SUPERSEDED, CompletionResult, Source
from server.completion.self_test import kept_self_test, self_test, with_tested_format
from server.completion.shown import Shown
from server.completion.spot import Spot
from server.completion.submission import Submission
from server.completion.surroundings import Surroundings, surroundings
from server.completion.warm_up import PAUSE_S, WarmUp
from server.context.assembly import ContextAssembler
from server.context.languages import language_for
from server.context.open_documents import file_of
from server.context.prompt import Prompt, PromptBuilder
from server.context.workspace import Workspace
from server.documents.document import Document, Place
from server.engine.protocol import (
    CompletionRequest,
    EngineError,
    EngineLoading,
    EngineStalled,
    EngineUnavailable,
)
from server.errors import DflashError
from server.profiles import Profile


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
        self._wants_self_test = profile.prompt is not None and profile.prompt.format == "auto"
        profile = with_tested_format(profile)
        self.profile = profile
        self.prompts = PromptBuilder(profile)
        self.context = ContextAssembler(self.prompts, workspace)
        self.link = EngineLink(profile, listener or LinkListener())
        self.submission = Submission(self.link)
        self.cache = CompletionCache()
        self.acceptance = Acceptance()
        self._self_testing: asyncio.Task[None] | None = None
        self._documents: dict[str, DocumentCompletion] = {}
        self._warm_up = WarmUp()
        self.generations = Generations(
            self.submission, self.prompts, self.cache, self.prompt, on_pace, is_shared=profile.engine.is_shared
        )

    @property
    def pace(self) -> Pace:
        pace, load = self.generations.recent.pace, self.link.load
        if load is None or pace.acceptance_length:
            return pace
        # The engine does not tell it for each completion, but for all of them.
        return replace(pace, acceptance_length=load.acceptance_length)

    async def complete(
        self,
        document: Document,
        place: Place,
        path: str,
        options: CompletionOptions | None = None,
        on_growth: Callable[[Growth], None] | None = None,
    ) -> CompletionResult:
        """The completion at a place of the document as it is now.

        A request for the same document that still waits is superseded: its answer is empty, finish
        "cancelled". When this call is cancelled, its generation ends unless another request agrees with it.
        """
        site = surroundings(document, place, path, self.prompts.limit)
        return await self._answer(document, Request(site, options or CompletionOptions(), on_growth))

    async def complete_several(
        self,
        document: Document,
        place: Place,
        path: str,
        options: CompletionOptions | None = None,
        on_growth: Callable[[Growth], None] | None = None,
    ) -> list[CompletionResult]:
        """The completion, and sampled ones that differ from it: for a request that the user made by hand."""
        site = surroundings(document, place, path, self.prompts.limit)
        options = options or CompletionOptions()
        request = Request(site, options, on_growth)
        first = await self._answer(document, request)
        client = self.link.client
        if not first.text or client is None:
            return [first]
        state = self._documents[document.uri]
        make_prompt = self.generations.prompt_maker(document, place)
        # Its growth is not told: the first one is shown by now.
        sampled = Request(request.site, options)
        sampled.snapshot = request.snapshot
        others = await alternatives(sampled, state, self.submission, client, self.prompts, make_prompt)
        if others is None:
            return [request.nothing(SUPERSEDED, finish="cancelled")]
        results = [first]
        for other in others:
            if other.text and other.text not in [each.text for each in results]:
                results.append(other)
        return results

    async def _answer(self, document: Document, request: Request) -> CompletionResult:
        self.opened(document, request.site.path)
        state = self._documents.setdefault(document.uri, DocumentCompletion())
        running, state.latest = state.meet(request.site.spot), request
        refusal = self._refusal(document, request.site.path)
        if refusal:
            return request.nothing(refusal)
        offer = self._offer(document, request.site, request.options)
        if offer.reason in TAKEN_BACK:
            state.shown = None
        left = state.left(request.site.spot)
        result = self._of_what_is_shown(left, request)
        if result is None:
            # What is shown stays shown as it is typed; only what is new is weighed.
            if offer.reason and not (left is not None and left.text and running is not None):
                self._show(state, request)
                return request.nothing(offer.reason)
            request.site = replace(request.site, single_line=bool(offer.single_line))
            request.snapshot = self.context.snapshot(document, request.site.place, request.site.cursor.language)
        result = result or await self._of_the_cache(state, request, document)
        result = result or await self._of_the_engine(state, running, request, document)
        if state.latest is not request:
            return request.nothing(SUPERSEDED, finish="cancelled")
        if result.finish != "cancelled":
            self._show(state, request)
        return result

    def grown(self, growth: Growth) -> None:
        """A completion is shown as far as it has grown."""
        site, state = growth.site, self._documents.get(growth.site.uri)
        if state is None:
            return
        left, state.shown = state.left(site.spot), Shown(site.spot, growth.text, "cancelled", "", grows=True)
        if state.latest is not None and state.latest.site is site:
            state.latest.told = growth.text
        self.acceptance.showed(site.uri, site.language.name, left, growth.text)

    def _show(self, state: DocumentCompletion, request: Request) -> None:
        """What a request is answered with, if anything, is what its document shows now."""
        left, state.shown = state.left(request.site.spot), request.shown
        text = "" if request.shown is None else request.shown.text
        self.acceptance.showed(request.site.uri, request.site.language.name, left, text)

    def _refusal(self, document: Document, path: str) -> str:
        """Why nothing may ever be offered in a document; "" when it may."""
        language = language_for(document.language, path)
        verdict = self.context.privacy.may_be_completed(file_of(document.uri) or path, language.name)
        return "" if verdict.allowed else verdict.reason

    def exclude(self, globs: Sequence[str]) -> None:
        """Complete no files of these globs from now on, and let none of them lend text to a prompt."""
        self.context.exclude(globs)

    def offer(self, document: Document, site: Surroundings, options: CompletionOptions) -> Offer:
        """What is offered at a site of the document, and why not more."""
        refusal = self._refusal(document, site.path)
        return Offer(refusal) if refusal else self._offer(document, site, options)

    def _offer(self, document: Document, site: Surroundings, options: CompletionOptions) -> Offer:
        inside = self.context.inside(document, site.place) or inside_line(site.cursor.line_before, site.cursor.language)
        situation = Situation(options.explicit, options.selected, self.context.last_edit(document), inside)
        return offer_at(site.cursor, site.place, situation)

    async def prompt(self, document: Document, place: Place, spot: Spot) -> Prompt:
        """What the engine is shown at a spot; `place`: in the document, at the spot or near before it."""
        self.opened(document, spot.path)
        return await self.context.prompt(document, place, spot.before, spot.cursor.after)

    def opened(self, document: Document, path: str) -> None:
        """A document is open: its tree is made before a completion is asked for."""
        self.context.opened(document, path, file_of(document.uri), language_for(document.language, path))

    def viewed(self, document: Document, row: int, path: str) -> None:
        """The user looks at a row of a document: prompts of others may show what stands there."""
        self.opened(document, path)
        self.context.viewed(document, row)

    def saved(self, uri: str) -> None:
        """A file was written."""
        file = file_of(uri)
        if self.context.index is not None and file is not None:
            self.context.index.changed([file])

    async def start(self) -> None:
        """Start the index of the workspace, in the background."""
        if self._wants_self_test and kept_self_test(self.profile) is None:
            self._self_testing = asyncio.get_running_loop().create_task(self._self_test(), name="self-test")
        if self.context.index is not None and self.prompts.related_budget:
            await self.context.index.start()

    async def _self_test(self) -> None:
        """Find the format that suits the pair, and serve in it from then on."""
        with contextlib.suppress(DflashError):  # who asks for text will hear of an engine that is not there
            found = await self_test(self.profile, await self.link.connect())
            if found.picked is not None and self.profile.prompt is not None:
                self.prompts.change_format(found.picked)

    async def ready(self, document: Document, path: str) -> None:
        """Wait until all is known of a document that a prompt may show."""
        self.opened(document, path)
        await self.context.ready(document)

    def edited(self, document: Document, places: list[Place], path: str) -> None:
        """The document has changed, and the cursor is probably at one of the places, the likeliest first."""
        self.submission.pacing.key()
        self.acceptance.edited(document.uri)
        state = self._documents.get(document.uri)
        if state is not None and state.running is not None:
            state.edited([surroundings(document, place, path, self.prompts.limit).spot for place in places])
        self.warm_up(document, places[0], path, after_s=PAUSE_S)

    def warm_up(self, document: Document, place: Place, path: str, after_s: float = 0.0) -> None:
        """Prefill the prompt at a place, unless somebody asks for a text before `after_s` is over."""
        version = document.version

        async def request() -> CompletionRequest | None:
            # With several cursors, nobody knows where the next key goes.
            if document.version != version or self._refusal(document, path):
                return None
            site = surroundings(document, place, path, self.prompts.limit)
            return self.submission.request(site.spot, await self.prompt(document, place, site.spot))

        # Another's engine is not to be kept at work on what nobody has asked for.
        if self.link.client is not None and not self.profile.engine.is_shared:
            self._warm_up.begin(self.link.client, request, after_s)

    def closed(self, uri: str) -> None:
        """A document was closed: nothing runs for it any more."""
        state = self._documents.pop(uri, None)
        if state is not None:
            state.abort()
        self._warm_up.end()
        self.acceptance.closed(uri)
        self.context.closed(uri)

    async def aclose(self) -> None:
        """End everything of this window; the engine goes on for others."""
        self._warm_up.end()
        if self._self_testing is not None:
            self._self_testing.cancel()
            await asyncio.wait({self._self_testing})
        for state in self._documents.values():
            state.abort()
        await self.submission.aclose()
        await self.context.aclose()
        await self.link.aclose()

    def _of_what_is_shown(self, left: Shown | None, request: Request) -> CompletionResult | None:
        if left is None or not left.text or left.grows or request.options.exact_stats:
            return None
        return request.answer_with(
            left.text, left.finish, left.reason, request.stopwatch.stats(self.link.health, "shown")
        )

    async def _of_the_cache(
        self, state: DocumentCompletion, request: Request, document: Document
    ) -> CompletionResult | None:
        found = None if request.options.exact_stats else self.cache.find(request.site.spot)
        if found is None:
            return None
        generated, reader = found
        self.generations.speculate(state, generated, document, request.site.place)
        stats = request.stopwatch.stats(self.link.health, "cache")
        return await request.answer(generated, reader.read(generated), stats)

    async def _of_the_engine(
        self, state: DocumentCompletion, running: Generation | None, request: Request, document: Document
    ) -> CompletionResult:
        self._warm_up.end()
        source: Source = "running"
        piece = None if running is None else await request.follow(running)
        if running is None or piece is None or piece.finish is None:
            if state.latest is not request:
                # A newer one has begun its own meanwhile, which a generation of this one would end.
                return request.nothing(SUPERSEDED, finish="cancelled")
            client = self.link.client
            if client is None:
                self.link.launch()
                return request.nothing(self.link.reason)
            source = "new"
            running = self.generations.begin(state, request.site, client, document, request.options)
            running.file = request.file
            piece = await request.follow(running)
        stats = request.stopwatch.stats(self.link.health, source, running)
        if running.failure is not None:
            piece = replace(piece, finish="cancelled", reason=self._reason(running.failure, request.options))
        return await request.answer(running.generated, piece, stats)

    def _reason(self, failure: Exception, options: CompletionOptions) -> str:
        """What a failure is called in an answer. Raises it when it is no failure of the engine's."""
        if options.raise_errors or not isinstance(failure, EngineError):
            raise failure
        if isinstance(failure, EngineLoading | EngineUnavailable | EngineStalled):
            return self.link.reason
        return str(failure)
