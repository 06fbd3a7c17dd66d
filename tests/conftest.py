"""Fixtures that every test may use: the real target, and directories that are nobody else's."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from server import paths
from server.engine.client import EngineClient
from server.engine.launcher import ensure_engine
from server.profiles import Profile
from tests.engines import nothing_runs, own_directories, replay_profile, stop

# Real editors, driven with packages of their own: tests/e2e/run.sh runs them.
collect_ignore = ["e2e"]

# Before anything imports torch: two workers with a waiting thread each fill two cores, spinning ones block them.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that runs the suite in the background lets it ignore interrupts, and what it starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before anything imports Triton: without an NVIDIA driver its kernels run in its interpreter.
if not Path("/proc/driver/nvidia").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Taken before any test changes the environment: the user's own cache, where the real weights are.
REAL_CACHE = paths.cache_dir()
REAL_ENVIRONMENT = dict(os.environ)


@pytest.fixture(scope="session")
def embedded_target() -> Path:
    """Directory of the real converted target, fetched by the real command when it is not there."""
    command = [sys.executable, "-P", "-m", "server", "fetch", "embedded"]
    done = subprocess.run(command, env=REAL_ENVIRONMENT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return REAL_CACHE / "embedded" / "target"


@pytest.fixture
def private_dirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Cache, config, runtime and state directories of this test alone; returns the directory of them all.

    Its path is short, because a socket's path must be. Engines that were started here are ended with it.
    """
    # Not tmp_path, and not the system's own temporary directory, which is long on some systems.
    root = Path(tempfile.mkdtemp(prefix="dl-", dir="/tmp" if Path("/tmp").is_dir() else None))
    for name in ("CACHE", "CONFIG", "RUNTIME", "STATE"):
        directory = root / name.lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name}_DIR" if name == "RUNTIME" else f"XDG_{name}_HOME", str(directory))
    try:
        yield root
    finally:
        for record in root.glob("runtime/dflash-lsp/engine-*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                os.kill(json.loads(record.read_text(encoding="utf-8"))["pid"], signal.SIGTERM)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def private_target(private_dirs: Path, embedded_target: Path) -> Path:
    """Private directories whose cache holds the real target, by a link; returns the link.

    What was measured for it is linked too: once for a machine suffices, and tests that want it measured say so.
    """
    link = paths.cache_dir() / "embedded" / "target"
    link.parent.mkdir(parents=True)
    link.symlink_to(embedded_target)
    measured = REAL_CACHE / "precision"
    measured.mkdir(exist_ok=True)
    (paths.cache_dir() / "precision").symlink_to(measured)
    return link


@pytest.fixture(scope="module")
def directories() -> Iterator[Path]:
    """Private directories for the tests of one module, which share an engine."""
    with own_directories() as root:
        yield root


@pytest.fixture(scope="module")
def profile(directories: Path, request: pytest.FixtureRequest) -> Iterator[Profile]:
    """A replay profile of the module's own ENTRIES; its engine is ended with the module."""
    profile = replay_profile(directories, request.module.ENTRIES)
    yield profile
    stop(profile)


@pytest.fixture
async def engine(profile: Profile) -> AsyncIterator[EngineClient]:
    """A client of the module's replay engine, in which nothing of the test before runs any more."""
    client = await ensure_engine(profile)
    await nothing_runs(client)
    yield client
    await client.aclose()
