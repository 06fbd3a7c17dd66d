"""dflash_core: tensors and tokens in, accepted blocks out.

A target model, a DFlash draft that fills a block of masked positions in one forward pass, and the loop that drafts,
verifies and keeps the longest right prefix. No HTTP, no editor, no files of the user.

    engine = Engine.load(target_folder, draft_folder, token_bytes, EngineOptions())
    generation = engine.submit(GenerationRequest(prompt=ids, max_tokens=64))
    while generation.finish is None:
        step = engine.step()
"""

from dflash_core.block_decoder import BlockDecoder, Round
from dflash_core.engine import Engine, EngineOptions, Step
from dflash_core.errors import CheckpointError, DFlashError, IncompatiblePairError, RequestError
from dflash_core.generation import Block, Generation, GenerationRequest, GenerationStats

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
