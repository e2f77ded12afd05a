"""A search that was killed, or met a full disk, ends like one that never was; a log of another one is refused."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hwbench.core.errors import DataError, MeasurementError
from tests.optimize.searches import EVALUATIONS, FILES, SPACE, one_line, without_seconds

# Interrupted


def test_a_search_cut_anywhere_ends_like_one_never_cut(run, tmp_path):
    whole = without_seconds(run("whole"))
    log = (tmp_path / "whole" / "trials.jsonl").read_bytes()
    border = log.index(b"\n") + 1
    cuts = [0, 1, border - 1, border, border + 1, *np.random.default_rng(0).integers(0, len(log), 4), len(log) - 1, len(log)]
    for cut in cuts:
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        (tmp_path / "cut").mkdir()
        shutil.copy(tmp_path / "whole" / "settings.json", tmp_path / "cut")
        (tmp_path / "cut" / "trials.jsonl").write_bytes(log[:cut])
        assert without_seconds(run("cut")) == whole
        for file in FILES:
            assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_finished_search_is_not_done_again(run, tmp_path, monkeypatch):
    first = without_seconds(run())
    log = (tmp_path / "search" / "trials.jsonl").read_bytes()
    monkeypatch.setattr("hwbench.optimize.loop._batch", lambda *_: pytest.fail("asked again"))
    assert without_seconds(run()) == first
    assert (tmp_path / "search" / "trials.jsonl").read_bytes() == log


FULL_DISK = """
import resource, sys
import hwbench
from hwbench.core.errors import HwbenchError
workspace, out, budget, evaluations, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    hwbench.search("autoformer-tiny", float(budget), out, workspace=workspace, evaluations=int(evaluations))
except HwbenchError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_full_disk_is_one_line_and_the_search_goes_on_later(run, python, workspace, tmp_path, budget):
    whole = without_seconds(run("whole"))
    log = (tmp_path / "whole" / "trials.jsonl").read_bytes()
    limit = log.index(b"\n", len(log) // 2) - 100  # within a line
    done = python(FULL_DISK, workspace, tmp_path / "full", repr(budget), EVALUATIONS, limit)
    assert (done.returncode, done.stderr) == (MeasurementError.exit_code, "")
    path = tmp_path / "full" / "trials.jsonl"
    assert done.stdout.startswith(f"Cannot write {path}: the disk took only a part of a line.")
    assert done.stdout.count("\n") == 1
    assert path.read_bytes() == log[:limit]
    assert without_seconds(run("full")) == whole
    assert path.read_bytes() == log


@pytest.mark.parametrize("damage", [b"{}\n", b"7\n", b"not json\n", b"\xff\n"])
def test_a_damaged_log_is_refused(run, tmp_path, damage):
    run()
    path = tmp_path / "search" / "trials.jsonl"
    path.write_bytes(damage + path.read_bytes())
    with pytest.raises(DataError) as error:
        run()
    assert str(path) in one_line(error)


def test_a_log_of_another_search_is_refused(run, tmp_path):
    run("a", seed=1)
    run("b", seed=2)
    shutil.copy(tmp_path / "a" / "trials.jsonl", tmp_path / "b" / "trials.jsonl")
    with pytest.raises(DataError, match="batch 0 is not of this search"):
        run("b", seed=2)


SLOW = '''
"""Parameters, slowly; every process that scores leaves its number in $PROCESSES."""
import os, time
from pathlib import Path

from hwbench.accuracy.proxy.params import Params


class Slow:
    unit = "million parameters"
    expensive = True

    def compile(self, space):
        score = Params().compile(space)

        def one(population):
            Path(os.environ["PROCESSES"], str(os.getpid())).touch()
            time.sleep(0.01)
            return score(population)

        return one
'''


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def test_the_command_killed_and_run_again_ends_like_one_never_killed(package_copy, workspace, budget, tmp_path):
    """A real SIGKILL to `hwbench search` with two workers; the other search has one and is left alone."""
    pytest.importorskip("hwbench.cli")
    (package_copy / "accuracy" / "proxy" / "slow.py").write_text(SLOW)
    (tmp_path / "processes").mkdir()
    env = {**os.environ, "PYTHONPATH": str(package_copy.parent), "PROCESSES": str(tmp_path / "processes")}

    def command(out: str, workers: int) -> subprocess.Popen[bytes]:
        asked = [
            "--space",
            SPACE,
            "--budget-ms",
            repr(budget),
            "--proxy",
            "slow",
            "--evaluations",
            "90",
            "--limit",
            "params_m=8",
        ]
        where = ["--workspace", str(workspace), "--out", str(tmp_path / out), "--workers", str(workers)]
        words = [sys.executable, "-m", "hwbench.cli.main", "search", *asked, *where]
        return subprocess.Popen(words, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL)

    whole = command("whole", 1)
    assert whole.wait(60) == 0
    for path in (tmp_path / "processes").iterdir():
        path.unlink()
    log = tmp_path / "killed" / "trials.jsonl"
    killed = command("killed", 2)
    assert wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 2)
    killed.kill()
    killed.wait()
    before = log.read_bytes()
    assert 2 <= before.count(b"\n") < 5
    assert not (tmp_path / "killed" / "search.json").exists()
    workers = [int(path.name) for path in (tmp_path / "processes").iterdir()]
    assert len(workers) == 2
    assert wait_until(lambda: not any(map(alive, workers))), "workers outlive the search they belong to"
    again = command("killed", 2)
    assert again.wait(60) == 0
    assert log.read_bytes().startswith(before[: before.rindex(b"\n") + 1])
    for file in FILES:
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    one, other = (json.loads((tmp_path / name / "search.json").read_text()) for name in ("whole", "killed"))
    assert without_seconds(one) == without_seconds(other)
