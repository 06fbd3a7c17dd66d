"""The connection to a profile's engine: launched in the background, relaunched with growing pauses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from server.engine.breaker import CircuitBreaker
from server.engine.client import EngineClient
from server.engine.engine_metrics import EngineLoad, MetricsReader
from server.engine.launcher import ensure_engine, stop_engine
from server.engine.left_behind import LeftBehind
from server.engine.protocol import EngineBusy, EngineError, EngineHealth
from server.engine.retry import PATIENCE_S
from server.errors import DflashError
from server.profiles import Profile

METRICS_EVERY_S = 5.0
NO_METRICS_S = 300.0  # an engine that offers none is seldom asked
HANGING_S = 1.0  # an engine that hangs hardly ends by itself
LOOK_AGAIN_S = 10.0  # how old an engine's word about itself may be: it may have run short of memory since


@dataclass(frozen=True)
class LinkListener:
    """Who hears about the engine: `changed` of every change, `failed` once when it cannot be reached."""

    changed: Callable[[EngineHealth], None] = lambda health: None
    failed: Callable[[str], None] = lambda reason: None


class EngineLink:
    """One engine as one window sees it. `client` is None while it loads or cannot be reached.

    Nothing runs on its own: an engine that was lost is launched again when the next completion asks.
    The pause between attempts doubles until a completion has succeeded, so that an engine that dies of
    each request is not started over and over.

    A shared engine is not ours to start: it is left alone after failures in a row, and then asked for one token
    before the user's text goes there again. load: what it says of itself, None while unknown.
    """

    def __init__(self, profile: Profile, listener: LinkListener) -> None:
        self._profile = profile
        self._listener = listener
        self._launching: asyncio.Task[None] | None = None
        self._breaker = CircuitBreaker()
        self._told = False
        self._metrics = MetricsReader()
        self._metrics_at = 0.0  # time.monotonic() before which they are not read again
        self._reading: asyncio.Task[None] | None = None
        self.load: EngineLoad | None = None
        self.left_behind = LeftBehind()
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = 0.0  # time.monotonic()
        self.client: EngineClient | None = None
        self.health = EngineHealth(state="loading", reason="starting", profile=profile.name)

    @property
    def reason(self) -> str:
        """Why there is no client now, in a few words."""
        if self.health.state == "failed":
            return f"engine unavailable: {self.health.reason}"
        return "engine loading"

    def launch(self) -> None:
        """Begin to connect, and to start the engine, unless that is under way or its pause is not over."""
        if self.client is None and self._launching is None and self._breaker.state != "open":
            self._launching = asyncio.get_running_loop().create_task(self._launch(), name="launch engine")

    async def connect(self) -> EngineClient:
        """The engine, once it is ready, whatever the pause. Raises EngineError when it cannot be."""
        if self.client is None:
            client = await ensure_engine(self._profile, on_health=self._hear_of_loading)
            client.left_behind = self.left_behind  # goes on where the client before has ended
            try:
                health = await client.health()
                if self.is_shared and self._breaker.state == "half open":
                    await client.probe()
            except BaseException:
                await client.aclose()
                raise
            self.client = client
            self._looked_at = time.monotonic()
            self._change(health)
        return self.client

    @property
    def is_shared(self) -> bool:
        return self._profile.engine.is_shared

    async def failed(self, client: EngineClient, error: EngineError) -> None:
        """A completion failed at an engine that is not ours: after some in a row it is left alone for a while."""
        if client is not self.client:
            return
        retry_after_s = error.retry_after_s if isinstance(error, EngineBusy) else None
        if (retry_after_s or 0.0) > PATIENCE_S:
            self._breaker.trip(retry_after_s)
        elif not self._breaker.failed(retry_after_s):
            return
        self.client = None
        self._change(replace(self.health, state="failed", progress=None, reason=str(error)))
        self._tell(str(error))
        await client.aclose()

    async def _look(self, client: EngineClient) -> None:
        """What the engine says about itself now."""
        with contextlib.suppress(DflashError, OSError):  # the next completion will tell
            health = await client.health()
            if client is self.client:
                self._change(health)

    async def lost(self, client: EngineClient, reason: str, *, broke_off: bool = False) -> None:
        """The engine was not there for a completion: look again at once.

        It may have ended while idle, which is no news; one that broke off its answer is told.
        """
        if not self._let_go(client, reason):
            return
        if broke_off:
            self._tell(f"{reason}; it is started again")
        await client.aclose()
        self.launch()
        self._postpone()

    async def stalled(self, client: EngineClient, reason: str) -> None:
        """The engine hangs. Ours is ended, for all windows, since it serves none of them; then as when lost."""
        if not self._let_go(client, reason):
            return
        self._tell(f"{reason}; it is started again")
        await client.aclose()
        with contextlib.suppress(DflashError):  # a remote engine is not ours to stop
            await stop_engine(self._profile, patience_s=HANGING_S)
        self.launch()
        self._postpone()

    def _let_go(self, client: EngineClient, reason: str) -> bool:
        if client is not self.client:
            return False
        self.client = None
        self._change(replace(self.health, state="loading", progress=None, reason=reason))
        return True

    def succeeded(self) -> None:
        """A completion came through: whatever happens next is a new trouble."""
        self._breaker.succeeded()
        self._told = False
        client = self.client
        if client is None:
            return
        if time.monotonic() >= self._looked_at + LOOK_AGAIN_S:
            self._looked_at = time.monotonic()
            self._looking = asyncio.get_running_loop().create_task(self._look(client), name="look at the engine")
        if self._reading is not None or time.monotonic() < self._metrics_at:
            return
        if client.endpoint.dialect in ("sglang", "vllm"):
            self._reading = asyncio.get_running_loop().create_task(self._read_metrics(client), name="metrics")

    async def restart(self) -> None:
        """Stop the engine, for all windows, and launch it again."""
        await self.aclose()
        self._change(EngineHealth(state="loading", reason="restarting", profile=self._profile.name))
        self.succeeded()
        with contextlib.suppress(DflashError):  # a remote engine is not ours to stop, but we reconnect
            await stop_engine(self._profile)
        self.launch()

    async def aclose(self) -> None:
        """Let go of the engine, which goes on for other windows."""
        if self._reading is not None:
            self._reading.cancel()
        if self._launching is not None:
            self._launching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._launching
            self._launching = None
        if self._looking is not None:
            self._looking.cancel()
        if self.client is not None:
            client, self.client = self.client, None
            await client.aclose()

    async def _launch(self) -> None:
        try:
            await self.connect()
        except DflashError as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(error.strerror or "cannot be started")
        except Exception as error:  # a mistake of ours: silence must have a reason all the same
            self._fail(f"internal error: {type(error).__name__}")
        finally:
            self._launching = None

    def _fail(self, reason: str) -> None:
        self._postpone()
        self._change(replace(self.health, state="failed", progress=None, reason=reason))
        self._tell(reason)

    def _tell(self, reason: str) -> None:
        """Once for each trouble, until a completion has come through."""
        if not self._told:
            self._told = True
            self._listener.failed(reason)

    def _postpone(self) -> None:
        self._breaker.trip()

    async def _read_metrics(self, client: EngineClient) -> None:
        """Once in a while, and only where they are offered."""
        try:
            self.load = self._metrics.read(await client.metrics())
            self._metrics_at = time.monotonic() + (METRICS_EVERY_S if self.load else NO_METRICS_S)
            self._listener.changed(self.health)
        except DflashError:
            self._metrics_at = time.monotonic() + NO_METRICS_S
        finally:
            self._reading = None

    def _hear_of_loading(self, health: EngineHealth) -> None:
        # Ready is told with the client in place: the first request after it must not find it missing.
        if health.state not in ("ready", "degraded"):
            self._change(health)

    def _change(self, health: EngineHealth) -> None:
        if health != self.health:
            self.health = health
            self._listener.changed(health)
