"""A process that dies costs its item only, and processes start with the threads that were asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
