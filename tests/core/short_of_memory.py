"""Run by test_memory_ladder.py in a process of its own, whose address space is really limited: prints JSON lines.

python -m tests.core.short_of_memory FOLDER load|run|weights MEGABYTES
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from dflash_core import Engine, EngineOptions, GenerationRequest
from dflash_core.errors import DFlashError
from tests.core import tiny

CONTEXT = 65536
PROMPT = [(7 * i) % 90 for i in range(3000)]


def limit(megabytes: float) -> None:
    """No more than this beyond what is mapped now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + int(megabytes * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))


def load(folder: Path) -> Engine:
    options = EngineOptions(device="cpu", dtype="float32", context=CONTEXT)
    return Engine.load(folder / "target", folder / "draft", tiny.token_bytes(), options)


def generate(engine: Engine, prompt: list[int], **options: Any) -> dict[str, Any]:
    """The answer to one request, or why there is none, with what the engine says about itself then."""
    tokens: list[int] = []
    try:
        generation = engine.submit(GenerationRequest(prompt=prompt, max_tokens=12, **options))
    except DFlashError as error:
        return {"refused": str(error), "degraded": engine.describe()["degraded"]}
    while generation.finish is None:
        step = engine.step()
        assert step is not None
        tokens += step.block.tokens if step.block else []
    described = engine.describe()
    return {"tokens": tokens, "finish": generation.finish, "error": generation.error} | {
        key: described[key] for key in ("degraded", "draft", "context", "sessions")
    }


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    folder, phase, megabytes = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    if phase != "run":
        warm = load(folder / "small")  # what torch itself takes is taken before the limit
        generate(warm, PROMPT[:100])
        del warm
        limit(megabytes)
        try:
            engine = load(folder if phase == "load" else folder / "wide")
        except DFlashError as error:
            return say(refused=str(error))
        return say(**generate(engine, PROMPT))
    engine = load(folder)
    say(**generate(engine, PROMPT))
    for _ in range(30):
        # Ever tighter: less than is mapped now, so what was just given up is not to be had again.
        limit(megabytes)
        generate(engine, [1] * 10)  # or the prompt's keys and values would still be there, and nothing be allocated
        answer = generate(engine, PROMPT)
        say(**answer)
        if answer.get("context", 0) < CONTEXT:
            break
    limit(48)  # the neighbour that took the memory is gone
    say(**generate(engine, PROMPT[:40]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
