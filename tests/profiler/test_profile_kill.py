"""`kill -9` at ten moments of a profile (the first second, random rounds, the fold) loses and doubles nothing.

The plan is fixed (precision 0, as many processes at least as at most), so a run that was killed and continued must leave
the same set of (key, process, round) as one that never was. The moments are seeded; none decides whether the test passes.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

import hwbench
from hwbench.core.errors import MeasurementError
from hwbench.device.target import Target
from hwbench.lut import fold
from hwbench.lut import table as luts
from hwbench.lut.journal import Journal
from hwbench.lut.table import Lut
from hwbench.profiler.profile import needed_specs

SPACE = "autoformer-tiny:image=32"
PROCESSES, ROUNDS = 3, 4
# argv: workspace and how it ends: "finish"; "fold" (says when the fold begins and folds until it is killed);
# "rename" (dies between writing the new table and giving it its name)
PROFILE = f"""
import os, signal, sys
from pathlib import Path
import hwbench
from hwbench.lut import fold
from hwbench.profiler.policy import Policy

once, replace = fold.fold, Path.replace
def again_and_again(*arguments):
    print("fold", flush=True)
    while True:
        once(*arguments)
def killed(self, target):
    if str(target).endswith(".parquet"):
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)
if sys.argv[2] == "fold":
    fold.fold = again_and_again
if sys.argv[2] == "rename":
    Path.replace = killed
policy = Policy(precision=0.0, min_processes={PROCESSES}, max_processes={PROCESSES}, rounds={ROUNDS},
                burst_ms=3.0, burst_readings=1, reading_ms=0.1, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1)
hwbench.profile({SPACE!r}, workspace=sys.argv[1], policy=policy)
"""


class Run:
    """A profile in a process of its own."""

    def __init__(self, root: Path, ending: str, code: str = PROFILE, **how: bool) -> None:
        self.root = root
        self.path = luts.lut_path(Target.of(workspace=root))
        self.journal = self.path.with_suffix(".samples.jsonl")
        environment = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parent.parent), "TMPDIR": str(root)}
        self.stderr = (root / "stderr").open("ab")
        command = [sys.executable, "-W", "error", "-c", code, str(root), ending]
        self.process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=self.stderr, **how)
        assert self.process.stdout is not None
        self.stdout = self.process.stdout

    def lines(self) -> list[bytes]:
        """The whole lines of the journal."""
        whole = self.journal.read_bytes() if self.journal.exists() else b""
        return [line for line in whole.splitlines(keepends=True) if line.endswith(b"\n")]

    def wait_for_lines(self, wanted: int) -> None:
        while len(self.lines()) < wanted:
            assert self.process.poll() is None, (self.root / "stderr").read_text()
            time.sleep(0.002)

    def kill(self) -> list[psutil.Process]:
        """Ends the host as `kill -9` does; returns the workers it leaves behind."""
        self.process.send_signal(signal.SIGSTOP)  # so that no worker starts between listing and killing
        workers = psutil.Process(self.process.pid).children()
        self.process.kill()
        return workers

    def end(self) -> int:
        code = self.process.wait(timeout=300)
        self.stdout.close()
        self.stderr.close()
        return code


def alive(workers: list[psutil.Process]) -> list[psutil.Process]:
    """Those still running; whether anybody has collected a dead one is not our concern."""
    found = []
    for worker in workers:
        try:
            if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
                found.append(worker)
        except psutil.NoSuchProcess:
            pass
    return found


@pytest.fixture
def workspaces(tiny_workspace, tmp_path):
    """Two workspaces that know the device and nothing else."""
    for name in ("killed", "whole"):
        shutil.copytree(tiny_workspace / "devices", tmp_path / name / "devices")
    return tmp_path / "killed", tmp_path / "whole"


@pytest.mark.slow  # eleven processes profile, ten of them are killed and started again
def test_ten_kills_lose_and_double_nothing(workspaces):
    rng = random.Random(0)
    planned = len(needed_specs([SPACE])) * PROCESSES * ROUNDS
    early = [0.05, rng.uniform(0.2, 0.5), rng.uniform(0.5, 1.0)]
    counts = sorted(rng.sample(range(1, planned - 1), 4))
    leftovers: list[psutil.Process] = []
    snapshots: list[list[bytes]] = []

    def kill(moment, ending: str = "fold") -> None:
        run = Run(workspaces[0], ending)
        before = len(run.lines())
        moment(run)
        if ending != "rename":
            leftovers.extend(run.kill())
        assert run.end() == -signal.SIGKILL
        snapshots.append(run.lines())
        assert len(snapshots[-1]) >= before
        if run.path.exists():
            assert len(Lut.read(run.path).rows) == len(needed_specs([SPACE]))  # the fold of all or nothing

    def folding(run: Run) -> None:
        assert run.stdout.readline() == b"fold\n"
        time.sleep(rng.uniform(0, 0.3))

    for seconds in early:
        kill(lambda run, seconds=seconds: time.sleep(seconds))
    for count in counts:
        kill(lambda run, count=count: (run.wait_for_lines(count), time.sleep(rng.uniform(0, 0.01))))
    kill(lambda run: run.wait_for_lines(planned))
    kill(folding)
    kill(lambda run: None, "rename")
    assert len(snapshots) == 10
    assert [len(snapshot) for snapshot in snapshots[7:]] == [planned] * 3

    last, whole = (Run(root, "finish") for root in workspaces)
    assert (last.end(), whole.end()) == (0, 0)
    final = last.lines()
    for snapshot in snapshots:
        assert final[: len(snapshot)] == snapshot
    entries = list(Journal(last.journal).read())
    taken = Counter((entry["key"], entry["process"], entry["round"]) for entry in entries)
    assert max(taken.values()) == 1
    assert set(taken) == {(entry["key"], entry["process"], entry["round"]) for entry in Journal(whole.journal).read()}
    assert len(taken) == planned
    assert {entry["status"] for entry in entries} == {"ok"}

    table = Lut.of(Target.of(workspace=last.root))
    assert {key for key, _ in table.rows} == {spec.key for spec in needed_specs([SPACE])}
    again = fold.fold(Journal(last.journal), last.root / "again.parquet", table.environment, 0.0)
    assert again.rows == table.rows
    assert (last.root / "again.parquet").read_bytes() == last.path.read_bytes()

    patience = time.monotonic() + 20
    while alive(leftovers) and time.monotonic() < patience:
        time.sleep(0.05)
    assert alive(leftovers) == []
    assert leftovers
    assert (last.root / "stderr").read_text() == ""  # neither host nor orphaned worker complains


INTERRUPTED = PROFILE.replace("hwbench.profile(", "try:\n    hwbench.profile(")
INTERRUPTED += "except KeyboardInterrupt:\n    sys.exit(130)\n"
# Whoever runs the tests in the background has Ctrl-C ignored, and so would have the process.
INTERRUPTED = INTERRUPTED.replace("once, replace", "signal.signal(signal.SIGINT, signal.default_int_handler)\nonce, replace", 1)


def test_ctrl_c_ends_host_and_worker_without_a_word(workspaces):
    """A terminal sends it to the whole foreground group."""
    run = Run(workspaces[0], "finish", INTERRUPTED, start_new_session=True)
    run.wait_for_lines(5)
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end() == 130
    assert (run.root / "stderr").read_text() == ""
    assert run.lines()


FULL_DISK = """
import resource, sys
import hwbench
from hwbench.core.errors import HwbenchError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    hwbench.profile(sys.argv[1], workspace=sys.argv[2])
except HwbenchError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_disk_too_full_for_the_models_is_one_line(workspaces, python):
    done = python(FULL_DISK, SPACE, workspaces[0])
    assert (done.returncode, done.stderr) == (MeasurementError.exit_code, "")
    assert re.fullmatch(r"Cannot write .*\.onnx: File too large\. Nothing stored before is lost; .*\n", done.stdout)
