"""Many machines: a search on a cluster that loses one in the middle, what a task costs beside its score, devices side by side.

    python -m studies.many_machines --out reports/many-machines-2026-11-19

A cluster of this machine: two raylets, each as if it were a machine of its own (studies/ray_cluster.py), a processor each. What
is timed (stage overhead) wants the machine for itself.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hwbench.core import markdown
from hwbench.core.errors import MeasurementError
from hwbench.core.executor.base import make_executor
from studies.harness import Results, Run, Study
from studies.options import Option
from studies.ray_cluster import ROOT, RayCluster

SPACE = "autoformer-tiny:image=64"
FILES = ("settings.json", "trials.jsonl", "trials.parquet", "search.json")
LOST_AFTER = 0.4
"""Share of the evaluations after which a machine is lost."""
TRIES = 5
"""Batches of tasks that are timed."""


def search(run: Run) -> dict[str, Any]:
    """The same search in one process, and on two raylets of which one is killed in the middle."""
    n, proxy = (12, "naswot") if run.tiny else (run.options.evaluations, run.options.proxy)
    words = [
        "search",
        "--space",
        SPACE,
        "--proxy",
        proxy,
        "--limit",
        "params_m=6",
        "--evaluations",
        str(n),
        "--strategy",
        "evolution",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        alone = _hwbench([*words, "--workspace", "alone", "--out", "one"], root, {})
        with RayCluster(1, 1) as cluster:
            environment = {"RAY_ADDRESS": cluster.address, "RAY_TMPDIR": str(cluster.folder)}
            killed: list[int] = []

            def lose(trials: int) -> None:
                if not killed and trials >= LOST_AFTER * n:
                    cluster.kill(1)
                    killed.append(trials)

            together = _hwbench([*words, "--workspace", "many", "--out", "two", "--executor", "ray"], root, environment, lose)
        same = {name: _told(root / "one" / name) == _told(root / "two" / name) for name in FILES}
    return {
        "command": " ".join(["hwbench", *words]),
        "evaluations": n,
        "alone": alone,
        "together": together,
        "killed_after": killed[0] if killed else None,
        "same": same,
    }


def _told(path: Path) -> Any:
    """What a file says, without how long it took."""
    if path.name != "search.json":
        return path.read_bytes()
    document = json.loads(path.read_text())
    document["search"].pop("seconds")
    return document


def _hwbench(
    words: list[str], root: Path, more: Mapping[str, str], watch: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Runs a command; `watch` is told how many scores are kept."""
    environment = {**os.environ, **more, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    with (root / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "hwbench", *words], cwd=root, env=environment, stderr=said, stdout=said
        )
        while process.poll() is None:
            time.sleep(0.05)
            if watch is not None:
                watch(_scored(root / words[words.index("--workspace") + 1]))
    if process.returncode:
        raise MeasurementError(
            f"hwbench {' '.join(words)} ended with {process.returncode}: {(root / 'said').read_text()[-500:]}"
        )
    return {"seconds": time.monotonic() - started}


def _scored(workspace: Path) -> int:
    """Networks whose terms are in the workspace."""
    return sum(path.read_bytes().count(b"\n") for path in workspace.glob("scores/**/*.jsonl"))


def overhead(run: Run) -> dict[str, Any]:
    """What a task takes beside its score: tasks that score nothing, through each executor."""
    n = 50 if run.tiny else 2000
    found: dict[str, Any] = {"tasks": n, "processes": _per_task("processes", n, run)}
    with RayCluster(1, 1) as cluster:
        os.environ |= {"RAY_ADDRESS": cluster.address, "RAY_TMPDIR": str(cluster.folder)}
        found["ray"] = _per_task("ray", n, run)
        del os.environ["RAY_ADDRESS"], os.environ["RAY_TMPDIR"]
    return found


def _per_task(name: str, n: int, run: Run) -> dict[str, float]:
    """Milliseconds a task takes: many at once, and one after the other."""
    executor = make_executor(name, 2)
    try:
        for future in [executor.submit(math.sqrt, 2.0) for _ in range(8 * 2)]:
            future.result()  # processes are there
        together, alone = [], []
        for _ in range(2 if run.tiny else TRIES):
            started = time.perf_counter()
            for future in [executor.submit(math.sqrt, 2.0) for _ in range(n)]:
                future.result()
            together.append(1e3 * (time.perf_counter() - started) / n)
            started = time.perf_counter()
            for _ in range(n // 10):
                executor.submit(math.sqrt, 2.0).result()
            alone.append(1e3 * (time.perf_counter() - started) / (n // 10))
    finally:
        executor.shutdown()
    return {
        "together_ms": statistics.median(together),
        "together_worst_ms": max(together),
        "one_by_one_ms": statistics.median(alone),
    }


def report(results: Results, options: Mapping[str, Any]) -> str:
    """The figures."""
    parts = []
    if told := results.get("search"):
        same = ", ".join(f"{name} {'the same' if equal else 'ANOTHER'}" for name, equal in told["same"].items())
        parts += [
            "## A search that loses a machine",
            f"`{told['command']}` in one process, and with `--executor ray` on two raylets, of which one was killed after "
            f"{told['killed_after']} of {told['evaluations']} scores: {same} (bytes; of search.json all but the seconds).",
        ]
    if told := results.get("overhead"):
        rows = [
            [name, f"{row['together_ms']:.2f}", f"{row['together_worst_ms']:.2f}", f"{row['one_by_one_ms']:.2f}"]
            for name, row in told.items()
            if name != "tasks"
        ]
        columns = ["executor", "many at once, ms a task", "worst batch", "one after the other, ms"]
        parts += [
            "## What a task takes beside its score",
            f"{told['tasks']} tasks that score nothing, two processes, median of {TRIES} batches.",
            markdown.table(columns, rows),
        ]
    return "\n\n".join(parts)


STUDY = Study(
    "many_machines",
    __doc__,
    "about five minutes of two cores",
    {"search": search, "overhead": overhead},
    report,
    (
        Option("evaluations", 80, "of the search"),
        Option("proxy", "snip", "what scores, an expensive one"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
