"""One editor window: its settings, its documents, and the completions it is given."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from server.documents.positions import Position
from server.documents.store import DocumentStore, scheme
from server.errors import DflashError
from server.settings import Settings

if TYPE_CHECKING:
    from server.completion.result import CompletionResult
    from server.completion.service import CompletionService

LOG = logging.getLogger(__name__)
SCHEMES = ("file", "untitled")  # others are views of something, and notebook cells hold half a context


@dataclass(frozen=True)
class Status:
    """What `dflash/status` tells; `state` and `progress` are the engine's.

    reason: what the engine is doing or why it cannot be used, else why the last answer was empty.
    """

    state: str = "loading"
    progress: float | None = None
    reason: str = "starting"
    profile: str = ""
    target: str = ""
    draft: str = ""
    acceptance_length: float = 0.0
    tokens_per_s: float = 0.0


class Window:
    """What lies behind the LSP features. Runs in one event loop; nothing here raises to the editor.

    say_status: hears each status that differs from the one before. complain: shows the user one line.
    """

    def __init__(self, say_status: Callable[[dict[str, object]], None], complain: Callable[[str], None]) -> None:
        self._say_status = say_status
        self._complain = complain
        self._status = Status()
        self._service: CompletionService | None = None
        self._failure = ""  # why there is no service and never will be
        self._silence = ""  # why the last answer was empty
        self.documents = DocumentStore()
        self.settings = Settings()
        self.folders: Sequence[str] = ()  # URIs of the workspace's folders

    async def start(self) -> None:
        """Load what completions need and launch the engine, while the editor goes on."""
        try:
            # Imports and the tokenizer take half a second, in which no key must wait.
            self._service = await asyncio.to_thread(_service, self)
        except Exception as error:
            self._failure = str(error) if isinstance(error, DflashError) else _internal(error)
            self._complain(f"no completions: {self._failure}")
            self.tell()
            return
        self._service.link.launch()
        for document in self.documents:
            self._service.opened(document, path_in_workspace(document.uri, self.folders))
        self.tell()
        await self._service.start()

    def opened(self, uri: str) -> None:
        """A document was opened: what prompts show of it is made ready before the first key."""
        document = self.documents.get(uri)
        if self._service is not None and document is not None and scheme(uri) in SCHEMES:
            self._service.opened(document, path_in_workspace(uri, self.folders))

    def saved(self, uri: str) -> None:
        """A document was written: others may use what it now defines."""
        if self._service is not None:
            self._service.saved(uri)

    def closed(self, uri: str) -> None:
        if self._service is not None:
            self._service.closed(uri)

    async def complete(self, uri: str, position: Position, *, explicit: bool = True) -> CompletionResult | None:
        """The completion at a position; None when there is nothing to show, and the status says why.

        explicit: the user asked for it.
        """
        try:
            result = await self._complete(uri, position, explicit)
        except Exception as error:  # a mistake of ours must not disturb the editor
            result = _internal(error)
        silent = result if isinstance(result, str) else "" if result.text else result.reason
        self._silence = silent
        self.tell()
        return None if isinstance(result, str) or not result.text else result

    async def _complete(self, uri: str, position: Position, explicit: bool) -> CompletionResult | str:
        if not self.settings.enable:
            return "disabled"
        document = self.documents.get(uri)
        if document is None:
            return "unknown document"
        if scheme(uri) not in SCHEMES:
            return f"no completions for {scheme(uri) or 'this kind of'} documents"
        path = path_in_workspace(uri, self.folders)
        if self.settings.excludes(path):
            return "excluded"
        if self._service is None:
            return self._failure or "engine loading"
        from server.completion.service import CompletionOptions

        options = CompletionOptions(explicit=explicit)
        return await self._service.complete(document, document.place(position), path, options)

    def accepted(self) -> None:
        """A completion was accepted. Only counted, and only here."""
        if self._service is not None:
            self._service.accepted += 1

    async def restart_engine(self) -> None:
        if self._service is not None:
            await self._service.link.restart()

    async def aclose(self) -> None:
        if self._service is not None:
            await self._service.aclose()

    def engine_failed(self, reason: str) -> None:
        self._complain(f"no completions: {reason}")

    def tell(self) -> None:
        """Say the status if it has changed."""
        status = self._new_status()
        if status != self._status:
            self._status = status
            self._say_status(asdict(status))

    def _new_status(self) -> Status:
        if self._service is None:
            state = "failed" if self._failure else "loading"
            return Status(state, reason=self._failure or "starting", profile=self.settings.profile)
        health, pace = self._service.link.health, self._service.pace
        return Status(
            state=health.state,
            progress=health.progress,
            reason=health.reason if health.state in ("loading", "failed") else self._silence or health.reason,
            profile=self._service.profile.name,
            target=health.target,
            draft=health.draft,
            acceptance_length=pace.acceptance_length,
            tokens_per_s=pace.tokens_per_s,
        )


def path_in_workspace(uri: str, folders: Sequence[str]) -> str:
    """The posix path of a document in its workspace folder, or its file name when it lies in none."""
    plain = unquote(uri)
    for folder in sorted((unquote(each).rstrip("/") for each in folders), key=len, reverse=True):
        if plain.startswith(folder + "/"):
            return plain[len(folder) + 1 :]
    return PurePath(plain.partition(":")[2] or plain).name


def _internal(error: Exception) -> str:
    """What a mistake of ours is called. Logged without the error's own words, which may hold the user's text."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    LOG.error("internal error: %s in %s:%s", type(error).__name__, where.filename, where.lineno)
    return f"internal error: {type(error).__name__}"


def _service(window: Window) -> CompletionService:
    from server.completion.engine_link import LinkListener
    from server.completion.service import CompletionService
    from server.context.open_documents import file_of
    from server.context.workspace import Workspace
    from server.profiles import load_profile

    folders = [folder for uri in window.folders if (folder := file_of(uri)) is not None]
    settings = window.settings
    workspace = Workspace(folders, settings.exclude, settings.exclude_by_language, indexed=True)
    listener = LinkListener(changed=lambda health: window.tell(), failed=window.engine_failed)
    profile = load_profile(window.settings.profile)
    return CompletionService(profile, listener, on_pace=window.tell, workspace=workspace)
