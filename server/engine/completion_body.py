"""The JSON of `POST /v1/completions`: read and checked by the app, written by the client.

OpenAI's fields with an extension object `dflash`. Fields that are not listed here are passed over, so
plain OpenAI clients work unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from server.engine.protocol import BadRequest, CompletionRequest, DraftMode

# A stop list longer than this is a mistake, and each entry costs a search a round.
STOP_LIMIT = 64
DEFAULT_MAX_TOKENS = 16  # OpenAI's own default for completions


@dataclass(frozen=True)
class CompletionBody:
    """A checked request together with how the answer is to be sent."""

    request: CompletionRequest
    stream: bool


def read_completion_body(body: object) -> CompletionBody:
    """Check the decoded JSON body; BadRequest names the one field that is wrong and what it must be."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    extension = body.get("dflash")
    if extension is None:
        extension = {}
    if not isinstance(extension, dict):
        raise BadRequest("dflash must be an object")
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise BadRequest("stream_options must be an object")
    draft = extension.get("draft")
    if draft is None:
        draft = "auto"
    if draft not in ("auto", "on", "off"):
        raise BadRequest('dflash.draft must be "auto", "on" or "off"')
    request = CompletionRequest(
        prompt=_prompt(body),
        max_tokens=_integer(body, "max_tokens", DEFAULT_MAX_TOKENS, low=0),
        temperature=_number(body, "temperature", 0.0, low=0.0, high=10.0),
        top_p=_number(body, "top_p", 1.0, low=0.0, high=1.0, above=True),
        seed=_optional_integer(body, "seed"),
        stop=_stop(body),
        stop_token_ids=_token_ids(body, "stop_token_ids"),
        draft=cast(DraftMode, draft),
        block_size=_optional_integer(extension, "block_size", low=1, path="dflash.block_size"),
        session=_text(extension, "session"),
        client=_text(extension, "client"),
        priority=_integer(extension, "priority", 0, low=0, high=2, path="dflash.priority"),
        heal=_text(extension, "heal") or "",
    )
    return CompletionBody(request, stream=_boolean(body, "stream"))


def read_priority(value: object) -> int:
    """Check a priority given to `POST /v1/requests/{id}`; BadRequest otherwise."""
    return _integer({"priority": value}, "priority", 0, low=0, high=2)


def write_completion_body(request: CompletionRequest) -> dict[str, Any]:
    """The body for an engine of ours, streaming, without fields that hold their default."""
    body = write_plain_body(request)
    extension: dict[str, Any] = {
        "draft": request.draft if request.draft != "auto" else None,
        "block_size": request.block_size,
        "session": request.session,
        "client": request.client,
        "priority": request.priority or None,
        "heal": whole(request.heal) or None,
    }
    extension = {key: value for key, value in extension.items() if value is not None}
    if extension:
        body["dflash"] = extension
    return body


def write_plain_body(request: CompletionRequest) -> dict[str, Any]:
    """The body in OpenAI's fields alone, streaming."""
    prompt = request.prompt
    body: dict[str, Any] = {
        "prompt": whole(prompt) if isinstance(prompt, str) else prompt,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.top_p != 1.0:
        body["top_p"] = request.top_p
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = [whole(text) for text in request.stop]
    if request.stop_token_ids:
        body["stop_token_ids"] = list(request.stop_token_ids)
    return body


def whole(text: str) -> str:
    """The text with "?" for half a surrogate pair, which an editor can send but UTF-8 cannot hold."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _prompt(body: Mapping[str, Any]) -> str | list[int]:
    prompt = body.get("prompt")
    # OpenAI's batch form with one entry is the same request.
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return _clean(prompt, "prompt")
    if isinstance(prompt, list) and all(_is_integer(token) and token >= 0 for token in prompt):
        return prompt
    raise BadRequest("prompt must be a string or a list of token ids")


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    if stop is None:
        return ()
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise BadRequest("stop must be a non-empty string or a list of them")
    if len(texts) > STOP_LIMIT:
        raise BadRequest(f"stop may hold at most {STOP_LIMIT} strings")
    return tuple(_clean(text, "stop") for text in texts)


def _token_ids(body: Mapping[str, Any], name: str) -> tuple[int, ...]:
    ids = body.get(name)
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(_is_integer(token) and token >= 0 for token in ids):
        raise BadRequest(f"{name} must be a list of token ids")
    return tuple(ids)


def _text(extension: Mapping[str, Any], name: str) -> str | None:
    value = extension.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"dflash.{name} must be a string")
    return value if value is None else _clean(value, f"dflash.{name}")


def _clean(text: str, name: str) -> str:
    # JSON can carry half a surrogate pair, which is no character and cannot be turned into bytes.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest(f"{name} holds half a surrogate pair at character {error.start}") from error
    return text


def _boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false")
    return value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _optional_integer(
    body: Mapping[str, Any], name: str, *, low: int | None = None, path: str | None = None
) -> int | None:
    return None if body.get(name) is None else _integer(body, name, 0, low=low, path=path)


def _integer(
    body: Mapping[str, Any],
    name: str,
    default: int,
    *,
    low: int | None = None,
    high: int | None = None,
    path: str | None = None,
) -> int:
    value = body.get(name)
    if value is None:
        return default
    fits = _is_integer(value) and (low is None or value >= low) and (high is None or value <= high)
    if not fits:
        bounds = "" if low is None else f" of at least {low}" if high is None else f" from {low} to {high}"
        raise BadRequest(f"{path or name} must be an integer{bounds}")
    return cast(int, value)


def _number(
    body: Mapping[str, Any], name: str, default: float, *, low: float, high: float, above: bool = False
) -> float:
    value = body.get(name)
    if value is None:
        return default
    # A comparison also settles NaN, infinities, and whole numbers that no float can hold.
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high or (above and value == low):
        edge = "above" if above else "from"
        raise BadRequest(f"{name} must be a number {edge} {low:g} to {high:g}")
    return float(value)
