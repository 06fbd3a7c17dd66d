"""An engine that knows no healing must begin its answer with what was cut off the prompt, or it is not used."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from server.completion.generation import NOT_RETYPED, Generation
from server.completion.surroundings import surroundings
from server.context.prompt import Prompt, PromptBuilder
from server.documents.document import Document, Place
from server.engine.protocol import CompletionChunk
from server.profiles import load_profile

PROMPTS = PromptBuilder(load_profile("replay"))


class FakeStream:
    """A fake of an engine's stream: gives chunks of text and no summary."""

    summary = None

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = iter(texts)

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
    generation = Generation(site, Prompt([], retyped=retyped), PROMPTS)
    outcome = await generation.read(FakeStream(texts))  # type: ignore[arg-type]
    assert (outcome.text, outcome.reason) == (text, reason)
