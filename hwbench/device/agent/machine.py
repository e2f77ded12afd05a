"""What a worker can read of its machine while it measures: other load, throttling, memory, caches.

Standard library only, Python >= 3.9; None where the machine does not tell.
"""

from __future__ import annotations

import glob
import os
import resource
import sys
import time
from typing import Optional

CACHES = "/sys/devices/system/cpu/cpu0/cache/index*/size"
THROTTLES = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
DEFAULT_EVICTION_BYTES, MOST_EVICTION_BYTES = 64 << 20, 512 << 20


def busy_seconds(path: str = "/proc/stat") -> Optional[float]:  # noqa: UP045 - Python 3.9
    """CPU time spent by all processes since the machine started; time stolen by a hypervisor is not in it."""
    try:
        with open(path, encoding="ascii") as stream:  # noqa: PTH123
            user, nice, system, _, _, irq, softirq = (int(v) for v in stream.readline().split()[1:8])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def throttle_count(pattern: str = THROTTLES) -> Optional[int]:  # noqa: UP045
    """How often the kernel saw the CPU throttle."""
    try:
        counts = []
        for name in glob.glob(pattern):  # noqa: PTH207
            with open(name, encoding="ascii") as stream:  # noqa: PTH123
                counts.append(int(stream.read()))
    except (OSError, ValueError):
        return None
    return sum(counts) if counts else None


def peak_memory_bytes(path: str = "/proc/self/status") -> int:
    """The most memory this process ever held."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:  # noqa: PTH123
            kilobytes = next(int(line.split()[1]) for line in stream if line.startswith("VmHWM:"))
        return kilobytes * 1024
    except (OSError, ValueError, StopIteration):
        pass  # not Linux. There, getrusage counts what the host held that started this process, its own models included
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def eviction_bytes(pattern: str = CACHES) -> int:
    """Size of a buffer that pushes everything else out of the caches."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [0]
    try:
        for name in glob.glob(pattern):  # noqa: PTH207
            with open(name, encoding="ascii") as stream:  # noqa: PTH123
                text = stream.read().strip()
            sizes.append(int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text))
    except (OSError, ValueError):
        return DEFAULT_EVICTION_BYTES
    return min(2 * max(sizes), MOST_EVICTION_BYTES) or DEFAULT_EVICTION_BYTES


class Watch:
    """Reads the machine between its start and `stop`."""

    def __init__(self) -> None:
        self._wall, self._own, self._busy, self._throttles = (
            time.perf_counter(),
            time.process_time(),
            busy_seconds(),
            throttle_count(),
        )

    def stop(self) -> dict[str, Optional[float]]:  # noqa: UP045
        """Cores used by other processes and throttle events since the start."""
        wall, own = time.perf_counter() - self._wall, time.process_time() - self._own
        busy, throttles = busy_seconds(), throttle_count()
        others = None if busy is None or self._busy is None else round(max(0.0, (busy - self._busy - own) / wall), 3)
        heated = None if throttles is None or self._throttles is None else max(0, throttles - self._throttles)
        return {"other_cores": others, "throttled": heated}
