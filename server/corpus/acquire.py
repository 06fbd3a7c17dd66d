"""Gets packages with their registry's own client, so that the user's index, proxy and key settings hold.

Every package has a folder of its own that appears in one rename, when the client has succeeded: what is
there is complete, and is not fetched again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from server.corpus.errors import CorpusError, PackageSkipped
from server.corpus.package_list import Package

DOWNLOADS_AT_ONCE = 4
TIMEOUT_S = 600
_ARCHIVE_ENDINGS = (".whl", ".zip", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".deb")
_NO_NETWORK = re.compile(
    r"NameResolution|name resolution|Failed to establish|Connection (refused|timed out)|ConnectTimeout"
    r"|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|Could not resolve|Could not connect",
    re.IGNORECASE,
)


def acquire(
    packages: Iterable[Package], downloads: Path, progress: Callable[[Package], None]
) -> tuple[dict[Package, list[Path]], dict[Package, str]]:
    """Get every package into its folder under `downloads`.

    Returns the archives of each package, and the reason for each that could not be had. Calls
    `progress(package)` after each. Raises CorpusError when there is not one package, or no network for all
    that are not here yet.
    """
    archives: dict[Package, list[Path]] = {}
    failed: dict[Package, str] = {}
    clients = _Clients()
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        running = {pool.submit(_acquire_one, package, downloads, clients): package for package in packages}
        try:
            for done in as_completed(running):
                package = running[done]
                try:
                    archives[package] = done.result()
                except PackageSkipped as error:
                    failed[package] = str(error)
                progress(package)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            clients.end()
            raise
    if not archives:
        raise CorpusError(f"no package could be had: {next(iter(failed.values()), 'the list is empty')}")
    return archives, failed


def _acquire_one(package: Package, downloads: Path, clients: _Clients) -> list[Path]:
    folder = downloads / package.folder
    if not folder.is_dir():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            _download(package, partial, clients)
            if not _archives(partial):
                raise PackageSkipped("its client brought no archive that can be read")
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return _archives(folder)


class _Clients:
    """The registry clients that run now, so that an interrupted build leaves none behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def run(self, command: list[str], folder: Path) -> tuple[int, str]:
        """Exit code and stderr. Raises subprocess.TimeoutExpired, FileNotFoundError."""
        with self._lock:
            if self._ended:
                raise PackageSkipped("interrupted")
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # a client has children of its own, which end with it
            )
            self._running.add(process)
        try:
            errors = process.communicate(timeout=TIMEOUT_S)[1]
        finally:
            self._end(process)
            with self._lock:
                self._running.discard(process)
        return process.returncode, errors

    def end(self) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def _archives(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(_ARCHIVE_ENDINGS))


def _download(package: Package, folder: Path, clients: _Clients) -> None:
    errors = ""
    for command in _commands(package, folder):
        try:
            code, stderr = clients.run(command, folder)
        except FileNotFoundError as error:
            raise PackageSkipped(f"{command[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise PackageSkipped(f"download took longer than {TIMEOUT_S} s") from error
        if code == 0:
            return
        errors += stderr
    if _NO_NETWORK.search(errors):
        raise PackageSkipped("no network")
    lines = [line.strip() for line in errors.splitlines() if re.match(r"(ERROR|E:|npm err)", line, re.I)]
    raise PackageSkipped(lines[-1][:200] if lines else f"{package.registry} client failed without a message")


def _commands(package: Package, folder: Path) -> list[list[str]]:
    """Commands to try in turn."""
    if package.registry == "python":
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "2"]
        pip += ["--disable-pip-version-check", "--no-input", "--dest", str(folder)]
        # An sdist comes second: to read its metadata pip runs the package's own build code.
        return [
            [*pip, "--only-binary", ":all:", package.spec],
            [*pip, "--no-binary", package.name, package.spec],
        ]
    if package.registry == "npm":
        npm = ["npm", "pack", "--ignore-scripts", "--no-color", "--loglevel", "error", "--fetch-retries", "2"]
        return [[*npm, "--pack-destination", str(folder), package.spec]]
    if package.registry == "debian":
        return [["apt-get", "download", "-qq", package.spec]]
    return [["apt-get", "source", "-qq", "--download-only", package.spec]]
