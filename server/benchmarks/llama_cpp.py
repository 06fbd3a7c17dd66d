"""llama.cpp with the same weights, as a process of its own Python: what a user without a GPU would pick instead."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from server.errors import DflashError

PATIENCE_S = 600

# Runs where llama-cpp-python is installed, which is not here. Greedy; the first token belongs to the prompt's time.
_SCRIPT = """
import json, sys, time
import llama_cpp
from llama_cpp import Llama
asked = json.load(sys.stdin)
model = Llama(asked["model"], n_ctx=asked["context"], n_threads=asked["threads"],
              n_threads_batch=asked["threads"], verbose=False)
runs = []
for _ in range(asked["repeats"]):
    for prompt in asked["prompts"]:
        model.reset()
        started = time.perf_counter()
        tokens = model.generate(prompt, top_k=1, temp=0.0, repeat_penalty=1.0, reset=True)
        text = [next(tokens)]
        read = time.perf_counter()
        for token in tokens:
            text.append(token)
            if len(text) > asked["max_tokens"]:
                break
        runs.append({"prompt": len(prompt), "prefill_ms": (read - started) * 1000,
                     "tokens": len(text) - 1, "decode_ms": (time.perf_counter() - read) * 1000, "text": text})
print(json.dumps({"version": llama_cpp.__version__, "runs": runs}))
"""


def measure_llama_cpp(
    python: Path, model: Path, prompts: Sequence[Sequence[int]], *, max_tokens: int, threads: int, repeats: int
) -> dict[str, Any]:
    """{version, model, tokens_per_s, token_ms, prefill_ms, prompt_tokens}; medians over all prompts and repeats.

    python: an interpreter with llama-cpp-python. Raises DflashError with one line.
    """
    for path in (python, model):
        if not path.is_file():
            raise DflashError(f"{path} does not exist")
    asked = {
        "model": str(model),
        "context": max(map(len, prompts)) + max_tokens + 8,
        "threads": threads,
        "max_tokens": max_tokens,
        "repeats": repeats,
        "prompts": [list(prompt) for prompt in prompts],
    }
    try:
        done = subprocess.run(
            [python, "-c", _SCRIPT],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DflashError(f"llama.cpp took longer than {PATIENCE_S} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise DflashError(f"llama.cpp failed: {lines[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    token_ms = statistics.median(run["decode_ms"] / run["tokens"] for run in found["runs"])
    return {
        "version": found["version"],
        "model": model.name,
        "token_ms": token_ms,
        "tokens_per_s": 1000 / token_ms,
        "prompt_tokens": found["runs"][0]["prompt"],
        "prefill_ms": min(run["prefill_ms"] for run in found["runs"] if run["prompt"] == found["runs"][0]["prompt"]),
    }
