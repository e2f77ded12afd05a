"""A process that dies costs its item only, and processes start with the threads that were asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hwbench
from hwbench.core.process_pool import WorkerLost, Workers


def square(x: int) -> int:
    return x * x


def deadly(x: int) -> int:
    if x == 2:
        os._exit(1)
    return x


def dies_once(path: str) -> str:
    if not Path(path).exists():
        Path(path).write_text("was here")
        os._exit(1)
    return "done"


def threads() -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def fails() -> None:
    raise ValueError("wrong")


def test_items_are_done_in_processes_and_a_lost_one_costs_itself():
    with Workers(2) as workers:
        assert list(workers.map(square, range(5))) == [0, 1, 4, 9, 16]
        futures = [workers.submit(deadly, x) for x in range(5)]
        with pytest.raises(WorkerLost, match="its process died"):
            futures[2].result()
        assert [futures[x].result() for x in (0, 1, 3, 4)] == [0, 1, 3, 4]


def test_an_item_is_tried_once_more_in_a_fresh_process(tmp_path):
    with Workers(1) as workers:
        assert workers.submit(dies_once, str(tmp_path / "mark")).result() == "done"


def test_errors_of_the_item_reach_who_asked():
    with Workers(1) as workers, pytest.raises(ValueError, match="wrong"):
        workers.submit(fails).result()


def test_threads_of_a_process_are_those_asked_for_and_the_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with Workers(1, threads=1) as one, Workers(1) as as_here:
        assert one.submit(threads).result() == "1"
        assert as_here.submit(threads).result() == "7"
    assert os.environ["OMP_NUM_THREADS"] == "7"


UNGUARDED = """
from hwbench.core.errors import UsageError
from hwbench.core.process_pool import Workers

try:
    with Workers(1) as workers:
        workers.submit(abs, 3).result()
except UsageError as error:
    print(error)
"""


def test_a_script_without_its_guard_is_told_so(tmp_path):
    """Its processes execute it again, and are not allowed to start others while they begin."""
    (tmp_path / "script.py").write_text(UNGUARDED)
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    done = subprocess.run([sys.executable, tmp_path / "script.py"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert done.stdout.startswith("A process could not be started: a script that uses workers needs `if __name__")


def sleeps(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(1000)


def test_what_runs_is_ended_where_nobody_waits_for_it(tmp_path):
    workers = Workers(2)
    workers.submit(sleeps, str(tmp_path / "pid"))
    assert workers.submit(square, 3).result() == 9
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    workers.shutdown(cancel_futures=True)  # comes back, so the item was not waited for
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


SLOW_TO_START = """
import time
from pathlib import Path

from hwbench.core.process_pool import Workers

if __name__ == "__main__":
    with Workers(1) as workers:
        three = workers.submit(abs, -3)
        try:
            three.result()
        except KeyboardInterrupt:
            print("stopped", three.result())
else:
    Path("starting").touch()
    time.sleep(0.5)
"""


def test_ctrl_c_is_answered_by_the_first_process_even_while_others_start(tmp_path):
    (tmp_path / "script.py").write_text(SLOW_TO_START)
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    heard = {
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    }  # ignored by jobs in the background
    with subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=env, **how, **heard) as process:
        while not (tmp_path / "starting").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60) == ("stopped 3\n", "")
