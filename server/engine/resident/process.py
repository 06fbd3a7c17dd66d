"""The engine process around the app: its socket, its record, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from server import __version__
from server.engine.access import LoopbackAccess
from server.engine.app import EngineApp
from server.engine.backend import Backend
from server.engine.replay import ReplayBackend
from server.engine.whereabouts import EngineFiles, EngineRecord, write_private
from server.errors import DflashError
from server.monitoring.metrics import Metrics
from server.profiles import Profile

# Idle clients close after 5 s by themselves; closing first would race with their next request.
KEEP_ALIVE_S = 75
GOODBYE_S = 2  # how long running streams may take to say how they ended

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn without its signal handling, which ends the process before it could clean up."""

    def __init__(self, config: uvicorn.Config, backend: Backend) -> None:
        super().__init__(config)
        self._backend = backend

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more requests, and end those that run so that their clients hear it."""
        self.should_exit = True
        self._backend.stop()


def serve(profile: Profile, files: EngineFiles, *, loopback: bool) -> None:
    """Serve the profile until SIGTERM, SIGINT or idle for long. The caller holds the lock.

    Raises DflashError when it cannot listen.
    """
    files.remove()  # left by an engine that was killed; nobody else can own them while we hold the lock
    try:
        asyncio.run(_serve(profile, files, loopback=loopback))
    finally:
        files.remove()


async def _serve(profile: Profile, files: EngineFiles, *, loopback: bool) -> None:
    metrics = Metrics()
    backend = _backend(profile, metrics)
    app = EngineApp(backend, metrics, version=__version__, pid=os.getpid())
    asgi: ASGIApp = app.asgi
    token_file = None
    if loopback or not hasattr(socket, "AF_UNIX"):
        listener = _bind_loopback()
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(32)
        write_private(files.token, token)
        token_file, address = str(files.token), f"http://127.0.0.1:{port}"
        asgi = LoopbackAccess(asgi, token, port)
    else:
        listener = _bind_unix(files)
        address = f"unix:{files.socket}"
    server = Server(
        uvicorn.Config(
            asgi,
            access_log=False,
            log_config=None,
            log_level="warning",
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GOODBYE_S,
            server_header=False,
            date_header=False,
        ),
        backend,
    )
    _stop_on_signal(server)
    backend.start()
    files.write_record(EngineRecord(os.getpid(), address, __version__, time.monotonic(), token_file))
    log.info("engine %s for profile %s at %s", __version__, profile.name, address)
    idle = asyncio.create_task(_stop_when_idle(server, app, profile.engine.idle_minutes * 60))
    try:
        await server.serve(sockets=[listener])
    finally:
        idle.cancel()
        backend.stop()
        log.info("engine for profile %s ended", profile.name)


def _backend(profile: Profile, metrics: Metrics) -> Backend:
    if profile.engine.kind == "replay":
        if profile.engine.recording is None:
            raise DflashError(f"profile {profile.name}: a replay engine needs a recording")
        return ReplayBackend(profile.engine.recording, profile.name, metrics)
    if profile.engine.kind == "resident":
        from server.engine.resident.backend import ResidentBackend

        return ResidentBackend(profile, metrics)
    raise DflashError(f"profile {profile.name} names a remote engine: there is nothing to start")


def _bind_unix(files: EngineFiles) -> socket.socket:
    """Listen on a socket of mode 0600: uvicorn's own option would make it world-writable."""
    path = files.socket
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o077)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise DflashError(f"cannot listen on {path}: {error.strerror}") from error
    finally:
        os.umask(before)
    return listener


def _bind_loopback() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise DflashError(f"cannot listen on 127.0.0.1: {error.strerror}") from error
    return listener


def _stop_on_signal(server: Server) -> None:
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(name, server.stop)
        except NotImplementedError:  # Windows
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(server.stop))


async def _stop_when_idle(server: Server, app: EngineApp, limit_s: float) -> None:
    while True:
        left = limit_s - app.idle_seconds()
        if left <= 0:
            break
        await asyncio.sleep(left)
    log.info("nobody asked for %.0f minutes", limit_s / 60)
    server.stop()
