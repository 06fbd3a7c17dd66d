"""Every kernel compiles to machine code for the GPU it is written for: the interpreter takes more than the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton comes for Linux alone")

ROUND = {"_embed", "_skinny_linear", "_place_heads", "_attend", "_combine", "_argmax_of_tiles", "_accept"}
PROMPT = {"_rms_norm", "_chunk_attention"}
MIXTURE = {"_pick", "_experts", "_gather"}


@pytest.mark.parametrize("form", ["dense", "mixture", "FP8", "MXFP4 experts"])
def test_what_the_round_launches_compiles_for_an_h200(tmp_path: Path, form: str) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.core.compile_kernels", str(tmp_path), form]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    compiled = set(json.loads(done.stdout.splitlines()[-1]))
    assert compiled >= ROUND | PROMPT | (set() if form == "dense" else MIXTURE)
    assert list((tmp_path / "cache").glob("*/*.cubin"))
