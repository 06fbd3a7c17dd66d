"""CPU threads of an engine process, and the environment that must be set before torch is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

MOST_THREADS = 8  # a few rows at a time gain nothing from more, and the editor needs cores too


def engine_environment(threads: int | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """Variables for an engine process: the profile's threads, else those the user's environment names.

    Spinning OpenMP threads beside one busy process were measured 30 times slower, hence "passive".
    """
    own_choice = inherited.get("OMP_NUM_THREADS") or min(physical_cores(), MOST_THREADS)
    return {
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": str(threads or own_choice),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }


def physical_cores() -> int:
    """Cores this process may use, hardware threads of one core counted once, a container's quota respected."""
    cores = _linux_cores() or os.cpu_count() or 1
    quota = _container_quota()
    return max(1, cores if quota is None else min(cores, quota))


def _linux_cores() -> int | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    usable = os.sched_getaffinity(0)
    siblings = set()
    for cpu in usable:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            siblings.add(path.read_text(encoding="ascii").strip())
        except OSError:
            return len(usable)
    return len(siblings)


def _container_quota() -> int | None:
    """Whole CPUs of a cgroup v2 limit, rounded up; None without one."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else -(-int(quota) // int(period))
    except (OSError, ValueError):
        return None
