"""What this machine can reach at most, and how large its caches are.

Bandwidth (GB/s) is read + written bytes of a copy between arrays larger than the caches; GFLOP/s is that of a
single-precision matrix product. Both are what numpy reaches, so lower bounds of the hardware's peaks. Measured in
processes of their own by `hwbench device detect`, twice; what the machine did meanwhile decides whether they may be cited.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hwbench.core.errors import UsageError
from hwbench.core.progress import step
from hwbench.device.system import CpuTimes, cpu_times, throttle_count, usable_cores

TIMEOUT_S = 120
BUSY_CORES, STOLEN, APART = 0.25, 0.05, 0.1
"""What disturbs: cores that others used, share of the running time a hypervisor took, distance of two readings of a peak."""


def caches_bytes() -> dict[str, int]:
    """Cache sizes of the first core, as the kernel states them; empty where it does not."""
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    caches: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        name = f"l{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")
        caches[name] = int(size[:-1]) * units[size[-1]] if size[-1] in units else int(size)
    return caches


_KERNELS = """
import json, sys, time, threading
import numpy as np
threads, copy_bytes = int(sys.argv[1]), int(sys.argv[2])
def best(run, seconds=0.4):
    run(); times = []; end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter(); run(); times.append(time.perf_counter() - start)
    return min(times)
n = 1024
a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
source, target = np.ones(copy_bytes // 8), np.ones(copy_bytes // 8)
parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
def copy():
    running = [threading.Thread(target=np.copyto, args=(t, s)) for s, t in parts]
    for t in running: t.start()
    for t in running: t.join()
print(json.dumps([[2e-9 * n**3 / best(lambda: np.matmul(a, b, out=c)), 2e-9 * copy_bytes / best(copy)] for _ in range(2)]))
"""


@dataclass(frozen=True)
class Peaks:
    """What was reached with some number of threads."""

    values: dict[str, float]
    disturbed: str = ""
    """What disturbed them, for they must not be cited then; empty where nothing was seen to."""


@dataclass(frozen=True)
class Moment:
    """What the machine had done until a moment."""

    times: CpuTimes | None
    mine_s: float
    """CPU time of this process and of children that ended."""
    throttled: int | None

    @classmethod
    def now(cls) -> Moment:
        """This one."""
        own = os.times()
        return cls(cpu_times(), own.user + own.system + own.children_user + own.children_system, throttle_count())


def measure(threads: int, caches: dict[str, int]) -> Peaks:
    """Both kernels in a process of their own, so that the thread count is really that."""
    import psutil

    copy_bytes = min(max(4 * max(caches.values(), default=0), 256 << 20), psutil.virtual_memory().available // 8, 1 << 30)
    env = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", _KERNELS, str(threads), str(copy_bytes)]
    before = Moment.now()
    with step(f"peak FLOP/s and bandwidth with {threads} thread{'s' * (threads > 1)}"):
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            told, complaint = process.communicate(timeout=TIMEOUT_S)
        except BaseException:  # Ctrl-C too, after which `subprocess.run` would not wait for it
            process.kill()
            process.communicate()
            raise
    if process.returncode:
        raise UsageError(f"The peak kernels failed on this machine: {complaint.strip().splitlines()[-1]}")
    readings = [dict(zip(("gflops_fp32", "bandwidth_gb_s"), each, strict=True)) for each in json.loads(told)]
    values = {name: max(each[name] for each in readings) for name in readings[0]}
    why = disturbance(before, Moment.now(), threads, usable_cores())
    why += [
        f"two readings of {name} lie {1 - low / values[name]:.0%} apart"
        for name in values
        if (low := min(each[name] for each in readings)) < (1 - APART) * values[name]
    ]
    return Peaks({f"{name}_{threads}_threads": round(value, 1) for name, value in values.items()}, "; ".join(why))


def less_with_more(one: Peaks, many: Peaks) -> Peaks:
    """The peaks of many threads; disturbed where one of them is clearly less than what a single thread reached."""
    pairs = zip(one.values.values(), many.values.values(), strict=True)
    if not any(value < (1 - APART) * alone for alone, value in pairs):
        return many
    return Peaks(many.values, "; ".join(filter(None, [many.disturbed, "less than with 1 thread"])))


def disturbance(before: Moment, after: Moment, threads: int, usable: int) -> list[str]:
    """What disturbed a measurement with so many threads between two moments, as far as this machine tells."""
    found = []
    if usable < threads:
        found.append(f"only {usable} cores may be used")
    if before.throttled is not None and after.throttled is not None and after.throttled > before.throttled:
        found.append("the CPU slowed down to cool")
    if before.times is None or after.times is None:
        return found
    busy_s, stolen_s = after.times.busy_s - before.times.busy_s, after.times.stolen_s - before.times.stolen_s
    others = (busy_s - (after.mine_s - before.mine_s)) / max(after.times.at_s - before.times.at_s, 1e-9)
    if others >= BUSY_CORES:
        found.append(f"other processes used {others:.1f} cores")
    if stolen_s > STOLEN * (busy_s + stolen_s):
        found.append(f"{stolen_s / (busy_s + stolen_s):.0%} of the running time was stolen")
    return found
