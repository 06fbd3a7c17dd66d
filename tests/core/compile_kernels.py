"""Run by test_kernels_compile.py in a process of its own: compiles for an H200 what the CUDA round launches.

python -m tests.core.compile_kernels FOLDER dense|mixture|FP8|"MXFP4 experts"; prints the names of the compiled kernels.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.cuda_decoder import CudaDecoder
from dflash_core.draft import Draft
from dflash_core.kernels import launch
from dflash_core.sessions import Session
from dflash_core.target import Target
from tests.core import tiny, tiny_mimo

H200 = GPUTarget("cuda", 90, 32)
CONTEXT = 96


class AbsentH200(DriverBase):  # type: ignore[misc]
    """A fake: what Triton asks of a device before it compiles. Nothing can be launched on it."""

    def __init__(self) -> None: ...

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return H200

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Any:
        raise NotImplementedError


def pair(folder: Path, form: str) -> tuple[Target, Draft]:
    draft: dict[str, Any] = {"num_hidden_layers": 1, "num_target_layers": 2, "dflash": {"target_layer_ids": [0, 1]}}
    if form in ("dense", "mixture"):
        family, more = ("qwen3", {}) if form == "dense" else ("qwen3_moe", tiny.MIXTURE)
        written = tiny.write_target(folder / "target", family, num_hidden_layers=2, **more)
        config = tiny.draft_config(**draft)
    else:
        stored, changes = tiny_mimo.few_layers(form)
        written = tiny_mimo.write_published(folder / "target", stored, **tiny_mimo.V2_5, **changes)
        nested = {"target_layer_ids": [0, 2], "swa_window_size": 12}
        config = tiny_mimo.draft_config(num_hidden_layers=1, num_target_layers=3, dflash=nested)
    target = load_target(written, dtype=torch.bfloat16)
    return target, load_draft(tiny.write_draft(folder / "draft", config, mask=True), target)


def main(folder: Path, form: str) -> None:
    driver.set_active(AbsentH200())
    launch.dependent_launch = lambda: True  # type: ignore[assignment]
    names: set[str] = set()
    run = JITFunction.run

    def compile_only(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        names.add(self.__name__)
        return run(self, *args, grid=grid, warmup=True, **options)

    JITFunction.run = compile_only
    target, draft = pair(folder, form)
    decoder, session = CudaDecoder(target, draft, CONTEXT), Session(target, draft, CONTEXT)
    decoder.prefill(session, list(range(40)))  # more rows than a block
    decoder.prefill(session, [1, 2, 3])  # an edit: forced rows
    for width in (decoder.block_size, 1):
        decoder.round(session, 7, width)
    print(json.dumps(sorted(names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
