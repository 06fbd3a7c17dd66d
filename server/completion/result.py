"""What a completion is, once it is there: text, range, why it ended, and what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from server.documents.positions import Range

Finish = Literal["boundary", "eos", "length", "cancelled", "empty"]

# What was shown already, a text kept, a generation that ran already, or one begun for the request.
Source = Literal["", "shown", "cache", "running", "new"]

SUPERSEDED = "superseded"


@dataclass(frozen=True)
class Stats:
    """Numbers of one completion; tokens and rounds are the engine's, healed ones among them.

    source: where the text came from.
    first_ms, total_ms: from the request until something, and all of it, could be shown.
    tokens_per_s: while decoding, prefill left out.
    """

    engine: str = ""
    device: str = ""
    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    rounds: int = 0
    acceptance_length: float = 0.0
    first_ms: float = 0.0
    total_ms: float = 0.0
    tokens_per_s: float = 0.0
    source: Source = ""


@dataclass(frozen=True)
class CompletionResult:
    """The answer to one request. `text` is "" when there is nothing to show, and `reason` says why.

    finish: "boundary" the unit was complete, "eos" the model ended it, "length" the tokens ran out,
    "cancelled" somebody wanted no more of it, "empty" nothing was left to show.
    """

    text: str
    range: Range
    finish: Finish
    reason: str
    stats: Stats

    def to_json(self) -> dict[str, Any]:
        """The object that `dflash-lsp complete --json` prints."""
        return asdict(self)


def empty(place: Range, reason: str, stats: Stats | None = None, finish: Finish = "empty") -> CompletionResult:
    """A result with nothing to show, and why."""
    return CompletionResult("", place, finish, reason, stats or Stats())
