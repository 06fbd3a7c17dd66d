"""Other completions for a request that the user made by hand, for clients that cycle through them."""

from __future__ import annotations

from server.completion.document_completion import DocumentCompletion
from server.completion.generation import Generation
from server.completion.request import Request
from server.completion.result import CompletionResult
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
) -> list[CompletionResult] | None:
    """Up to two sampled completions for the request's site; None when it was superseded.

    They are generated one after the other, so that the session's KV serves both, and behind the greedy
    texts of other documents. Any newer request or edit of the document ends them.
    """
    results = []
    for sampling in SAMPLED:
        generation = Generation(request.site.spot, prompts, goes_past=False)
        state.alternative = generation
        submission.begin(generation, client, make_prompt, sampling=sampling)
        try:
            piece = await request.follow(generation)
        finally:
            generation.abort()
        if state.alternative is not generation:
            return None
        if piece.finish in (None, "cancelled") or generation.failure is not None:
            break
        stats = request.stopwatch.stats(submission.link.health, "new", generation)
        results.append(await request.answer(generation.generated, piece, stats))
    return results
