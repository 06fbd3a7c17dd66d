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
            self._service = await asyncio.to_thread(_service, self.settings.profile, self)
        except DflashError as error:
            self._failure = str(error)
            self._complain(f"no completions: {error}")
            self.tell()
            return
        self._service.link.launch()
        self.tell()

    async def complete(self, uri: str, position: Position) -> CompletionResult | None:
        """The completion at a position; None when there is nothing to show, and the status says why."""
        try:
            result = await self._complete(uri, position)
        except Exception as error:  # a mistake of ours must not disturb the editor
            where = traceback.extract_tb(error.__traceback__)[-1]
            # Without the error's own words, which may hold text of the user.
            LOG.error("completion failed: %s in %s:%s", type(error).__name__, where.filename, where.lineno)
            result = f"internal error: {type(error).__name__}"
        silent = result if isinstance(result, str) else "" if result.text else result.reason
        self._silence = silent
        self.tell()
        return None if isinstance(result, str) or not result.text else result

    async def _complete(self, uri: str, position: Position) -> CompletionResult | str:
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
        return await self._service.complete(document, document.place(position), path)

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
            reason=health.reason or self._silence,
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


def _service(profile: str, window: Window) -> CompletionService:
    from server.completion.engine_link import LinkListener
    from server.completion.service import CompletionService
    from server.profiles import load_profile

    listener = LinkListener(changed=lambda health: window.tell(), failed=window.engine_failed)
    return CompletionService(load_profile(profile), listener, on_pace=window.tell)
