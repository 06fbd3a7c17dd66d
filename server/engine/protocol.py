"""The engine's words: requests, chunks, summaries, health and errors, as Python types.

Client and app both speak through these, so a field is named once. The JSON that carries them
lives in `completion_body.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from server.errors import DflashError

DraftMode = Literal["auto", "on", "off"]
EngineState = Literal["loading", "ready", "degraded", "failed"]
# "dflash" is ours; to the others only what they document is sent.
Dialect = Literal["dflash", "openai", "sglang", "vllm"]
Api = Literal["auto", "completions", "chat"]

INTERACTIVE, ORDINARY, WARM_UP = 0, 1, 2


class EngineError(DflashError):
    """The engine could not do what was asked; the text is one clear line."""


class EngineUnavailable(EngineError):
    """No engine answers at the address."""


class EngineStalled(EngineError):
    """The engine is there but says nothing."""


class EngineBusy(EngineError):
    """The engine, or what stands before it, takes no more now. retry_after_s: when it will, None where not said."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineLoading(EngineError):
    """The engine is up but its model is not ready yet; `health` says how far it is."""

    def __init__(self, health: EngineHealth) -> None:
        done = "" if health.progress is None else f" ({health.progress:.0%})"
        super().__init__(f"the engine is loading{done}: {health.reason or 'starting'}")
        self.health = health


class BadRequest(EngineError):
    """The request itself is wrong; asking again will not help."""


@dataclass(frozen=True)
class Endpoint:
    """Where an engine answers: `unix:/path.sock`, `http://127.0.0.1:port`, or any http(s) URL.

    dialect: another than "dflash" for an engine that is not ours: no `dflash` field is sent to it.
    api: "auto" goes over to chat when completions are refused. model: None for the first that it lists.
    proxy: what stands between, if anything does; the environment is not asked.
    """

    address: str
    token: str | None = None
    dialect: Dialect = "dflash"
    api: Api = "auto"
    model: str | None = None
    proxy: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.dialect == "dflash"

    def __repr__(self) -> str:
        secret = "None" if self.token is None else "'...'"
        return f"Endpoint(address={self.address!r}, token={secret}, dialect={self.dialect!r})"


@dataclass(frozen=True)
class Chat:
    """The same prompt as a chat: a question, and how the answer begins before the prompt's text goes on."""

    question: str
    opening: str
    closing: str


@dataclass(frozen=True, kw_only=True)
class CompletionRequest:
    """One completion to be generated.

    prompt: plain text, or token ids of the target; special strings in text stay text.
    max_tokens: 0 only prefills, which warms the session.
    stop: texts at which the answer ends, themselves left out.
    heal: text that the first tokens must spell and that the answer leaves out.
    priority: 0 interactive (first), 1 ordinary, 2 warm-up and speculation (last).
    chat: for engines that take no completions of raw text. joint: a character that was put into special strings
    of the prompt so that they stay text, and that is taken out of the answer.
    """

    prompt: str | list[int]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    draft: DraftMode = "auto"
    block_size: int | None = None
    session: str | None = None
    client: str | None = None
    priority: int = INTERACTIVE
    heal: str = ""
    chat: Chat | None = None
    joint: str = ""


@dataclass(frozen=True)
class CompletionChunk:
    """What one round added.

    text: characters that are now certain; bytes of an unfinished character, and text that may yet turn
    out to be a stop string, come with a later chunk, so it can be empty.
    accepted, drafted: the round's accepted tokens (bonus token not counted) and drafted tokens.
    token_ids: the tokens the round committed.
    """

    text: str
    accepted: int = 0
    drafted: int = 0
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class CompletionSummary:
    """How a completion ended.

    finish: "eos", "stop", "length" or "cancelled" (another engine's "stop" stays "stop").
    acceptance_length: tokens per round, the bonus token counted; 0.0 without a round, or when not known.
    prefill_tokens, reused_tokens: prompt tokens computed now, and those taken from the session.
    prefill_ms, decode_ms: wall time at the engine, in milliseconds.
    """

    finish: str
    rounds: int
    acceptance_length: float
    prompt_tokens: int
    completion_tokens: int
    prefill_tokens: int
    reused_tokens: int
    prefill_ms: float
    decode_ms: float


@dataclass(frozen=True)
class EngineHealth:
    """What an engine says about itself.

    progress: share of loading that is done, 0.0 to 1.0, or None when unknown or not loading.
    reason: what it is doing, or why it failed; "" when there is nothing to say.
    target, draft: their names; the replay engine says "replay" here.
    precision: which `dtype` "auto" came to and why, one line; "" where it was not to be picked.
    memory: bytes that weights and caches hold, or None when unknown. context: tokens of one session, or None.
    kind: "resident" or "replay" for ours, "remote" for another engine.
    version: the dflash-lsp version that serves; "" for another engine.
    """

    state: EngineState
    progress: float | None = None
    reason: str = ""
    profile: str = ""
    target: str = ""
    draft: str = ""
    device: str = ""
    dtype: str = ""
    precision: str = ""
    memory: int | None = None
    context: int | None = None
    kind: str = ""
    version: str = ""
    pid: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `GET /health` answers."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> EngineHealth:
        """Read a `GET /health` answer of ours, passing over keys of a newer version; ValueError otherwise."""
        if found.get("state") not in ("loading", "ready", "degraded", "failed"):
            raise ValueError("no state")
        known = {field.name for field in fields(cls)}
        # A missing or null text is an empty one, so that callers never have to ask twice.
        texts = {"reason", "profile", "target", "draft", "device", "dtype", "precision", "kind", "version"}
        values: dict[str, Any] = {key: value for key, value in found.items() if key in known}
        for key in texts & set(values):
            values[key] = values[key] or ""
        return cls(**values)
