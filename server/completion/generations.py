"""Begins the generations of one window, keeps what they bring, and goes on as if it had been accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from server.completion.cache import CompletionCache
from server.completion.document_completion import DocumentCompletion
from server.completion.generated import Generated
from server.completion.generation import Generation
from server.completion.measuring import Recent
from server.completion.request import CompletionOptions
from server.completion.speculation import may_be_accepted_whole, spot_if_accepted
from server.completion.spot import Spot
from server.completion.submission import MakePrompt, Submission
from server.completion.surroundings import Surroundings
from server.context.prompt import Prompt, PromptBuilder
from server.documents.document import Document, Place
from server.engine.client import EngineClient
from server.engine.protocol import DraftMode

PAUSE_S = 0.03  # without a key, before it is thought about what follows a unit: who reads it takes longer to accept it

PromptAt = Callable[[Document, Place, Spot], Awaitable[Prompt]]


class Generations:
    """What was generated is found in `cache`; `on_pace` hears when `recent` has new numbers."""

    def __init__(
        self,
        submission: Submission,
        prompts: PromptBuilder,
        cache: CompletionCache,
        prompt_at: PromptAt,
        on_pace: Callable[[], None],
        *,
        is_shared: bool = False,
    ) -> None:
        """is_shared: others wait for the same engine, so nothing is generated that nobody has asked for."""
        self.recent = Recent()
        self._submission = submission
        self._prompts = prompts
        self._cache = cache
        self._prompt_at = prompt_at
        self._on_pace = on_pace
        self._is_shared = is_shared

    def begin(
        self,
        state: DocumentCompletion,
        site: Surroundings,
        client: EngineClient,
        document: Document,
        options: CompletionOptions,
    ) -> Generation:
        """A generation for a request, in the place of the document's running one."""
        goes_past = not (options.exact_stats or self._is_shared)
        generation = Generation(site.spot, self._prompts, goes_past=goes_past)
        delay_s = self._submission.pacing.delay(site.uri, site.place.line)
        self._submit(state, generation, client, document, site.place, options.draft, delay_s)
        return generation

    def speculate(self, state: DocumentCompletion, generated: Generated, document: Document, place: Place) -> None:
        """Generate as if the unit had been accepted, where nothing runs and nothing was generated past it."""
        if (
            self._is_shared
            or state.running is not None
            or state.has_speculated(generated)
            or not may_be_accepted_whole(generated)
        ):
            return

        async def prepare() -> None:
            # Who types through a unit is about to type the next key, and not to accept it.
            while (left_s := self._submission.pacing.until_pause(PAUSE_S)) > 0:  # noqa: ASYNC110 (each key begins it anew)
                await asyncio.sleep(left_s)
            # What its acceptance leaves open takes parses: the loop must be free for keys.
            spot = await asyncio.to_thread(spot_if_accepted, generated)
            client = self._submission.link.client
            if spot is None or client is None or state.running is not None or self._cache.find(spot) is not None:
                return
            generation = Generation(spot, self._prompts, goes_past=False, speculative=True)
            self._submit(state, generation, client, document, place)

        state.speculate(generated, asyncio.get_running_loop().create_task(prepare(), name="speculation"))

    def prompt_maker(self, document: Document, place: Place) -> MakePrompt:
        """Makes the prompts of generations that begin at a place of the document, or near behind it."""

        async def make_prompt(spot: Spot) -> Prompt:
            return await self._prompt_at(document, place, spot)

        return make_prompt

    def _submit(
        self,
        state: DocumentCompletion,
        generation: Generation,
        client: EngineClient,
        document: Document,
        place: Place,
        draft: DraftMode = "auto",
        delay_s: float = 0.0,
    ) -> None:
        def ended() -> None:
            self._cache.put(generation.generated)
            if self.recent.note(generation):
                self._on_pace()
            if not generation.speculative:
                self.speculate(state, generation.generated, document, place)

        before = state.begin(generation)
        generation.on_end = ended
        make_prompt = self.prompt_maker(document, place)
        self._submission.begin(generation, client, make_prompt, draft=draft, after=before, delay_s=delay_s)
