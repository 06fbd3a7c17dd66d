"""The stock `openai` client against our engine, and our client of other engines against it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2  # what the library is built on
import openai
import pytest

from server.engine.client import CompletionRequest, Endpoint, EngineClient
from server.engine.launcher import ensure_engine, stop_engine
from server.profiles import Profile, load_profile
from tests.engines import CANCELLED, LONG, count, nothing_runs, own_directories, replay_profile, stop

PROMPT = "def add(a, b):\n    return"


@pytest.fixture(scope="module")
def embedded(embedded_target: Path) -> Iterator[Profile]:
    from server import paths

    with own_directories():
        link = paths.cache_dir() / "embedded" / "target"
        link.parent.mkdir(parents=True)
        link.symlink_to(embedded_target)
        profile = load_profile("embedded")
        yield profile
        stop(profile)


@pytest.fixture
async def ours(embedded: Profile) -> AsyncIterator[EngineClient]:
    client = await ensure_engine(embedded)
    yield client
    await client.aclose()


def socket_of(client: EngineClient) -> str:
    return client.endpoint.address.removeprefix("unix:")


def stock(client: EngineClient) -> openai.AsyncOpenAI:
    """The library's own client; the socket is all that is told to it."""
    transport = httpx2.AsyncHTTPTransport(uds=socket_of(client))
    http = openai.DefaultAsyncHttpxClient(transport=transport, trust_env=False)
    return openai.AsyncOpenAI(api_key="unused", base_url="http://engine/v1", http_client=http, max_retries=0)


async def test_the_stock_client_completes_streams_and_lists_models(ours: EngineClient) -> None:
    async with stock(ours) as client:
        models = [model.id async for model in client.models.list()]
        asked: dict[str, Any] = {"model": models[0], "prompt": PROMPT, "max_tokens": 24}
        whole = await client.completions.create(**asked)
        stream = await client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        texts, usage, finish = [], None, None
        async for chunk in stream:
            texts += [choice.text for choice in chunk.choices]
            finish = next((choice.finish_reason for choice in chunk.choices if choice.finish_reason), finish)
            usage = chunk.usage or usage
    assert whole.choices[0].text == "".join(texts) and whole.choices[0].text.strip()
    assert whole.choices[0].finish_reason == finish
    assert usage is not None and whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens <= 24
    assert len(models) == 1


async def test_the_stock_client_stops_samples_and_sends_token_ids(ours: EngineClient) -> None:
    async with stock(ours) as client:
        stopped = await client.completions.create(model="", prompt=PROMPT, max_tokens=24, stop=["b"])
        assert "b" not in stopped.choices[0].text and stopped.choices[0].finish_reason == "stop"
        sampled = [
            await client.completions.create(model="", prompt=PROMPT, max_tokens=8, temperature=1.0, seed=7)
            for _ in range(2)
        ]
        assert sampled[0].choices[0].text == sampled[1].choices[0].text
        ids = await client.completions.create(model="", prompt=[0, 28, 198], max_tokens=4)
        assert ids.usage is not None and ids.usage.prompt_tokens == 3


async def test_the_stock_client_gets_its_own_errors(ours: EngineClient) -> None:
    async with stock(ours) as client:
        with pytest.raises(openai.BadRequestError, match="max_tokens must be an integer"):
            await client.completions.create(model="", prompt=PROMPT, max_tokens=-1)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="", messages=[{"role": "user", "content": "x"}])


@pytest.mark.parametrize("dialect", ["openai", "vllm", "sglang"])
async def test_our_client_of_other_engines_gets_the_same_text_from_ours(ours: EngineClient, dialect: Any) -> None:
    request = CompletionRequest(prompt=PROMPT, max_tokens=24)

    async def read(client: EngineClient) -> tuple[str, Any]:
        async with client.stream(request) as stream:
            return "".join([chunk.text async for chunk in stream]), stream.summary

    expected, told = await read(ours)
    client = EngineClient(Endpoint(ours.endpoint.address, dialect=dialect))
    text, summary = await read(client)
    assert (await client.health()).state == "ready"
    await client.aclose()
    assert text == expected
    assert summary.completion_tokens == told.completion_tokens
    # The draft may be off for some rounds of one and not of the other, but the engine tells it to both.
    assert summary.rounds > 0 and summary.acceptance_length >= 1.0


async def test_of_cancelled_requests_of_either_client_none_runs_on() -> None:
    with own_directories() as folder:
        profile = replay_profile(folder)
        ours = await ensure_engine(profile)
        try:
            async with stock(ours) as client:
                for _ in range(5):
                    stream = await client.completions.create(model="", prompt="long:\n", max_tokens=999, stream=True)
                    async for chunk in stream:
                        assert chunk.choices[0].text == LONG[0]
                        break
                    await stream.close()
            other = EngineClient(Endpoint(ours.endpoint.address, dialect="sglang"))
            for _ in range(5):
                async with other.stream(CompletionRequest(prompt="long:\n", max_tokens=64)) as run:
                    async for _ in run:
                        break
            await other.aclose()
            await nothing_runs(ours)
            assert await count(ours, CANCELLED) == 10
            # Ours has no /abort_request, and says so.
            assert (other.left_behind.cancelled, other.left_behind.unheard) == (5, 5)
        finally:
            await ours.aclose()
            await stop_engine(profile)
