"""What measuring itself costs: seconds and memory of a whole command, and what a burst adds to a bare loop."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hwbench.core.errors import MeasurementError
from hwbench.device.agent.worker import Loaded
from hwbench.network import onnx_writer
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler.policy import Policy
from hwbench.runtime.onnxruntime import Onnxruntime


def watched(*command: str) -> dict[str, float]:
    """Runs Python with these arguments and watches the memory of it and its workers together."""
    import psutil

    started = time.monotonic()
    process = psutil.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        total = 0
        for one in [process, *process.children(recursive=True)]:
            try:
                total += one.memory_info().rss
            except psutil.Error:
                continue
        peak = max(peak, total)
        time.sleep(0.1)
    if process.returncode:
        raise MeasurementError(f"python {' '.join(command)} failed with exit code {process.returncode}.")
    return {"seconds": time.monotonic() - started, "peak_memory_mb": peak / 1e6}


def harness_overhead(key_spec: OpSpec, rounds: int = 20) -> dict[str, float]:
    """What a burst reads over a bare loop around the same session, in turns in one process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "op.onnx"
        with path.open("wb") as stream:
            onnx_writer.write_model(ops.single(key_spec), Setting(), stream)
        session = Onnxruntime().load(str(path), {"threads": 1, "dtype": "fp32"}, {}, {})
    session.run()
    loaded = Loaded(session, "back-to-back")
    loaded.warm_up(Policy().message())
    run = session.run
    runs = max(1, int(40e6 / loaded.fastest_ns))
    ratios = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(runs):
            run()
        bare = (time.perf_counter_ns() - start) / runs
        start = time.perf_counter_ns()
        readings = loaded.readings(40e6, 5)
        harness = (time.perf_counter_ns() - start) / (len(readings) * loaded.inner)
        ratios.append(harness / bare)
    return {"run_us": loaded.fastest_ns / 1e3, "harness_over_bare": statistics.median(ratios)}
