"""An engine that knows no healing must begin its answer with what was cut off the prompt, or it is not used."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from server.completion.generated import Reader
from server.completion.generation import NOT_RETYPED, Generation
from server.completion.surroundings import surroundings
from server.context.prompt import Prompt, PromptBuilder
from server.documents.document import Document, Place
from server.engine.protocol import CompletionChunk, CompletionRequest, CompletionSummary
from server.profiles import load_profile

PROMPTS = PromptBuilder(load_profile("replay"))


SUMMARY = CompletionSummary("eos", 1, 1.0, 1, 1, 1, 0, 0.0, 0.0)


class FakeStream:
    """A fake of an engine and of its only stream: gives chunks of text, and ends with the text's end."""

    summary = SUMMARY

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = iter(texts)

    def stream(self, request: CompletionRequest, on_sent: object = None, text_of: object = None) -> FakeStream:
        return self

    async def __aenter__(self) -> FakeStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def cancel(self) -> None:
        pass

    def __aiter__(self) -> FakeStream:
        return self

    async def __anext__(self) -> CompletionChunk:
        for text in self._texts:
            return CompletionChunk(text)
        raise StopAsyncIteration


@pytest.mark.parametrize(
    ("retyped", "texts", "text", "reason"),
    [
        ("\n    ", ["\n    return a"], "return a", "eos"),
        ("\n    ", ["\n", "  ", "  return", " a"], "return a", "eos"),
        ("", ["return a"], "return a", "eos"),
        ("\n    ", ["return a"], "", NOT_RETYPED),
        ("\n    ", ["\n", "return a"], "", NOT_RETYPED),
        ("\n    ", ["\n "], "", "no text"),
        ("\n    ", [], "", "no text"),
    ],
)
async def test_the_answer_is_used_without_what_was_typed(
    retyped: str, texts: list[str], text: str, reason: str
) -> None:
    document = Document("untitled:a", "def f(a):\n    ", language="python")
    site = surroundings(document, Place(1, 4), "a.py", 1000)
    generation = Generation(site.spot, PROMPTS, goes_past=False)
    request = CompletionRequest(prompt=[], max_tokens=9)
    await generation.read(FakeStream(texts), request, Prompt([], retyped=retyped))  # type: ignore[arg-type]
    piece = Reader(site.spot, 0).read(generation.generated)
    assert (generation.generated.text[piece.start : piece.settled], piece.reason) == (text, reason)
