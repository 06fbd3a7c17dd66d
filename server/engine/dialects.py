"""What is asked of engines that are not ours, and what their chunks say: OpenAI's format and its extensions.

Formats read in SGLang 0.5.23 (`entrypoints/openai/protocol.py`, `serving_completions.py`), vLLM's main branch
(`entrypoints/openai/completion/protocol.py`) and llama.cpp's server documentation. None of them ran here but
llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server.engine.completion_body import whole, write_plain_body
from server.engine.protocol import BadRequest, CompletionRequest, Dialect, EngineError

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
MOST_TOKENS = 64  # of a request to a shared engine, whatever the profile says
MOST_STOPS = 4  # OpenAI's limit


@dataclass(frozen=True)
class Telling:
    """What an engine says of a whole completion beside OpenAI's fields; None where it says nothing."""

    rounds: int | None = None
    acceptance_length: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    reused_tokens: int | None = None


def write_request(
    request: CompletionRequest, dialect: Dialect, model: str, request_id: str, *, as_chat: bool
) -> tuple[str, dict[str, Any]]:
    """Path and body for another engine. BadRequest for a prompt that it cannot be sent."""
    if request.heal and not isinstance(request.prompt, str):
        raise BadRequest("this engine cannot heal a prompt of token ids")
    if as_chat and request.chat is None:
        raise BadRequest("this engine takes no completions, and the profile sends none as a chat")
    body = write_plain_body(request)
    # Others refuse 0; one token warms their prefix cache as well.
    body["max_tokens"] = min(MOST_TOKENS, max(1, request.max_tokens))
    body["model"] = model
    if isinstance(request.prompt, str):
        body["prompt"] = whole(request.prompt + request.heal)
    stops = stop_strings(request, as_chat=as_chat)
    if stops:
        body["stop"] = [whole(text) for text in stops[:MOST_STOPS]]
    if dialect in ("sglang", "vllm") and not isinstance(request.prompt, str):
        # Several tokens come in a chunk: only their ids tell how many, and where one of them is a stop.
        body["return_token_ids"] = True
    if dialect == "sglang":
        body |= {"rid": request_id, "return_spec_tokens_details": True}
    elif dialect == "vllm":
        body["request_id"] = request_id
    if not as_chat:
        return COMPLETIONS, body
    return CHAT, _as_chat(body, request, dialect)


def stop_strings(request: CompletionRequest, *, as_chat: bool) -> tuple[str, ...]:
    """All texts at which the answer ends; the client looks for them as well, inside what a chunk brings."""
    closing = (request.chat.closing,) if as_chat and request.chat is not None else ()
    return (*closing, *request.stop)


def _as_chat(body: dict[str, Any], request: CompletionRequest, dialect: Dialect) -> dict[str, Any]:
    """The body with messages: a question, and an answer that has begun and is to be gone on with."""
    assert request.chat is not None
    begun = whole(request.chat.opening) + body.pop("prompt")
    asked = {"role": "user", "content": whole(request.chat.question)}
    body["messages"] = [asked, {"role": "assistant", "content": begun}]
    if dialect in ("sglang", "vllm"):
        # A reasoning model would think first, and nobody waits for that at a key.
        body |= {"continue_final_message": True, "chat_template_kwargs": {"enable_thinking": False}}
    if dialect == "vllm":
        body["add_generation_prompt"] = False  # its default does not go with the other
    return body


def abort_request(dialect: Dialect, request_id: str) -> tuple[str, dict[str, Any]] | None:
    """Path and body that end a request; None where closing the connection is all that can be done."""
    return ("/abort_request", {"rid": request_id}) if dialect == "sglang" else None


def read_choice(event: Mapping[str, Any]) -> tuple[str, tuple[int, ...], str | None]:
    """Text, token ids and finish reason that an event brings. EngineError for another shape."""
    try:
        choices = event.get("choices") or []
        choice = choices[0] if choices else {}
        delta = choice.get("delta") or {}
        text = choice.get("text") or delta.get("content") or ""
        ids = choice.get("token_ids") or ()
        finish = choice.get("finish_reason")
        if not isinstance(text, str) or not isinstance(finish, str | None):
            raise TypeError
        return text, tuple(int(each) for each in ids), finish
    except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise EngineError("the engine's answer has another shape than a completion chunk") from error


def read_telling(event: Mapping[str, Any]) -> Telling | None:
    """What an event tells of the completion: SGLang's `sglext`, llama.cpp's `timings`. None when nothing."""
    details = _table(_table(event.get("sglext")).get("spec_tokens_details"))
    if details:
        rounds = _number(details.get("spec_verify_ct"))
        return Telling(
            rounds=int(rounds) if rounds else None, acceptance_length=_number(details.get("spec_accept_length"))
        )
    timings = _table(event.get("timings"))
    if not timings:
        return None
    tokens, drafted = _number(timings.get("predicted_n")), _number(timings.get("draft_n"))
    accepted = _number(timings.get("draft_n_accepted")) or 0.0
    rounds = tokens - accepted if tokens and drafted else None  # each round brings one token of the target's own
    reused = _number(timings.get("cache_n"))
    return Telling(
        rounds=int(rounds) if rounds else None,
        acceptance_length=tokens / rounds if tokens and rounds else None,
        prefill_ms=_number(timings.get("prompt_ms")),
        decode_ms=_number(timings.get("predicted_ms")),
        reused_tokens=None if reused is None else int(reused),
    )


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
