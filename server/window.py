"""One editor window: its settings, its documents, and the completions it is given."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from server.completion.result import SUPERSEDED
from server.documents.document import Change, Place
from server.documents.notebooks import CELL_SCHEMES, Notebooks, notebook_of
from server.documents.places import places_after
from server.documents.positions import Position
from server.documents.store import DocumentStore, scheme
from server.errors import DflashError
from server.paths import state_dir
from server.settings import Settings
from server.status import Status

if TYPE_CHECKING:
    from server.completion.kept_counts import KeptCounts
    from server.completion.request import Growth
    from server.completion.result import CompletionResult
    from server.completion.service import CompletionService

LOG = logging.getLogger(__name__)
SHARED_ENGINE = "(shared engine)"  # among the counts by language
START_S = 2.0  # a new window's first requests wait so long for an engine that runs already
SCHEMES = ("file", "untitled", *CELL_SCHEMES)  # others are views of something


class Window:
    """What lies behind the LSP features. Runs in one event loop; nothing here raises to the editor.

    say_status: hears each status that differs from the one before. complain: shows the user one line.
    """

    def __init__(self, say_status: Callable[[dict[str, object]], None], complain: Callable[[str], None]) -> None:
        self._say_status = say_status
        self._complain = complain
        self._status = Status()
        self._own: CompletionService | None = None  # of the profile that was asked for
        self._fall_back: CompletionService | None = None  # once that has failed, of the profile it names for then
        self._falling_back: asyncio.Task[None] | None = None
        self._failure = ""  # why there is no service and never will be
        self._silence = ""  # why the last answer was empty
        self._snoozed_until = 0.0  # time.monotonic()
        self._opened_at = time.monotonic()
        self._settled = asyncio.Event()  # the engine is no longer loading: it is there, or it failed
        self._configuration: object = None
        self._kept: dict[str, dict[str, int]] = {}  # so much of the counts is in the file of all windows
        self._places: dict[str, Place] = {}  # where each document was worked at last
        self.documents = DocumentStore()
        self.notebooks = Notebooks()
        self.settings = Settings()
        self.folders: Sequence[str] = ()  # URIs of the workspace's folders

    async def start(self) -> None:
        """Load what completions need and launch the engine, while the editor goes on."""
        try:
            # Imports and the tokenizer take half a second, in which no key must wait.
            self._own = await asyncio.to_thread(_service, self, self.settings.profile)
        except Exception as error:
            self._failure = str(error) if isinstance(error, DflashError) else _internal(error)
            self._complain(f"no completions: {self._failure}")
            self.tell()
            return
        # What is loaded by now stays: to look through it for garbage would hold up a key for 50 ms now and then.
        gc.freeze()
        await self._begin(self._own)

    async def _begin(self, service: CompletionService) -> None:
        service.link.launch()
        for document in self.documents:
            service.opened(document, path_in_workspace(document.uri, self.folders))
        self.tell()
        await service.start()

    @property
    def _service(self) -> CompletionService | None:
        """What completes now: the profile's own service, or the fall-back's while its engine is left alone."""
        if self._own is not None and self._fall_back is not None and self._own.link.health.state == "failed":
            return self._fall_back
        return self._own

    @property
    def _services(self) -> list[CompletionService]:
        return [service for service in (self._own, self._fall_back) if service is not None]

    def opened(self, uri: str) -> None:
        """A document was opened: what prompts show of it is made ready before the first key."""
        document = self.documents.get(uri)
        if self._service is not None and document is not None and scheme(uri) in SCHEMES:
            self._service.opened(document, path_in_workspace(uri, self.folders))

    def saved(self, uri: str) -> None:
        """A document was written: others may use what it now defines."""
        if self._service is not None:
            self._service.saved(uri)

    async def complete(
        self,
        uri: str,
        position: Position,
        *,
        invoked: bool = False,
        selected: bool = False,
        on_growth: Callable[[Growth], None] | None = None,
    ) -> list[CompletionResult]:
        """The completion at a position, empty when there is nothing to show; the status says why.

        invoked: the user asked for it by hand, and may look at more than one. selected: text is selected.
        """
        try:
            found = await self._complete(uri, position, invoked, selected, on_growth)
        except Exception as error:  # a mistake of ours must not disturb the editor
            found = _internal(error)
        results = [] if isinstance(found, str) else [result for result in found if result.text]
        self._silence = found if isinstance(found, str) else "" if results else found[0].reason
        self.tell()
        return results

    async def _complete(
        self, uri: str, position: Position, invoked: bool, selected: bool, on_growth: Callable[[Growth], None] | None
    ) -> list[CompletionResult] | str:
        document = self.documents.get(uri)
        version = document.version if document is not None else None
        await self._wait_for_start()
        refusal = self._refusal(uri)
        if refusal or document is None or self._service is None:
            return refusal
        if document.version != version:
            return SUPERSEDED
        if self._own is not None and self._service is not self._own:
            self._own.link.launch()  # looked for again, once its pause is over
        place, path = document.place(position), path_in_workspace(uri, self.folders)
        self._places[document.uri] = place
        from server.completion.request import CompletionOptions

        options = CompletionOptions(draft=self.settings.draft, explicit=invoked, selected=selected)
        if invoked:
            return await self._service.complete_several(document, place, path, options, on_growth)
        return [await self._service.complete(document, place, path, options, on_growth)]

    async def _wait_for_start(self) -> None:
        """While the window is new: until its engine is found, or is known not to be there yet."""
        left = self._opened_at + START_S - time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left)):
                await self._settled.wait()

    def _refusal(self, uri: str) -> str:
        """Why a document gets no completions, "" when it does."""
        settings = self.settings.narrowed(self._configuration)
        if not settings.enable:
            return "disabled"
        if time.monotonic() < self._snoozed_until:
            return "snoozed"
        if self.documents.get(uri) is None:
            return "unknown document"
        if scheme(uri) not in SCHEMES:
            return f"no completions for {scheme(uri) or 'this kind of'} documents"
        return "" if self._service is not None else self._failure or "engine loading"

    def edited(self, uri: str, changes: Sequence[Change]) -> None:
        """A document was changed: what is generated for another text than it now has is of no use."""
        document = self.documents.get(uri)
        if document is None or self._service is None or self._refusal(uri):
            return
        last = changes[-1] if len(changes) == 1 else None
        if last is None or last.range is None:
            return  # several cursors, or a new text: the next request will tell where the user is
        places = places_after(document, last.range.start, last.text)
        self._places[document.uri] = places[0]
        self._service.edited(document, places, path_in_workspace(uri, self.folders))

    def focused(self, uri: str) -> None:
        """A document came to the front: it is likely to be completed next."""
        document = self.documents.get(uri)
        if document is None or self._service is None or self._refusal(uri):
            return
        last = len(document.lines) - 1
        # Before the first edit, the end: the prompt of a short file begins at its first line anyhow.
        place = self._places.get(document.uri, Place(last, len(document.lines[last])))
        path = path_in_workspace(uri, self.folders)
        self._service.viewed(document, place.line if document.uri in self._places else 0, path)
        self._service.warm_up(document, place, path)

    def closed(self, uri: str) -> None:
        document = self.documents.get(uri)
        self.documents.close(uri)
        if document is None:
            return
        self._places.pop(document.uri, None)
        for service in self._services:
            service.closed(document.uri)

    def grown(self, growth: Growth) -> None:
        """The client was told of a completion as far as it has grown."""
        if self._service is not None:
            self._service.grown(growth)

    def accepted(self, uri: str) -> None:
        """A completion was accepted. Only counted, and only here."""
        if self._service is not None:
            self._service.acceptance.accepted(uri)

    def partly_accepted(self, uri: str, units: int) -> None:
        """The first `units` (UTF-16) of a completion were accepted."""
        if self._service is not None:
            self._service.acceptance.partly_accepted(uri, units)

    def counts(self) -> dict[str, dict[str, int]]:
        """What became of completions, by language; of a shared engine also what was given up there."""
        counts = {} if self._service is None else self._service.acceptance.to_json()
        if self._own is not None and self._own.profile.engine.is_shared:
            ledger = self._own.link.left_behind
            counts |= {
                SHARED_ENGINE: {"cancelled": ledger.cancelled, "tokens": ledger.tokens, "unheard": ledger.unheard}
            }
        return counts

    async def all_counts(self) -> dict[str, dict[str, int]]:
        """The same of all windows there ever were; of others that are open, up to when they were kept last."""
        await self._keep_counts()
        return await asyncio.to_thread(_kept_counts().read)

    async def _keep_counts(self) -> None:
        from server.completion.kept_counts import summed

        counted: dict[str, dict[str, int]] = {}
        for service in self._services:
            counted = summed(counted, service.acceptance.to_json())
        fresh = {
            language: {name: number - self._kept.get(language, {}).get(name, 0) for name, number in counts.items()}
            for language, counts in counted.items()
        }
        if any(number for counts in fresh.values() for number in counts.values()):
            self._kept = counted  # at once: the next call must not add the same again
            await asyncio.to_thread(_kept_counts().add, fresh)

    def digest(self, uri: str) -> str | None:
        """SHA-256 of a document's text (UTF-8), by which a client can tell whether ours is the same as its own."""
        document = self.documents.get(uri)
        return None if document is None else hashlib.sha256(document.text.encode()).hexdigest()

    def configure(self, configuration: object) -> None:
        """What the client's configuration says, of which only what it switches off and excludes counts."""
        self._configuration = configuration
        for service in self._services:
            service.exclude(self.settings.narrowed(configuration).exclude)

    def snooze(self, seconds: float) -> None:
        """Offer nothing for so long; 0 ends it."""
        self._snoozed_until = time.monotonic() + seconds

    async def set_profile(self, profile: str) -> None:
        """Serve from another profile from now on."""
        await self.aclose()
        self.settings = replace(self.settings, profile=profile)
        self._failure = ""
        await self.start()

    async def restart_engine(self) -> None:
        for service in self._services:
            await service.link.restart()

    async def aclose(self) -> None:
        await self._keep_counts()
        self._kept = {}
        if self._falling_back is not None:
            self._falling_back.cancel()
            self._falling_back = None
        services, self._own, self._fall_back = self._services, None, None
        for service in services:
            await service.aclose()

    def engine_failed(self, profile: str, reason: str) -> None:
        """A profile's engine cannot be used: said once, with what completes instead."""
        own = self._own
        instead = own.profile.engine.fall_back if own is not None and own.profile.name == profile else None
        if instead is None:
            self._complain(f"no completions: {reason}")
            return
        self._complain(f"{reason}: profile {instead} completes until it answers")
        if self._falling_back is None:
            self._falling_back = asyncio.get_running_loop().create_task(self._fall(instead), name="fall back")

    async def _fall(self, profile: str) -> None:
        try:
            self._fall_back = await asyncio.to_thread(_service, self, profile)
            if self._fall_back.profile.engine.is_shared:
                raise DflashError(f"profile {profile} is remote as well, and cannot stand in")
        except Exception as error:
            self._fall_back = None
            self._complain(f"no completions: {str(error) if isinstance(error, DflashError) else _internal(error)}")
            return
        await self._begin(self._fall_back)

    def tell(self) -> None:
        """Say the status if it has changed."""
        status = self._new_status()
        if status.state != "loading":
            self._settled.set()
        if status != self._status:
            self._status = status
            self._say_status(asdict(status))

    def _new_status(self) -> Status:
        if self._service is None:
            state = "failed" if self._failure else "loading"
            return Status(state, reason=self._failure or "starting", profile=self.settings.profile)
        health, pace = self._service.link.health, self._service.pace
        silence = self._silence
        if self._own is not None and self._service is not self._own:
            silence = silence or f"instead of {self._own.profile.name}: {self._own.link.health.reason}"
        return Status(
            state=health.state,
            progress=health.progress,
            reason=health.reason if health.state in ("loading", "failed") else _both(silence, health.reason),
            profile=self._service.profile.name,
            target=health.target,
            draft=health.draft,
            acceptance_length=pace.acceptance_length,
            tokens_per_s=pace.tokens_per_s,
        )


def _both(silence: str, degraded: str) -> str:
    """Why the last answer was empty, and what the engine had to give up; each may be ""."""
    return "; ".join(reason for reason in (silence, degraded) if reason)


def path_in_workspace(uri: str, folders: Sequence[str]) -> str:
    """The posix path of a document in its workspace folder, or its file name when it lies in none."""
    plain = unquote(notebook_of(uri))
    for folder in sorted((unquote(each).rstrip("/") for each in folders), key=len, reverse=True):
        if plain.startswith(folder + "/"):
            return plain[len(folder) + 1 :]
    return PurePath(plain.partition(":")[2] or plain).name


def _kept_counts() -> KeptCounts:
    from server.completion.kept_counts import KeptCounts

    return KeptCounts(state_dir() / "counts.json")


def _internal(error: Exception) -> str:
    """What a mistake of ours is called. Logged without the error's own words, which may hold the user's text."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    LOG.error("internal error: %s in %s:%s", type(error).__name__, where.filename, where.lineno)
    return f"internal error: {type(error).__name__}"


def _service(window: Window, name: str) -> CompletionService:
    from server.completion.engine_link import LinkListener
    from server.completion.service import CompletionService
    from server.context.open_documents import file_of
    from server.context.workspace import Workspace
    from server.profiles import load_profile

    folders = [folder for uri in window.folders if (folder := file_of(uri)) is not None]
    settings = window.settings.narrowed(window._configuration)
    workspace = Workspace(folders, settings.exclude, settings.exclude_by_language, indexed=True)
    profile = load_profile(name)
    listener = LinkListener(
        changed=lambda health: window.tell(), failed=lambda reason: window.engine_failed(profile.name, reason)
    )
    service = CompletionService(profile, listener, on_pace=window.tell, workspace=workspace)
    service.context.documents.place_in_notebook = window.notebooks.place_of
    return service
