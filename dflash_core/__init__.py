"""dflash_core: tensors and tokens in, accepted blocks out.

A target model, a DFlash draft that fills a block of masked positions in one forward pass, and the loop that drafts,
verifies and keeps the longest right prefix. No HTTP, no editor, no files of the user.

    engine = Engine.load(target_folder, draft_folder, token_bytes, EngineOptions())
    generation = engine.submit(GenerationRequest(prompt=ids, max_tokens=64))
    while generation.finish is None:
        step = engine.step()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dflash_core.block_decoder import BlockDecoder, Round
    from dflash_core.engine import Engine, EngineOptions, Step
    from dflash_core.errors import CheckpointError, DFlashError, IncompatiblePairError, RequestError
    from dflash_core.generation import Block, Generation, GenerationRequest, GenerationStats

_HOMES = {
    "BlockDecoder": "block_decoder",
    "Round": "block_decoder",
    "Engine": "engine",
    "EngineOptions": "engine",
    "Step": "engine",
    "CheckpointError": "errors",
    "DFlashError": "errors",
    "IncompatiblePairError": "errors",
    "RequestError": "errors",
    "Block": "generation",
    "Generation": "generation",
    "GenerationRequest": "generation",
    "GenerationStats": "generation",
}


def __getattr__(name: str) -> Any:
    # On first use: converting a checkpoint or catching an error must not cost the import of torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'dflash_core' has no attribute {name!r}")
    return getattr(import_module(f"dflash_core.{_HOMES[name]}"), name)


__all__ = [
    "Block",
    "BlockDecoder",
    "CheckpointError",
    "DFlashError",
    "Engine",
    "EngineOptions",
    "Generation",
    "GenerationRequest",
    "GenerationStats",
    "IncompatiblePairError",
    "RequestError",
    "Round",
    "Step",
]
