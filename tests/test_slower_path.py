"""A pair that runs by a slower path than its machine has is called that in plain words, before it is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_core import plain_path
from server.monitoring.device import Device
from server.monitoring.readiness import check_profile
from server.paths import asset
from server.profiles import load_profile
from tests.core import tiny


@pytest.fixture
def generic(private_dirs: Path) -> Path:
    """A profile whose target is of a family that transformers must compute."""
    target = tiny.write_target(private_dirs / "target", "gpt2")
    return _profile(private_dirs, target, tiny.write_draft(private_dirs / "draft"))


def _profile(root: Path, target: Path, draft: Path) -> Path:
    file = root / "own.toml"
    file.write_text(
        f'[engine]\nkind = "resident"\n[target]\npath = "{target}"\n[draft]\npath = "{draft}"\n'
        f'[prompt]\ntokenizer = "{asset("embedded", "tokenizer.json")}"\n'
    )
    return file


def test_doctor_says_that_a_target_is_computed_by_transformers(generic: Path) -> None:
    command = [sys.executable, "-P", "-m", "server", "doctor", "--profile", str(generic)]
    done = subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True)
    assert "can run, the target (gpt2) is computed by transformers, the slower path" in done.stdout
    report = json.loads(subprocess.run([*command, "--json"], env=os.environ, capture_output=True, check=True).stdout)
    assert {check["slower"] for check in report["profiles"] if check["profile"] == "own"} != {""}


def test_a_gpu_that_cannot_capture_graphs_is_named_with_the_reason(
    private_dirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs are made up: what torch would say of them."""
    monkeypatch.setattr(plain_path, "find_spec", lambda name: object())
    target, draft = tiny.write_target(private_dirs / "target"), tiny.write_draft(private_dirs / "draft")
    profile = load_profile(str(_profile(private_dirs, target, draft)))

    def slower(capability: str) -> str:
        gpu = {"name": "GPU", "memory": 80 << 30, "capability": capability}
        return check_profile(profile, Device(cuda=[gpu])).slower

    assert slower("9.0") == "" and check_profile(profile, Device()).slower == ""
    assert slower("7.5").endswith("the device is older than compute capability 8.0")
    monkeypatch.setattr(plain_path, "find_spec", lambda name: None)
    assert slower("9.0") == "on the GPU every step is launched by itself, which is slower: Triton is not installed"
    monkeypatch.setattr(plain_path, "find_spec", lambda name: object())
    wide = tiny.draft_config(block_size=32)
    profile = load_profile(str(_profile(private_dirs, target, tiny.write_draft(private_dirs / "wide", wide))))
    assert slower("9.0").endswith("the draft's block has more than 16 rows")
