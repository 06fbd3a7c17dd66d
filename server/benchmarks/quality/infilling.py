"""HumanEval single-line infilling: one line of a function is missing; whether the function's tests pass with ours.

Data: OpenAI's human-eval-infilling (MIT), Bavarian et al. 2022.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from server.errors import DflashError


@dataclass(frozen=True)
class Task:
    id: str
    prompt: str
    suffix: str
    solution: str
    test: str
    entry_point: str

    def program(self, line: str) -> str:
        """The function with the line in its hole, and its tests."""
        return f"{self.prompt}{line}{self.suffix}\n{self.test}\ncheck({self.entry_point})\n"


def read_tasks(file: Path, count: int | None = None, seed: int = 1) -> list[Task]:
    """The tasks of a file, or so many of them at random, the same for the same seed. Raises DflashError."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as opened:
            rows = [json.loads(line) for line in opened if line.strip()]
        tasks = [
            Task(r["task_id"], r["prompt"], r["suffix"], r["canonical_solution"], r["test"], r["entry_point"])
            for r in rows
        ]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DflashError(f"{file} is not a file of infilling tasks: {error}") from error
    return tasks if count is None or count >= len(tasks) else random.Random(seed).sample(tasks, count)


def one_line(text: str) -> str:
    """The first line of a completion that holds something, with its end: what the task asks for."""
    lines: Sequence[str] = text.split("\n")
    for number, line in enumerate(lines):
        if line.strip():
            return "\n".join([*lines[:number], line]) + "\n"
    return text
