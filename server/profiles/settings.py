"""What a profile says: target, draft, prompt format, engine kind and limits, as typed data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

EngineKind = Literal["resident", "remote", "replay"]
Dtype = Literal["auto", "float32", "bfloat16", "int8", "int4"]
# What an engine that is not ours understands beside OpenAI's own fields, and how it is asked to go on with text.
RemoteDialect = Literal["openai", "sglang", "vllm"]
RemoteApi = Literal["auto", "completions", "chat"]
PromptFormat = Literal["plain", "suffix-prefix-middle", "prefix-suffix-middle", "repository", "chat", "auto"]


@dataclass(frozen=True)
class EngineSettings:
    """How the engine of a profile runs, or where it is.

    kind: "resident" is a process of ours, "remote" an address, "replay" recorded text without a model.
    threads: CPU threads, None for the engine's own choice. memory_limit: bytes. context: tokens.
    devices: GPUs that the target's layers are split over, by number; () for as few as hold it.
    idle_minutes: a resident engine that nobody asks for this long ends.

    Of a remote engine: dialect, what it understands beside OpenAI's fields. api: "auto" goes over to chat when
    completions are refused. model: the name to ask for, None for the first that it lists. token_file, token_env:
    a file, or the name of an environment variable, that holds its bearer token. proxy: what stands between,
    since those of the environment are not used. fall_back: the profile that serves while it does not.
    """

    kind: EngineKind = "resident"
    address: str | None = None
    token_file: Path | None = None
    threads: int | None = None
    dtype: Dtype = "auto"
    device: str = "auto"
    devices: tuple[int, ...] = ()
    memory_limit: int | None = None
    context: int = 2048
    idle_minutes: float = 30
    recording: Path | None = None
    dialect: RemoteDialect = "openai"
    api: RemoteApi = "auto"
    model: str | None = None
    token_env: str | None = None
    proxy: str | None = None
    fall_back: str | None = None

    @property
    def is_shared(self) -> bool:
        """Whether others wait for the same engine, so that nothing is asked of it on suspicion."""
        return self.kind == "remote"


@dataclass(frozen=True)
class ModelSource:
    """A checkpoint directory (safetensors and config.json), and what it is called where a person reads it.

    rotary_base replaces the draft's own; None tries the bases that its config names, once. published: which published
    sizes it has, for what must be known before it is here. note: what a person must know of it, one line.
    """

    path: Path
    name: str | None = None
    revision: str | None = None
    rotary_base: float | None = None
    published: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class PromptSettings:
    """How a cursor position becomes token ids. Budgets and max_tokens are in tokens.

    format: "auto" is the one that the pair's self-test picked.
    related_budget: of the budget, what chunks of other places may take; None for a share that suits most targets.
    head: whether imports and heads of scopes above the shown text are shown.
    """

    tokenizer: Path
    format: PromptFormat = "plain"
    marker_ids: Mapping[str, int] = field(default_factory=dict)
    budget: int = 512
    suffix_budget: int = 0
    related_budget: int | None = None
    head: bool = True
    stop_ids: tuple[int, ...] = ()
    heal: bool = True
    max_tokens: int = 96


@dataclass(frozen=True)
class TextSettings:
    """How a cursor position becomes text, for an engine that is sent no token ids. Sizes in tokens, roughly.

    special: strings that are markers to its target, beside the usual ones; in user text they are broken up.
    """

    budget: int = 1024
    suffix_budget: int = 256
    max_tokens: int = 64
    heal: bool = True
    special: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """One pair of target and draft with everything needed to serve it.

    prompt: where token ids are sent. text: where text is; neither for a recording, which is sent plain text.
    """

    name: str
    file: Path
    engine: EngineSettings
    target: ModelSource | None
    draft: ModelSource | None
    prompt: PromptSettings | None
    text: TextSettings | None = None

    @property
    def key(self) -> str:
        """Short hex hash of everything that decides which engine serves this profile.

        The prompt is the server's affair and the idle time changes nothing that is loaded, so neither counts.
        """
        engine = asdict(self.engine)
        del engine["idle_minutes"]
        target = self.target and asdict(self.target)
        if target:
            del target["note"]
        parts = {
            "engine": engine,
            "target": target,
            "draft": self.draft and asdict(self.draft),
            "tokenizer": self.prompt and self.prompt.tokenizer,
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
