"""`bench engine` with a profile's real weights: every precision asked for, one report."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from server.benchmarks.plot import bar_plot
from server.context.tokenizer import PromptTokenizer
from server.engine.kept_precision import kept_precision
from server.errors import DflashError
from server.profiles import Profile

SOURCES = (
    "argparse.py",
    "tarfile.py",
    "json/decoder.py",
    "http/client.py",
    "subprocess.py",
    "difflib.py",
    "shutil.py",
    "configparser.py",
)
"""Files of the standard library whose beginnings are the prompts, unless others are named."""


@dataclass(frozen=True)
class EngineBench:
    """What to measure. context: prompt tokens. blocks: widths to verify, 0 for the policy's own choice."""

    profile: Profile
    context: int
    blocks: tuple[int, ...]
    dtypes: tuple[str, ...]
    prompts: int
    max_tokens: int
    repeats: int
    busy_core: bool


def code_prompts(profile: Profile, sources: Sequence[Path], context: int, count: int) -> list[list[int]]:
    """Beginnings of source files, each `context` tokens long. Raises DflashError when too few are long enough."""
    if profile.target is None or profile.draft is None or profile.prompt is None:
        raise DflashError(f"profile {profile.name} has no pair to measure")
    tokenizer = PromptTokenizer.from_file(profile.prompt.tokenizer)
    start = [profile.prompt.marker_ids["bos"]] if "bos" in profile.prompt.marker_ids else []
    paths = list(sources) or [Path(sysconfig.get_path("stdlib")) / name for name in SOURCES]
    prompts = []
    for path in paths:
        try:
            tokens = start + tokenizer.encode(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DflashError(f"{path} cannot be read as text") from error
        if len(tokens) >= context:
            prompts.append(tokens[:context])
    if not prompts:
        raise DflashError(f"no source file has {context} tokens")
    return prompts[:count]


def measure_engine(bench: EngineBench, prompts: list[list[int]], progress: Callable[[str], None]) -> dict[str, Any]:
    """The report of `bench engine --json`. Loads torch; its threads are those of the environment."""
    import torch

    from dflash_core.benchmarks.bandwidth import read_bandwidth
    from dflash_core.benchmarks.side_by_side import measure
    from dflash_core.checkpoints.draft import load_draft
    from dflash_core.engine import load_in_precision, serving_dtype
    from dflash_core.vocabulary import Vocabulary

    profile = bench.profile
    assert profile.target and profile.draft and profile.prompt  # or there were no prompts
    wanted = profile.engine.device
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted)
    kept = kept_precision(profile) if device.type == "cpu" and profile.engine.dtype == "auto" else None
    own = kept.picked if kept else str(serving_dtype(device)).removeprefix("torch.")
    vocabulary = Vocabulary(PromptTokenizer.from_file(profile.prompt.tokenizer).token_bytes)
    bandwidth = read_bandwidth(device)
    precisions: dict[str, dict[str, Any]] = {}
    beside: dict[str, Any] | None = None
    for name in dict.fromkeys(own if dtype == "auto" else dtype for dtype in bench.dtypes):
        target = load_in_precision(profile.target.path, name, device)  # type: ignore[arg-type]
        draft = load_draft(profile.draft.path, target, rotary_base=profile.draft.rotary_base)

        progress(name)
        run = partial(
            measure,
            target,
            draft,
            vocabulary,
            blocks=bench.blocks,
            bandwidth=bandwidth,
            max_tokens=bench.max_tokens,
            progress=progress,
        )
        precisions[name] = run(prompts, repeats=bench.repeats).to_json()
        if bench.busy_core and beside is None:
            progress(f"{name} beside a busy core")
            with busy_core():
                beside = run(prompts[:1], repeats=1).to_json()
    return _report(bench, device, bandwidth, precisions, beside)


def _report(
    bench: EngineBench,
    device: Any,
    bandwidth: float,
    precisions: dict[str, dict[str, Any]],
    beside: dict[str, Any] | None,
) -> dict[str, Any]:
    serving = next(iter(precisions.values()))
    ours = max(each["autoregressive"]["tokens_per_s"] for each in precisions.values())
    best = {name: max(run["tokens_per_s"] for run in each["runs"]) for name, each in precisions.items()}
    return {
        "device": _device(device),
        "date": datetime.date.today().isoformat(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "geometry": bench.profile.name,
        "dtype": serving["dtype"],
        "context": bench.context,
        "max_tokens": bench.max_tokens,
        "prompts": bench.prompts,
        "read_tbps": bandwidth / 1e12,
        "runs": serving["runs"],
        "autoregressive": {
            "token_ms": serving["autoregressive"]["round_ms"],
            "floor_token_ms": serving["autoregressive"]["floor_round_ms"],
            "tokens_per_s": serving["autoregressive"]["tokens_per_s"],
        },
        "speedup": best[serving["dtype"]] / serving["autoregressive"]["tokens_per_s"],
        "speedup_over_best": max(best.values()) / ours,
        "prefill": {"tokens": serving["prefill_tokens"], "ms": serving["prefill_ms"]},
        "texts_equal": all(each["texts_equal"] for each in precisions.values()),
        "largest_gap": max(each["largest_gap"] for each in precisions.values()),
        "precisions": precisions,
        "beside_busy_core": beside,
    }


@contextmanager
def busy_core() -> Iterator[None]:
    """One process that does nothing but compute, as a build or a browser does."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def _device(device: Any) -> str:
    import torch

    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    name = torch.cpu.get_capabilities().get("cpu_name", platform.processor())
    return f"{name}, {torch.get_num_threads()} threads of {os.cpu_count()} cores"


def table(report: dict[str, Any]) -> list[list[str]]:
    """Rows for a person: every precision, every width, and llama.cpp where it was measured."""
    rows = [["", "rows", "round ms", "floor ms", "draft ms", "acceptance", "tokens/s", "over autoregressive"]]
    for name, each in report["precisions"].items():
        alone = each["autoregressive"]
        for run in (alone, *each["runs"]):
            width = {1: "1, no draft", 0: "policy"}.get(run["block"], str(run["block"]))
            rows.append(
                [
                    name,
                    width,
                    f"{run['round_ms']:.1f}",
                    f"{run['floor_round_ms']:.1f}",
                    f"{run['draft_ms']:.1f}",
                    f"{run['acceptance_length']:.2f}",
                    f"{run['tokens_per_s']:.1f}",
                    f"{run['tokens_per_s'] / alone['tokens_per_s']:.2f}",
                ]
            )
    if found := report.get("llama_cpp"):
        rows.append(
            ["llama.cpp", "1, no draft", f"{found['token_ms']:.1f}", "", "", "", f"{found['tokens_per_s']:.1f}", ""]
        )
    return rows


def plot(report: dict[str, Any]) -> str:
    """Tokens a second of every row of the table as an SVG bar chart: a group a width, a bar a precision."""
    rows = table(report)[1:]
    groups, precisions = list(dict.fromkeys(row[1] for row in rows)), list(dict.fromkeys(row[0] for row in rows))
    rates = {(row[0], row[1]): float(row[6]) for row in rows}
    title = f"{report['geometry']}, context {report['context']}, {report['device']}"
    series: dict[str, Sequence[float | None]] = {
        name: [rates.get((name, group)) for group in groups] for name in precisions
    }
    return bar_plot(title, "tokens a second by rows verified", groups, series)


def step_table(report: dict[str, Any]) -> list[list[str]]:
    """Rows for a person: what each step of a geometry costs beside its floor, in milliseconds."""
    rows = [["step", "ms", "floor ms", "over floor"]]
    return rows + [[name, f"{ms:.2f}", f"{floor:.2f}", f"{ms / floor:.2f}"] for name, ms, floor in _steps(report)]


def step_plot(report: dict[str, Any]) -> str:
    """The same as an SVG bar chart: what was measured beside the floor."""
    steps = _steps(report)
    title = f"{report['geometry']}, random weights, context {report['context']}, {report['device']}"
    series: dict[str, Sequence[float | None]] = {
        "measured": [ms for _, ms, _ in steps],
        "floor": [floor for _, _, floor in steps],
    }
    return bar_plot(title, "milliseconds", [name for name, _, _ in steps], series)


def _steps(report: dict[str, Any]) -> list[tuple[str, float, float]]:
    alone = report["autoregressive"]
    steps = [("token", alone["token_ms"], alone["floor_token_ms"])]
    for run in report["runs"]:
        for name in ("draft", "verify", "round"):
            steps.append((f"{name} of {run['block']}", run[f"{name}_ms"], run[f"floor_{name}_ms"]))
    return steps
