"""Models that are wrong in any way get an answer or one line, never a traceback, a hang or a crash.

`make test` asks for some, `make campaign` for all of them.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.profiler.mutations import SEEDS, mutation

ROOT = Path(__file__).parents[2]
CAMPAIGN = os.environ.get("HWBENCH_CAMPAIGN") == "1"
MODELS = 500 if CAMPAIGN else 60
HANGS_S = 120
"""After which a model is said to hang."""


@dataclass(frozen=True)
class Outcome:
    """What became of one model."""

    seed: int
    kind: str
    """answer, refused, wrong, traceback, crash, hang."""
    text: str
    error: str = ""
    peak_mb: int = 0
    seconds: float = 0.0


class Worker:
    """A process that is asked about one model after the other, and started anew after a crash or a hang."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._process = folder, None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self._folder), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "tests.predictor.mutated_worker", str(self._folder)]
            with (self._folder / "stderr.txt").open("ab") as errors:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=ROOT
                )
        return self._process

    def ask(self, seed: int) -> Outcome:
        process, start = self._running(), time.monotonic()
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], HANGS_S)
        line = process.stdout.readline() if ready else ""
        if line:
            return Outcome(seed, **json.loads(line), seconds=time.monotonic() - start)
        if not ready:
            process.kill()
        self.close()
        if not ready:
            return Outcome(seed, "hang", f"no answer in {HANGS_S} s")
        code = process.returncode
        return Outcome(seed, "crash", signal.Signals(-code).name if code < 0 else f"exit code {code}")

    def close(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.stdin.close()
                process.wait()
            self._process = None


def outcomes(seeds: range, root: Path) -> list[Outcome]:
    """Of every seed, two processes side by side."""
    idle: queue.Queue[Worker] = queue.Queue()
    for name in ("one", "two"):
        (root / name).mkdir()
        idle.put(Worker(root / name))

    def ask(seed: int) -> Outcome:
        worker = idle.get()
        try:
            return worker.ask(seed)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(ask, seeds))
    for _ in range(2):
        idle.get().close()
    return found


def described(each: Outcome) -> str:
    made = mutation(each.seed)
    return f"mutation({each.seed}) of {made.source} ({', '.join(made.kinds)}): {each.kind}: {each.text}"


def test_a_mutation_is_the_same_every_time():
    assert [mutation(seed) for seed in range(20)] == [mutation(seed) for seed in range(20)]
    assert {mutation(seed).source for seed in range(60)} == set(SEEDS)


@pytest.mark.slow
def test_wrong_models_get_an_answer_or_one_line(tmp_path):
    found = outcomes(range(MODELS), tmp_path)
    print(Counter((each.kind, each.error) for each in found))
    bad = [each for each in found if each.kind not in ("answer", "refused")]
    long = [each for each in found if each.kind == "refused" and len(each.text.splitlines()) != 1]
    assert not bad + long, "\n".join(map(described, bad + long))
    assert {each.kind for each in found} == {"answer", "refused"}
