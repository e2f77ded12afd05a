"""What this machine's speed does, and which estimate of a latency repeats on it.

    python -m studies.machine_noise [--seconds 60]

Records a small fixed matrix product for a while, then replays imagined ops of several lengths against the recorded
speed: tables of three processes, taken at random times, each process represented by its smallest run, its median or its
level (`stats.level`), and the smallest of the three taken. The figures behind profiler/policy.py.
"""

from __future__ import annotations

import argparse
import json
from time import perf_counter_ns

import numpy as np

from hwbench.cli._console import progress, table
from hwbench.lut.latency import level

OPS_MS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
PROCESSES, ROUNDS, TABLES = 3, 3, 200
BURST_MS, BURST_READINGS = 30.0, 5


def record(seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """(time in ms, slowness relative to the fastest) of readings of about 80 us."""
    a = b = np.ones((64, 64), np.float32)
    c = np.empty_like(a)
    starts, took = [], []
    begin = perf_counter_ns()
    with progress("recording the machine's speed") as tick:
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
        self.times = np.append(times_ms, times_ms[-1] + 0.08)
        self.work = np.concatenate([[0.0], np.cumsum(steps / slowness)])

    def burst(self, start_ms: float, op_ms: float) -> np.ndarray:
        """Consecutive runs of an op, each relative to its time at the fastest speed."""
        runs = max(BURST_READINGS, int(np.ceil(BURST_MS / op_ms)))
        marks = np.interp(start_ms, self.times, self.work) + op_ms * np.arange(runs + 1)
        return np.diff(np.interp(marks, self.work, self.times)) / op_ms

    def one_table(self, op_ms: float, rng: np.random.Generator) -> list[list[np.ndarray]]:
        """Processes -> bursts of one row, within 15 s somewhere in the record."""
        length = 2 * max(BURST_MS, BURST_READINGS * op_ms)
        begin = rng.uniform(0, max(1.0, self.times[-1] - 15_000 - length))
        span = min(15_000.0, self.times[-1] - length) / PROCESSES
        return [[self.burst(begin + span * p + rng.uniform(0, span), op_ms) for _ in range(ROUNDS)] for p in range(PROCESSES)]


def study(machine: Machine) -> list[dict[str, float]]:
    """Per op length and estimate: its level, how two tables differ, how often three processes agree within 1 %."""
    rng = np.random.default_rng(0)
    rows = []
    for op_ms in OPS_MS:
        tables = [machine.one_table(op_ms, rng) for _ in range(TABLES)]
        for name, estimate in (("smallest run", np.min), ("median", np.median), ("level", level)):
            minima = np.sort([[float(estimate(np.concatenate(process))) for process in t] for t in tables], axis=1)
            differences = np.abs(minima[: TABLES // 2, 0] / minima[TABLES // 2 :, 0] - 1)
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


def main() -> None:
    """Records, replays, prints; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    times, slowness = record(parser.parse_args().seconds)
    counts, edges = np.histogram(slowness, np.append(np.arange(0.99, 1.2, 0.01), [1.5, 2.0, 100.0]))
    shares = {
        f"{low:.2f}": float(n / len(slowness)) for low, n in zip(edges, counts, strict=False) if n > 0.005 * len(slowness)
    }
    rows = study(Machine(times, slowness))
    table("Share of the time at each slowness", [{"from": k, "share %": 100 * v} for k, v in shares.items()])
    table("Which estimate repeats", rows)
    print(json.dumps({"shares": shares, "estimates": rows}))


if __name__ == "__main__":
    main()
