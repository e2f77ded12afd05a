"""What the operating system says of this machine, read and not judged; None where it cannot be read.

Every path is a parameter, so that any machine's /proc and /sys can be read anywhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
CPUS = Path("/sys/devices/system/cpu")
THERMAL = Path("/sys/class/thermal")
CGROUPS = Path("/sys/fs/cgroup")

Processes = Mapping[int, tuple[str, float]]
"""pid -> (name, CPU seconds so far)."""


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot over all cores, those of this process, and when they were read."""

    at_s: float
    busy_s: float
    stolen_s: float
    own_s: float


def cpu_times(stat: Path = PROC / "stat") -> CpuTimes | None:
    """CPU times as the kernel counts them now; None where it does not."""
    head, *fields = (read_text(stat) or "none").splitlines()[0].split()
    if head != "cpu" or len(fields) < 8 or not all(field.isdecimal() for field in fields):
        return None
    user, nice, system, _, _, irq, softirq, stolen = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[:8])
    own = os.times()
    return CpuTimes(time.monotonic(), user + nice + system + irq + softirq, stolen, own.user + own.system)


def process_times() -> Processes:
    """Every process seen from here but this one."""
    import psutil

    used_by = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        used = process.info["cpu_times"]
        if process.pid != os.getpid() and used is not None:
            used_by[process.pid] = (process.info["name"] or "unnamed", used.user + used.system)
    return used_by


def throttle_count(cpus: Path = CPUS) -> int | None:
    """How often any core or package slowed down to cool since boot; None where nothing counts it."""
    values = [read_number(path) for path in cpus.glob("cpu[0-9]*/thermal_throttle/*_throttle_count")]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def hottest_c(thermal: Path = THERMAL) -> float | None:
    """The highest temperature of any zone, in degrees Celsius; None where none can be read."""
    values = [read_number(path) for path in thermal.glob("thermal_zone*/temp")]
    return max((value / 1e3 for value in values if value is not None), default=None)


def memory_bytes() -> tuple[int, int]:
    """RAM available and swap in use."""
    import psutil

    return psutil.virtual_memory().available, psutil.swap_memory().used


def usable_cores() -> int:
    """Cores this process may run on; where no affinity exists, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quotas(own_cgroups: Path, root: Path) -> list[tuple[int, int]] | None:
    """(quota, period) in microseconds of every cgroup above this process that has one; None where cgroups cannot be read."""
    entries = [line.split(":", 2)[1:] for line in (read_text(own_cgroups) or "").splitlines()]
    paths = {controllers: PurePosixPath(path) for controllers, path in entries}
    # The CPU controller is either in a version 1 hierarchy or, if in none, in the unified one.
    first = next((controllers for controllers in paths if "cpu" in controllers.split(",")), "")
    bases = (root / first, root / "cpu") if first else (root, root / "unified")
    base = next((base for base in bases if (base / "cgroup.procs").is_file()), None)
    if base is None or first not in paths:
        return None
    # A container may see its own cgroup as the root while its path is the host's: every level up is tried.
    folders = [base / str(level).lstrip("/") for level in (paths[first], *paths[first].parents)]
    if first:
        pairs = [[read_text(folder / f"cpu.cfs_{what}_us") or "" for what in ("quota", "period")] for folder in folders]
    else:
        pairs = [(read_text(folder / "cpu.max") or "").split() for folder in folders]
    # "max" and -1 stand for no quota.
    return [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(part.isdecimal() for part in pair)]


def read_text(path: Path) -> str | None:
    """A file's text; None where it is missing, forbidden, empty or no text."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_number(path: Path) -> int | None:
    """A file's whole number; None where it holds none."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None
