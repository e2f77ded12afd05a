"""What this machine's speed does, and which estimate of a latency repeats on it.

    python -m studies.machine_noise

Records a small fixed matrix product for a while, then replays imagined ops of several lengths against the recorded
speed: tables of three processes, taken at random times, each process represented by its smallest run, its median or its
level (`stats.level`), and the smallest of the three taken. The figures behind profiler/policy.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np

from hwbench.core import markdown
from hwbench.core.progress import Tick
from hwbench.lut.latency import level
from studies.harness import Results, Run, Study
from studies.options import Option

OPS_MS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
PROCESSES, ROUNDS, TABLES = 3, 3, 200
BURST_MS, BURST_READINGS = 30.0, 5
BEYOND_MS = 60_000.0


def record(seconds: float, tick: Tick) -> tuple[np.ndarray, np.ndarray]:
    """(time in ms, slowness relative to the fastest) of readings of about 80 us."""
    a = b = np.ones((64, 64), np.float32)
    c = np.empty_like(a)
    starts: list[int] = []
    took: list[int] = []
    begin = perf_counter_ns()
    while (now := perf_counter_ns()) - begin < seconds * 1e9:
        if len(starts) % 4000 == 0:
            tick(int((now - begin) / 1e9), int(seconds))
        start = perf_counter_ns()
        for _ in range(20):
            np.matmul(a, b, out=c)
        starts.append(start - begin)
        took.append(perf_counter_ns() - start)
    slowness = np.array(took) / np.percentile(took, 0.01)
    return np.array(starts) / 1e6, slowness


class Machine:
    """Runs imagined work at the recorded speed."""

    def __init__(self, times_ms: np.ndarray, slowness: np.ndarray) -> None:
        steps = np.diff(times_ms, append=times_ms[-1] + 0.08)
        self.end = float(times_ms[-1] + 0.08)
        """Of the record; what begins before and ends after it goes on at the fastest speed."""
        self.times = np.append(times_ms, [self.end, self.end + BEYOND_MS])
        work = np.cumsum(steps / slowness)
        self.work = np.concatenate([[0.0], work, [work[-1] + BEYOND_MS]])

    def burst(self, start_ms: float, op_ms: float) -> np.ndarray:
        """Consecutive runs of an op, each relative to its time at the fastest speed."""
        runs = max(BURST_READINGS, int(np.ceil(BURST_MS / op_ms)))
        marks = np.interp(start_ms, self.times, self.work) + op_ms * np.arange(runs + 1)
        return np.asarray(np.diff(np.interp(marks, self.work, self.times)) / op_ms)

    def one_table(self, op_ms: float, rng: np.random.Generator) -> list[list[np.ndarray]]:
        """Processes -> bursts of one row, within 15 s somewhere in the record."""
        length = 2 * max(BURST_MS, BURST_READINGS * op_ms)
        begin = rng.uniform(0, max(1.0, self.end - 15_000 - length))
        span = min(15_000.0, self.end - length) / PROCESSES
        return [[self.burst(begin + span * p + rng.uniform(0, span), op_ms) for _ in range(ROUNDS)] for p in range(PROCESSES)]


def estimates(machine: Machine, tables: int) -> list[dict[str, Any]]:
    """Per op length and estimate: its level, how two tables differ, how often three processes agree within 1 %."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for op_ms in OPS_MS:
        drawn = [machine.one_table(op_ms, rng) for _ in range(tables)]
        for name, estimate in (("smallest run", np.min), ("median", np.median), ("level", level)):
            minima = np.sort([[float(estimate(np.concatenate(process))) for process in t] for t in drawn], axis=1)
            differences = np.abs(minima[: tables // 2, 0] / minima[tables // 2 :, 0] - 1)
            rows.append(
                {
                    "op ms": op_ms,
                    "estimate": name,
                    "relative to the fastest": float(minima[:, 0].mean()),
                    "two tables, median %": 100 * float(np.median(differences)),
                    "two tables, p95 %": 100 * float(np.percentile(differences, 95)),
                    "3 agree within 1 %": float(((minima[:, 2] - minima[:, 0]) / minima[:, 0] <= 0.01).mean()),
                }
            )
    return rows


def speed(run: Run) -> dict[str, Any]:
    """The machine's speed for a while, and how well each estimate repeats on it."""
    with run.progress("recording the machine's speed") as tick:
        times, slowness = record(1.0 if run.tiny else run.options.seconds, tick)
    counts, edges = np.histogram(slowness, np.append(np.arange(0.99, 1.2, 0.01), [1.5, 2.0, 100.0]))
    shares = {
        f"{low:.2f}": float(n / len(slowness)) for low, n in zip(edges, counts, strict=False) if n > 0.005 * len(slowness)
    }
    return {"shares": shares, "estimates": estimates(Machine(times, slowness), 10 if run.tiny else TABLES)}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Shares of the time, and the estimates side by side."""
    if "speed" not in results:
        return ""
    found = results["speed"]
    shares = [[slowness, f"{100 * share:.1f}"] for slowness, share in found["shares"].items()]
    rows = [[f"{v:.4g}" if isinstance(v, float) else v for v in row.values()] for row in found["estimates"]]
    return "\n".join(
        [
            f"Recorded for {options['seconds']:g} s. Share of the time at each slowness, relative to the fastest:", "",
            markdown.table(["from", "share %"], shares), "",
            "Which estimate repeats:", "",
            markdown.table(list(found["estimates"][0]), rows, 2),
        ]
    )  # fmt: skip


STUDY = Study("machine_noise", __doc__, "a minute", {"speed": speed}, report, (Option("seconds", 60.0, "how long to record"),))

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
