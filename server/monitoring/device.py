"""What this machine computes with, asked of torch in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROBE_S = 120.0  # a first import of torch from a cold disk takes long
PROBE = """
import json, torch
def cuda(index):
    found = torch.cuda.get_device_properties(index)
    return {"name": found.name, "memory": found.total_memory, "capability": f"{found.major}.{found.minor}"}
cpu = getattr(torch.cpu, "get_capabilities", dict)()
print(json.dumps({
    "torch": torch.__version__,
    "cpu": str(cpu.get("cpu_name", "")),
    "instructions": torch.backends.cpu.get_cpu_capability(),
    "bf16": any(bool(cpu.get(name)) for name in ("avx512_bf16", "amx_bf16", "avx10_2", "arm_bf16", "bf16")),
    "cuda": [cuda(index) for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else [],
    "mps": torch.backends.mps.is_available(),
}))
"""


@dataclass(frozen=True)
class Device:
    """What torch finds. bf16: the CPU multiplies bf16 itself. error: why torch could not be asked, one line.

    cuda: one {name, memory (bytes), capability} for each GPU.
    """

    torch: str = ""
    cpu: str = ""
    instructions: str = ""
    bf16: bool = False
    cuda: list[dict[str, Any]] = field(default_factory=list)
    mps: bool = False
    error: str = ""


def probe_device() -> Device:
    """Ask torch in a process of its own: importing it here would take seconds and memory for good."""
    command = [sys.executable, "-P", "-c", PROBE]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    try:
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        return Device(error=f"importing torch took longer than {PROBE_S:.0f} s")
    except OSError as error:
        return Device(error=f"{sys.executable} cannot be started: {error.strerror}")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Device(error=f"torch cannot be imported: {said[-1]}")
    try:
        return Device(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, TypeError, IndexError):
        return Device(error="torch answered with something unexpected")


def machine_memory() -> int | None:
    """Bytes of memory this process may have, a container's limit respected; None when unknown."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(found, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such limit: "max"
        return found
