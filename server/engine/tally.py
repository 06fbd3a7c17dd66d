"""What the chunks of one stream add up to: text that may be shown, and the completion's numbers.

An engine of ours says all of it. Others are read as far as they tell: a chunk may carry several tokens, cut a
surrogate pair in two, or run past a stop string or a stop token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.engine.dialects import Telling, read_choice, read_telling
from server.engine.protocol import CompletionChunk, CompletionSummary, EngineBusy, EngineError
from server.engine.text_assembly import TextAssembly

BUSY = (429, 502, 503, 504)
TextOf = Callable[[Sequence[int]], str]


class Tally:
    """One stream's.

    stop, stop_ids: texts and tokens at which to end it, where the engine may run past them; joint: to be left out.
    text_of: what token ids spell, "" where that is not known.
    """

    def __init__(
        self,
        stop: tuple[str, ...] = (),
        joint: str = "",
        stop_ids: Sequence[int] = (),
        text_of: TextOf = lambda ids: "",
    ) -> None:
        self._begun = time.monotonic()
        self._first: float | None = None
        self._last = self._begun
        self._rounds = 0
        self._tokens = 0  # that chunks showed the ids of
        self._finish: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._extension: Mapping[str, Any] = {}
        self._telling = Telling()
        self._assembly = TextAssembly(stop)
        self._joint = joint
        self._stop_ids = frozenset(stop_ids)
        self._text_of = text_of
        self._ids: list[int] = []  # all that came, up to a stop token
        self._raw = ""  # the text that came with them
        self._at_stop_token = False
        self._half = ""  # the first half of a surrogate pair

    @property
    def stopped(self) -> bool:
        """Whether a stop string or a stop token was found: what comes after it is not wanted."""
        return self._assembly.stopped or self._at_stop_token

    @property
    def tokens(self) -> int:
        """Tokens that have come, at least one a chunk."""
        return max(self._tokens, self._rounds)

    def add(self, event: Mapping[str, Any]) -> CompletionChunk | None:
        """The chunk that an event carries, or None when it carries no text and was no round."""
        if "error" in event:
            raise stream_error(event["error"])
        try:
            extension = event.get("dflash") or {}
            text, ids, finish = read_choice(event)
            usage = event.get("usage") or self._usage
            if not isinstance(usage, Mapping):
                raise TypeError
            self._usage, self._finish = usage, finish or self._finish
            self._telling = read_telling(event) or self._telling
            text = self._certain(self._before_stop_token(text, ids))
            if "finish" in extension:
                self._extension = extension
                text += self._rest()
                return CompletionChunk(text) if text else None
            ids = tuple(extension.get("token_ids") or ids)
            if not text and not ids:
                return None
            self._count(len(ids))
            return CompletionChunk(text, int(extension.get("accepted", 0)), int(extension.get("drafted", 0)), ids)
        except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
            raise EngineError("the engine's answer has another shape than a completion chunk") from error

    def _before_stop_token(self, text: str, ids: Sequence[int]) -> str:
        """The text of a chunk up to a stop token among its ids.

        A round may accept a stop token and more behind it. Where the text cannot be told apart, all of the chunk is
        left out rather than something shown that the target would not have written.
        """
        if self._at_stop_token:
            return ""
        place = next((place for place, id in enumerate(ids) if id in self._stop_ids), None)
        self._ids += ids[:place]
        if place is None:
            self._raw += text
            return text
        self._at_stop_token = True
        whole = self._text_of(self._ids)
        if whole and whole.startswith(self._raw):
            return whole[len(self._raw) :]
        return text if place == len(ids) - 1 else ""

    def rest(self) -> CompletionChunk | None:
        """Text that was held back, once the stream has ended."""
        text = self._rest()
        return CompletionChunk(text) if text else None

    def _count(self, tokens: int) -> None:
        self._rounds += 1
        self._tokens += tokens
        self._last = time.monotonic()
        self._first = self._first or self._last

    def _certain(self, text: str) -> str:
        """The text that may be shown, of all that has come."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half, text = text[-1], text[:-1]
        # Two halves that came apart are two characters until they are joined.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if self._joint:
            text = text.replace(self._joint, "")
        return self._assembly.add(text.encode("utf-8"))

    def _rest(self) -> str:
        half, self._half = ("\ufffd" if self._half else ""), ""
        return self._assembly.add(half.encode()) + self._assembly.finish()

    def summary(self, *, cancelled: bool = False) -> CompletionSummary:
        """The engine's own summary, or what another engine's stream tells; EngineError when it broke off.

        cancelled: we have ended it, so that the engine has not said how it would have.
        """
        if self.stopped:
            self._finish = "stop"
        elif cancelled:
            self._finish = "cancelled"
        elif self._finish is None:
            raise EngineError("the engine's answer broke off")
        said, telling = self._extension, self._telling
        tokens = int(self._usage.get("completion_tokens") or self.tokens)
        rounds = int(said.get("rounds", telling.rounds or self._rounds))
        prompt = int(self._usage.get("prompt_tokens") or 0)
        details = self._usage.get("prompt_tokens_details") or {}
        reused = int(said.get("reused_tokens", telling.reused_tokens or details.get("cached_tokens") or 0))
        # A chunk is a round of ours; of others it may be several, so only what they say is believed.
        acceptance_length = said.get("acceptance_length", telling.acceptance_length or 0.0)
        return CompletionSummary(
            finish=str(said.get("finish", self._finish)),
            rounds=rounds,
            acceptance_length=float(acceptance_length),
            prompt_tokens=prompt,
            completion_tokens=tokens,
            prefill_tokens=int(said.get("prefill_tokens", max(0, prompt - reused))),
            reused_tokens=reused,
            prefill_ms=float(said.get("prefill_ms", telling.prefill_ms or self._prefill_s() * 1000)),
            decode_ms=float(said.get("decode_ms", telling.decode_ms or self._decode_s() * 1000)),
        )

    def _prefill_s(self) -> float:
        return 0.0 if self._first is None else self._first - self._begun

    def _decode_s(self) -> float:
        """Time of all chunks as far as it can be told from when they came: the first one's start is not seen."""
        if self._first is None or self._rounds < 2:
            return self._last - self._begun
        return (self._last - self._first) * self._rounds / (self._rounds - 1)


def stream_error(error: object) -> EngineError:
    """What an error object means, in an answer or inside a stream that began well."""
    code = error.get("code") if isinstance(error, Mapping) else None
    said = one_line(error.get("message") or error.get("detail") if isinstance(error, Mapping) else error)
    if code in BUSY:
        return EngineBusy(said or "the engine is busy")
    return EngineError(said or "the engine failed without saying why")


def one_line(message: object) -> str:
    return " ".join(str(message).split()) if message else ""
