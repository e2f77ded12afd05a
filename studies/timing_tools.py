"""What others time a model with, beside `hwbench measure`: a bare loop, torch's timer, pyperf. Milliseconds by statistic."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hwbench import measure
from hwbench.profiler.policy import Policy

WARMUP = 10


def bare_loop(path: Path, seconds: float) -> dict[str, float]:
    """What most scripts do: one session, one loop around run(), mean and minimum."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {i.name: np.zeros(i.shape, np.float32) for i in session.get_inputs()}
    for _ in range(WARMUP):
        session.run(None, inputs)
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return {
        "bare loop, mean": statistics.mean(times),
        "bare loop, median": statistics.median(times),
        "bare loop, min": min(times),
    }


SETUP = (
    "import numpy as np, onnxruntime as ort; o = ort.SessionOptions(); o.intra_op_num_threads = 1; "
    "s = ort.InferenceSession({path!r}, o, providers=['CPUExecutionProvider']); "
    "x = {{i.name: np.zeros(i.shape, np.float32) for i in s.get_inputs()}}"
)


def torch_timer(path: Path, seconds: float) -> dict[str, float]:
    """torch.utils.benchmark, adaptive, a third of the time at least."""
    from torch.utils.benchmark import Timer

    timer = Timer("s.run(None, x)", setup=SETUP.format(path=str(path)))
    return {
        "torch Timer, median": 1e3 * timer.adaptive_autorange(min_run_time=seconds / 3, max_run_time=5 * seconds / 3).median
    }


def pyperf_timer(path: Path) -> dict[str, float]:
    """The command of pyperf, where it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", "pyperf", "timeit", "--fast", "-q", "-o", str(out), "-s", SETUP.format(path=str(path))]
        done = subprocess.run([*command, "s.run(None, x)"], capture_output=True, text=True, check=False)
        if done.returncode:
            return {}
        runs = json.loads(out.read_text())["benchmarks"][0]["runs"]
    return {"pyperf, mean": 1e3 * statistics.mean(v for run in runs for v in run.get("values", []))}


def ours(path: Path, policy: Policy | None) -> dict[str, float]:
    """`hwbench measure`."""
    found = measure(path, workspace=path.parent, policy=policy)[0]
    return {
        "hwbench, minimum": found["latency_min_ms"],
        "hwbench, p50": found["latency_median_ms"],
        "hwbench, fastest run": found["latency_fastest_ms"],
    }
