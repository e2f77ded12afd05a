"""The verbs that are knocked about, each a small job of some seconds, and where one of them may be ended.

A job is a few lines of Python that run in a process of their own, in a folder of their own. What it writes is compared with
what the same job left that nobody disturbed. `HOOKS` counts the moments that matter (a file opened for writing, renamed or
removed; a line of a log; a process started; a question to a worker) and ends the process at one of them by SIGKILL: before it,
or, for a line of a log, half-way through.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import hwbench
from hwbench.core.errors import MeasurementError
from hwbench.core.files import read_json, write_json
from hwbench.profiler.policy import Policy

ROOT = Path(__file__).parents[2]
SPACE = "autoformer-tiny:image=32"
QUICK: dict[str, Any] = {
    "rounds": 2, "burst_ms": 1.0, "burst_readings": 1, "reading_ms": 0.1, "warmup_ms": 0.1, "warmup_limit_ms": 0.1,
    "canary_ms": 0.1, "min_processes": 2, "max_processes": 2, "precision": 1e-9,
}  # fmt: skip
"""Short measurements, and a plan that nothing measured can change."""
PATIENCE_S, ENDS_S = 240.0, 20.0
"""A job that takes longer hangs; what a job started and left must be gone so soon."""
MARK = "HWBENCH_CAMPAIGN_JOB"
HOOKS = """
def hooks():
    import contextlib, json, os, signal, sys
    from hwbench.core import jsonl
    from hwbench.profiler.host import WorkerProcess

    events, end = [], json.loads(os.environ["CAMPAIGN_END"])
    log = open(os.environ["CAMPAIGN_EVENTS"], "a", buffering=1)
    root = os.environ["CAMPAIGN_ROOT"]

    def now(kind, half=lambda: None):
        events.append(kind)
        log.write(kind + "\\n")
        if len(events) == end:
            half()
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(name, arguments):
        path = str(arguments[0]) if arguments else ""
        if path.endswith(".events"):
            return
        if name == "open" and path.startswith(root):
            mode, flags = arguments[1:]
            if set(mode) & set("wax+") if mode else flags & os.O_CREAT:
                now("open")
        elif name == "os.rename" and str(arguments[1]).startswith(root):
            now("rename")
        elif name == "os.remove" and path.startswith(root):
            now("remove")
        elif name == "subprocess.Popen":
            now("start")

    once, asked = jsonl.appending, WorkerProcess.ask

    @contextlib.contextmanager
    def appending(path):
        with once(path) as append:
            def mine(entry):
                line = json.dumps(entry, separators=(",", ":")).encode() + b"\\n"
                def half():
                    with open(path, "ab", buffering=0) as stream:
                        stream.write(line[: len(line) // 2])
                now("line", half)
                append(entry)
            yield mine

    def ask(self, message, *more, **named):
        now("ask")
        return asked(self, message, *more, **named)

    jsonl.appending, WorkerProcess.ask = appending, ask
    sys.addaudithook(audit)

hooks()
"""
"""Before a job's own lines."""


@dataclass(frozen=True)
class Job:
    """One verb."""

    name: str
    code: str
    logs: Sequence[str] = ()
    """Append-only files, as patterns below the folder: no whole line of them is ever lost, or there twice."""
    same: Sequence[str] = ()
    """Files that depend on nothing measured: they end as if nobody had disturbed."""
    keys: Sequence[str] = ()
    """Of a line, what must be unique; the whole line where nothing is named."""
    ignored: Sequence[str] = ("seconds", "fitted_at", "own_ms_per_evaluation", "taken_at", "sha256")
    """What files may differ in; a hash of all else is of these, too."""
    weight: int = 1
    """Of so many kills among all."""


ACCURACY = "def evaluate(architecture):\n    return 60 + architecture['depth'] + 0.001 * sum(architecture['mlp_ratio'])\n"
PRELUDE = f"""
import sys
from pathlib import Path
import hwbench
from hwbench.profiler.policy import Policy
root = Path(sys.argv[1])
policy = Policy(**{QUICK!r})
"""
JOBS = (
    Job(
        "profile",
        f"hwbench.profile({SPACE!r}, workspace=root, policy=policy)",
        logs=["luts/*/*.samples.jsonl"],
        keys=["key", "process", "round", "edition", "link"],
        weight=28,
    ),
    Job(
        "search",
        f"hwbench.search({SPACE!r}, limits={{'params_m': 6}}, out=root / 'out', workspace=root, "
        "accuracy=str(root / 'mine.py') + ':evaluate', evaluations=60, strategy='evolution')",
        logs=["out/trials.jsonl", "out/accuracies.jsonl"],
        same=["out/settings.json", "out/trials.jsonl", "out/trials.parquet", "out/search.json", "out/accuracies.jsonl"],
        weight=25,
    ),
    Job(
        "validate",
        "hwbench.validate('nasbench201-cifar10', 'chip', 'random', seeds=2, evaluations=120, tables=root / 'tables', "
        "out=root / 'out', settings=['known'], budgets=[50])",
        logs=["out/runs.jsonl"],
        keys=["run"],
        same=["out/summary.json"],
        weight=14,
    ),
    Job(
        "fit",
        f"hwbench.fit({SPACE!r}, workspace=root, networks=4, holdout=4, policy=policy)",
        logs=["luts/*/*.samples.jsonl"],
        keys=["key", "process", "round", "edition", "link"],
        weight=15,
    ),
    Job(
        "transfer",
        "hwbench.transfer(root / 'known.parquet', root / 'measured.parquet', list('abcd'), root / 'predicted.parquet')",
        same=["predicted.parquet"],
        weight=6,
    ),
    Job(
        "compress",
        "from hwbench.study.compress import Effort\n"
        "hwbench.compress(root / 'model', root / 'train.tsv', root / 'dev.tsv', test=root / 'test.tsv', out=root / 'out', "
        "budget='50x', workspace=root, space_cost='macs_m', effort=Effort(2, 1, 14, 2, policy, policy, policy))",
        same=["out/space.json"],
        weight=12,
    ),
)


@dataclass
class Ended:
    """How a run of a job ended."""

    code: int | None
    """None where it hung."""
    stderr: str
    events: list[str] = field(default_factory=list)
    left: int = 0
    """Processes that outlived it."""
    seconds: float = 0.0

    @property
    def traceback(self) -> bool:
        """Whether somebody saw one."""
        return "Traceback (most recent call last)" in self.stderr


def prepared(job: Job, root: Path, base: Path) -> Path:
    """A folder in which a job can run."""
    shutil.copytree(base / "common", root)
    own = base / job.name
    if own.exists():
        shutil.copytree(own, root, dirs_exist_ok=True)
    return root


def prepare(base: Path) -> None:
    """What the jobs need, made once: this machine's device file, a table, made-up tables of the tests, a tiny encoder."""
    from hwbench.device import files

    common = base / "common"
    common.mkdir(parents=True)
    files.detect(common)
    fit = base / "fit"
    fit.mkdir()
    shutil.copytree(common / "devices", fit / "devices")
    hwbench.profile(SPACE, workspace=fit, policy=Policy(**QUICK))
    (base / "search").mkdir()
    (base / "search" / "mine.py").write_text(ACCURACY)
    importlib.import_module("tests.cells").write(base / "validate" / "tables")
    (base / "transfer").mkdir()
    _cells(base / "transfer")
    encoders = importlib.import_module("tests.accuracy.supernet.bert.encoders")
    (base / "compress").mkdir()
    encoders.written(base / "compress" / "model")
    for name, n in (("train", 96), ("dev", 40), ("test", 30)):
        encoders.tsv(base / "compress" / f"{name}.tsv", n, n)


def _cells(folder: Path) -> None:
    """A few devices on cells, and ten measurements of another."""
    from itertools import product

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = list(product(("none", "conv1", "conv3"), repeat=4))

    def table(seed: int, rows: Sequence[int], **more: str) -> Any:
        costs = np.random.default_rng(seed).uniform(0.1, 3, 3).cumsum()
        cost = dict(zip(("none", "conv1", "conv3"), costs, strict=True))
        columns: dict[str, Any] = {name: [cells[i][j] for i in rows] for j, name in enumerate("abcd")}
        told = {key: [value] * len(rows) for key, value in more.items()}
        return pa.table({**columns, **told, "latency_ms": [1 + sum(cost[op] for op in cells[i]) for i in rows]})

    pq.write_table(pa.concat_tables([table(i, range(81), device=f"d{i}") for i in range(6)]), folder / "known.parquet")
    pq.write_table(table(7, range(0, 80, 8)), folder / "measured.parquet")


def run(
    job: Job, root: Path, end: int = 0, before: str = "", limits: Mapping[str, str] = {}, wrap: Sequence[str] = ()
) -> Ended:
    """Runs a job; `end` ends it at that event, `before` are lines of Python that come first, `wrap` a command around it."""
    mark, started = uuid.uuid4().hex, time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        events = Path(scratch) / "job.events"
        environment = {
            **os.environ, **limits, "PYTHONPATH": str(ROOT), "CAMPAIGN_END": json.dumps(end), "CAMPAIGN_EVENTS": str(events),
            "CAMPAIGN_ROOT": str(root), "TMPDIR": scratch, MARK: mark, "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        code = f"{HOOKS}{PRELUDE}{before}\nfrom hwbench.core.errors import HwbenchError\ntry:\n" + "".join(
            f"    {line}\n" for line in job.code.splitlines()
        )
        code += "except HwbenchError as error:\n    print(error, file=sys.stderr)\n    sys.exit(error.exit_code)\n"
        said = Path(scratch) / "stderr"
        with said.open("wb") as stream:
            process = subprocess.Popen(
                [*wrap, sys.executable, "-c", code, str(root)], cwd=root, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=stream, start_new_session=True,
            )  # fmt: skip
            try:
                code_of: int | None = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                code_of = None
                process.kill()
                process.wait()
        left = _left(mark)
        counted = events.read_text().split() if events.exists() else []
        return Ended(code_of, said.read_text(errors="replace"), counted, left, time.monotonic() - started)


def _left(mark: str) -> int:
    """Processes of a job that are still there after a while; they are ended."""
    end = time.monotonic() + ENDS_S
    while (found := _of(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    for process in found:
        process.send_signal(signal.SIGKILL)
    return len(found)


def _of(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def lines(job: Job, root: Path) -> dict[str, list[bytes]]:
    """The whole lines of a job's logs, by file."""
    found = {}
    for pattern in job.logs:
        for path in sorted(root.glob(pattern)):
            found[str(path.relative_to(root))] = [
                each for each in path.read_bytes().splitlines(keepends=True) if each.endswith(b"\n")
            ]
    return found


def identities(job: Job, found: Mapping[str, Sequence[bytes]]) -> list[str]:
    """What every line is about: a job that went on must have each once."""
    return [
        json.dumps([path, *([json.loads(line).get(key) for key in job.keys] or [line.decode()])])
        for path, log in found.items()
        for line in log
    ]


def state(job: Job, root: Path) -> dict[str, Any]:
    """The content of what must end the same, without what may differ."""
    found: dict[str, Any] = {}
    for name in job.same:
        path = root / name
        if not path.exists():
            found[name] = None
        elif path.suffix == ".json":
            found[name] = _without(json.loads(path.read_text()), job.ignored, str(root))
        else:
            found[name] = path.read_bytes().replace(str(root).encode(), b"ROOT")
    return found


def _without(document: Any, ignored: Sequence[str], root: str) -> Any:
    if isinstance(document, dict):
        return {key: _without(value, ignored, root) for key, value in document.items() if key not in ignored}
    if isinstance(document, list):
        return [_without(value, ignored, root) for value in document]
    return document.replace(root, "ROOT") if isinstance(document, str) else document


def undisturbed(base: Path) -> None:
    """Runs every job in peace: what the others are compared with, in BASE/NAME-whole."""
    for job in JOBS:
        done = run(job, prepared(job, base / f"{job.name}-whole", base))
        if done.code != 0:
            raise MeasurementError(f"{job.name} fails without being disturbed: {done.stderr[-500:]}")
        write_json(base / f"{job.name}-whole.json", {"events": done.events})


def ended(base: Path) -> dict[str, Ended]:
    """How each of them ended."""
    return {job.name: Ended(0, "", read_json(base / f"{job.name}-whole.json", "job")["events"]) for job in JOBS}
