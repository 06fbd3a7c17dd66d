"""Fixtures of the proofs in real editors: a world with its recording, and a Neovim of each version asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from neovim import Neovim, closing, install_package, neovims, options
from recording import RECORDING
from world import World, world


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


@pytest.fixture
def start(version: str, replay: World) -> Iterator[Callable[..., Neovim]]:
    """Starts Neovims that are ended with the test; arguments as of Neovim's, after the world."""
    from contextlib import ExitStack

    if version not in neovims():
        pytest.fail(f"Neovim {version} is not set up: tests/e2e/editors_setup.sh --all")
    with ExitStack() as stack:

        def begin(*arguments: object, init: str = "", plugin: bool = True) -> Neovim:
            own = (options(replay) if plugin else "") + init
            return stack.enter_context(closing(Neovim(version, replay, *arguments, init=own)))  # type: ignore[arg-type]

        yield begin
