"""Fixtures of the proofs in real editors: a world with its recording, and a Neovim of each version asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from recording import RECORDING
from world import World, world

from neovim import Neovim, install_package, neovims, options


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--neovim", default="0.11", help="versions to prove, as 0.10,0.11,0.12")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "version" in metafunc.fixturenames:
        metafunc.parametrize("version", metafunc.config.getoption("--neovim").split(","), scope="session")


@pytest.fixture(scope="session")
def replay() -> Iterator[World]:
    """The world that the tests share, with one replay engine."""
    with world(RECORDING) as found:
        install_package(found)
        yield found


class Windows:
    """The Neovims of one version. One serves many tests, for a server takes a while to start; a failed test ends it."""

    def __init__(self, version: str, world: World) -> None:
        self._version, self._world = version, world
        self._shared: Neovim | None = None
        self._own: list[Neovim] = []

    def open(self, file: Path) -> Neovim:
        """The shared Neovim with this file alone, ready to complete."""
        if self._shared is None:
            self._shared = self._start(options(self._world), file)
        else:
            self._shared.escape()
            self._shared.type(f":silent! %bwipeout! | messages clear | edit {file}<Enter>")
            self._shared.wait_status(rf"(^|/){re.escape(file.name)} ")
        self._shared.wait_ready()
        return self._shared

    def start(self, *arguments: str | Path, init: str = "", **more: object) -> Neovim:
        """A Neovim for this test alone."""
        self._own.append(self._start(options(self._world) + init, *arguments, **more))
        return self._own[-1]

    def _start(self, init: str, *arguments: str | Path, **more: object) -> Neovim:
        return Neovim(self._version, self._world, *arguments, init=init, **more)  # type: ignore[arg-type]

    def test_ended(self, failed: bool) -> None:
        for each in self._own:
            each.close()
        self._own = []
        if failed:
            self.close()

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
        self._shared = None


@pytest.fixture(scope="session")
def session_windows(version: str, replay: World) -> Iterator[Windows]:
    if version not in neovims():
        pytest.fail(f"Neovim {version} is not set up: tests/e2e/editors_setup.sh --all")
    windows = Windows(version, replay)
    yield windows
    windows.close()


@pytest.fixture
def windows(session_windows: Windows, request: pytest.FixtureRequest) -> Iterator[Windows]:
    failed = request.session.testsfailed
    yield session_windows
    session_windows.test_ended(request.session.testsfailed > failed)
