"""Other completions for a request that the user made by hand, for clients that cycle through them."""

from __future__ import annotations

from server.completion.document_completion import DocumentCompletion
from server.completion.generation import Generation
from server.completion.request import Request
from server.completion.submission import MakePrompt, Sampling, Submission
from server.context.prompt import PromptBuilder
from server.engine.client import EngineClient

SAMPLED = (Sampling(seed=1), Sampling(seed=2))


async def alternatives(
    request: Request,
    state: DocumentCompletion,
    submission: Submission,
    client: EngineClient,
    prompts: PromptBuilder,
    make_prompt: MakePrompt,
) -> list[str]:
    """Up to two sampled texts for the request's site, with `\\n` line ends.

    They are generated one after the other, so that the session's KV serves both, and behind the greedy
    texts of other documents. Any newer request or edit of the document ends them.
    """
    texts = []
    for sampling in SAMPLED:
        generation = Generation(request.site.spot, prompts, goes_past=False)
        state.alternative = generation
        submission.begin(generation, client, make_prompt, sampling=sampling)
        try:
            piece = await request.follow(generation)
        finally:
            generation.abort()
        if piece.finish == "cancelled" or generation.failure is not None:
            break
        texts.append(generation.generated.text[piece.start : piece.settled])
    return texts
