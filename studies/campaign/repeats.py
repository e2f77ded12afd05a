"""The same again and again: memory, open files and processes of one process that searches, or profiles, many times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hwbench.core.errors import MeasurementError
from hwbench.core.progress import Tick
from studies.campaign import jobs

FIRST = 5
"""Repeats after which everything that is kept once is there."""
LOOP = f"""
import json, os, shutil, sys, time, psutil
from pathlib import Path
import hwbench
from hwbench.profiler.policy import Policy
kind, root, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
me, end, at = psutil.Process(), time.monotonic() + seconds, 0
while time.monotonic() < end or at <= {FIRST}:
    if kind == "search":
        hwbench.search({jobs.SPACE!r}, limits={{"params_m": 6}}, out=root / "out", workspace=root, proxy="params",
                       evaluations=500, seed=at)
        shutil.rmtree(root / "out")
    else:
        hwbench.profile({jobs.SPACE!r}, workspace=root, policy=Policy(**{jobs.QUICK!r}))
        shutil.rmtree(root / "luts")
    at += 1
    print(json.dumps([at, me.memory_info().rss, me.num_fds(), len(me.children(recursive=True))]), flush=True)
"""


def repeats(base: Path, seconds: float, tick: Tick) -> dict[str, Any]:
    """Verb -> repeats, and what they held after the fifth and at the end."""
    return {kind: _repeated(kind, base, seconds / 2, tick) for kind in ("search", "profile")}


def _repeated(kind: str, base: Path, seconds: float, tick: Tick) -> dict[str, Any]:
    root = jobs.prepared(jobs.JOBS[0], base / f"{kind}-repeated", base)
    environment = {**os.environ, "PYTHONPATH": str(jobs.ROOT), jobs.MARK: kind, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LOOP, kind, str(root), str(seconds)]
    started, seen = time.monotonic(), []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(json.loads(line))
            tick(int(time.monotonic() - started), max(int(seconds), 1))
    if process.returncode or len(seen) <= FIRST:
        raise MeasurementError(f"Repeating {kind} ended with code {process.returncode} after {len(seen)} times.")
    first, last = seen[FIRST - 1], seen[-1]
    return {
        "times": len(seen),
        "memory_mb": [first[1] / 1e6, last[1] / 1e6],
        "files": [first[2], last[2]],
        "processes_left": len(jobs._of(kind)),
        "seconds": time.monotonic() - started,
    }
