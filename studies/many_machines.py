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
from importlib import import_module
from pathlib import Path
from typing import Any

from hwbench.core import markdown
from hwbench.core.errors import MeasurementError
from hwbench.core.executor.base import make_executor
from hwbench.device.files import local_name
from studies.harness import Results, Run, Study
from studies.options import Option
from studies.ray_cluster import ROOT, RayCluster

SPACE = "autoformer-tiny:image=64"
FILES = ("settings.json", "trials.jsonl", "trials.parquet", "search.json")
LOST_AFTER = 0.4
"""Share of the evaluations after which a machine is lost."""
SIDE_BY_SIDE = ("local", "emulated-cortex-a72", "board")
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
    """What a file says, without how long it took, and the hash of what says so."""
    if path.name != "search.json":
        return path.read_bytes()
    document = json.loads(path.read_text())
    document["search"].pop("seconds")
    document.pop("sha256")
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


def devices(run: Run) -> dict[str, Any]:
    """This machine, an emulated one and one over ssh, profiled by one command: a journal and an answer each."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "sshd").mkdir()
        board = import_module("tests.device.sshd").Sshd(root / "sshd")  # this machine, reached as a board is
        try:
            return _side_by_side(root, board)
        finally:
            board.close()


def _side_by_side(root: Path, board: Any) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{board.bin}{os.pathsep}{os.environ['PATH']}"}

    def hwbench(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hwbench", *words, "--workspace", "."]
        return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)

    for step in (
        ("detect",),
        ("add", "board", "--like", local_name(), "--ssh", "board", "--python", sys.executable, "--folder", str(root / "agent")),
    ):
        done = hwbench("device", *step)
        if done.returncode:
            raise MeasurementError(f"hwbench device {step[0]} failed: {done.stderr[-300:]}")
    names = [name for each in SIDE_BY_SIDE for name in ("--device", each)]
    words = ["profile", "--space", SPACE, *names, "--max-processes", "2", "--max-seconds", "0"]
    done = hwbench(*words, "--json")
    lines = (done.stdout or "null").splitlines()
    told = (json.loads(lines[-1]) or {}).get("devices", {})
    journals = {path.parent.name: path.read_bytes().count(b"\n") for path in root.glob("luts/*/onnxruntime.samples.jsonl")}
    return {
        "command": " ".join(["hwbench", *words]),
        "code": done.returncode,
        "devices": {name: {key: each.get(key) for key in ("rows", "measured_rows", "error")} for name, each in told.items()},
        "journals": journals,
        "progress": [name for name in told if f"{name}: " in done.stderr],
        "said": done.stderr[-1000:],
    }


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
    if told := results.get("devices"):
        rows = [
            [name, row["rows"], row["measured_rows"], "yes" if name in told["progress"] else "no", row["error"] or "-"]
            for name, row in told["devices"].items()
        ]
        parts += [
            "## Devices side by side",
            f"`{told['command']}` ended with code {told['code']}; journals: "
            + ", ".join(f"{name} {n} samples" for name, n in sorted(told["journals"].items()))
            + ".",
            markdown.table(["device", "rows", "measured", "told of its progress", "error"], rows),
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
    {"search": search, "devices": devices, "overhead": overhead},
    report,
    (
        Option("evaluations", 80, "of the search"),
        Option("proxy", "snip", "what scores, an expensive one"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
