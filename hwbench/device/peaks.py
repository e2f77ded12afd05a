"""What this machine can reach at most, and how large its caches are.

Bandwidth (GB/s) is read + written bytes of a copy between arrays larger than the caches; GFLOP/s is that of a
single-precision matrix product. Both are what numpy reaches, so lower bounds of the hardware's peaks. Measured in
processes of their own by `hwbench device detect`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hwbench.core.errors import UsageError


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
def best(run, seconds=0.6):
    run(); times = []; end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter(); run(); times.append(time.perf_counter() - start)
    return min(times)
n = 1024
a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
flops = 2 * n**3 / best(lambda: np.matmul(a, b, out=c))
source, target = np.ones(copy_bytes // 8), np.ones(copy_bytes // 8)
parts = list(zip(np.array_split(source, threads), np.array_split(target, threads)))
def copy():
    running = [threading.Thread(target=np.copyto, args=(t, s)) for s, t in parts]
    for t in running: t.start()
    for t in running: t.join()
print(json.dumps([flops / 1e9, 2 * copy_bytes / best(copy) / 1e9]))
"""


def measure(threads: int, caches: dict[str, int]) -> dict[str, float]:
    """Both kernels in a process of their own, so that the thread count is really that."""
    import psutil

    copy_bytes = min(max(4 * max(caches.values(), default=0), 256 << 20), psutil.virtual_memory().available // 8, 1 << 30)
    env = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", _KERNELS, str(threads), str(copy_bytes)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise UsageError(f"The peak kernels failed on this machine: {done.stderr.strip().splitlines()[-1]}")
    gflops, bandwidth = json.loads(done.stdout)
    return {f"gflops_fp32_{threads}_threads": round(gflops, 1), f"bandwidth_gb_s_{threads}_threads": round(bandwidth, 1)}
