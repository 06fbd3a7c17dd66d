"""Runs a generated program where it can do no harm: another user, no network, limits, a directory of its own.

Linux only, and only for root, who alone can become somebody else; anywhere else it is refused, never done without.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from server.errors import DflashError

NOBODY = 65534
CPU_S, WALL_S = 5, 10
MEMORY = 1 << 30  # bytes of address space
FILE_SIZE = 1 << 20  # bytes
PROCESSES = 16
NOT_SHUT_IN = 97  # exit code
# Runs as root in a process of its own, gives everything up, and only then becomes the program: a process with
# threads (torch's) must not do this between fork and exec.
_LAUNCHER = f"""
import ctypes, os, resource, sys
try:
    libc = ctypes.CDLL(None, use_errno=True)
    new_network, new_ipc = 0x40000000, 0x08000000
    if libc.unshare(new_network | new_ipc) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for kind, limit in (
        (resource.RLIMIT_CPU, {CPU_S}),
        (resource.RLIMIT_AS, {MEMORY}),
        (resource.RLIMIT_FSIZE, {FILE_SIZE}),
        (resource.RLIMIT_NPROC, {PROCESSES}),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
    no_new_privileges = 38
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
except OSError:
    os._exit({NOT_SHUT_IN})
os.execv(sys.executable, [sys.executable, "-I", "-B", sys.argv[1]])
"""


def refusal() -> str | None:
    """Why code cannot be run safely here; None when it can."""
    if sys.platform != "linux":
        return "generated code is run on Linux only, where it can be shut in"
    if os.geteuid() != 0:
        return "generated code is run by root only, who can run it as another user"
    try:
        return (
            None if run_program("import os; assert os.getuid() != 0") else "another user without network cannot be had"
        )
    except OSError as error:
        return f"another user without network cannot be had: {error.strerror or error}"


def run_program(program: str) -> bool:
    """Whether the Python program ends by itself, in time, without an error. Raises DflashError when it cannot be shut
    in; it is not run then."""
    folder = Path(tempfile.mkdtemp(prefix="dflash-run-"))
    try:
        file = folder / "program.py"
        file.write_text(program, encoding="utf-8")
        os.chown(folder, NOBODY, NOBODY)
        os.chown(file, NOBODY, NOBODY)
        process = subprocess.Popen(
            [_python(), "-I", "-B", "-c", _LAUNCHER, str(file)],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=WALL_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            # Its children too: they have its session, and nothing else has.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status == NOT_SHUT_IN:
            raise DflashError("generated code cannot be run here: another user without network cannot be had")
        return status == 0
    except OSError as error:
        raise DflashError(f"generated code cannot be run here: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _python() -> str:
    """An interpreter that another user may start: ours can lie in a home that is closed to him."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    if found is None:
        raise DflashError("no python3 in /usr/bin: generated code cannot be run as another user")
    return found
