"""What was measured for a pair is kept, and holds until the processor, torch or the weights change."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from engines import wait_for_end

from server import paths
from server.engine import kept_precision as module
from server.engine.client import CompletionRequest, EngineLoading
from server.engine.kept_precision import keep_precision, kept_precision
from server.engine.launcher import ensure_engine, stop_engine
from server.engine.protocol import EngineHealth
from server.profiles import load_profile

FOUND = {"picked": "int4", "reason": "1.2 times float32 here", "costs": [{"precision": "int4", "read_ms": 1.0}]}


@pytest.fixture
def kept(private_target: Path) -> Path:
    """The file of a kept measurement of the embedded pair."""
    (paths.cache_dir() / "precision").unlink()  # the link to what was really measured
    keep_precision(load_profile("embedded"), FOUND)
    (file,) = (paths.cache_dir() / "precision").iterdir()
    return file


def test_what_was_measured_is_kept_for_its_owner_alone(kept: Path) -> None:
    found = kept_precision(load_profile("embedded"))
    assert found is not None and (found.picked, found.reason) == ("int4", FOUND["reason"])
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"picked": "int3", "reason": "", "costs": []}', "\udcff"])
def test_a_file_that_cannot_be_read_is_as_none(kept: Path, text: str) -> None:
    kept.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert kept_precision(load_profile("embedded")) is None


def test_other_torch_processor_threads_or_rules_mean_another_measurement(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = load_profile("embedded")
    for name, value in (("VERSION", 0), ("_processor", lambda: "another")):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            assert kept_precision(profile) is None
    with monkeypatch.context() as changed:
        changed.setattr("importlib.metadata.version", lambda name: "0.1")
        assert kept_precision(profile) is None
    with monkeypatch.context() as changed:
        changed.setenv("OMP_NUM_THREADS", "77")
        assert kept_precision(profile) is None
    assert kept_precision(profile) is not None


def test_other_weights_mean_another_measurement(kept: Path, tmp_path: Path) -> None:
    link = paths.cache_dir() / "embedded" / "target"
    link.unlink()
    link.mkdir()
    (link / "model.safetensors").write_bytes(b"other")
    assert kept_precision(load_profile("embedded")) is None


def test_a_disk_that_takes_nothing_costs_nothing_else(kept: Path) -> None:
    kept.unlink()
    kept.parent.rmdir()
    kept.parent.write_text("a file where the folder belongs")
    keep_precision(load_profile("embedded"), FOUND)
    assert kept_precision(load_profile("embedded")) is None


async def test_the_first_start_measures_and_every_report_says_what_was_picked(private_target: Path) -> None:
    (paths.cache_dir() / "precision").unlink()
    profile = load_profile("embedded")
    health = await _ready()
    kept = kept_precision(profile)
    assert kept is not None and health.dtype == kept.picked
    assert health.precision == f"{kept.picked}: {kept.reason}"
    await stop_engine(profile)
    for command in ("models", "doctor"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "server", command), env=os.environ, stdout=asyncio.subprocess.PIPE
        )
        assert health.precision in (await process.communicate())[0].decode()
    # The second start takes what is kept, whatever it says.
    other = json.loads(next((paths.cache_dir() / "precision").iterdir()).read_text())
    keep_precision(profile, other | {"picked": "int8", "reason": "kept"})
    assert (await _ready()).precision == "int8: kept"
    await stop_engine(profile)


async def test_an_engine_told_to_end_while_it_measures_ends_and_keeps_nothing_half_measured(
    private_target: Path,
) -> None:
    folder = paths.cache_dir() / "precision"
    folder.unlink()
    profile = load_profile("embedded")
    client = await ensure_engine(profile, wait_ready=False)
    try:
        while "measuring" not in (health := await client.health()).reason:
            assert health.state == "loading"
            await asyncio.sleep(0.02)
        with pytest.raises(EngineLoading, match="measuring"):
            async with client.stream(CompletionRequest(prompt="x", max_tokens=1)):
                pass
    finally:
        await client.aclose()
    assert await stop_engine(profile)
    assert health.pid is not None
    wait_for_end(health.pid)
    assert not folder.exists() or not list(folder.iterdir())


async def _ready() -> EngineHealth:
    client = await ensure_engine(load_profile("embedded"))
    try:
        return await client.health()
    finally:
        await client.aclose()
