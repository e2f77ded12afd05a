"""What is told of work under way: steps within steps, lines for logs, and what Ctrl-C leaves."""

from __future__ import annotations

import io
import re
import time

import pytest

from hwbench.core import progress
from hwbench.core.progress import Step, both, clock, keep, lines, no_tick, step, watched


def test_a_step_nobody_watches_costs_nothing():
    with step("fitting") as tick:
        assert tick is no_tick


def test_steps_within_steps():
    with watched() as work, step("profiling") as tick:
        tick(3, 12)
        with step("loading"):
            assert work.what == "profiling: loading"
            assert work.counted.what == "profiling"
            assert work.told == "3 of 12 (25 %)"
        with step("folding") as inner:
            inner(1, 2)
            assert work.counted.what == "folding"
        assert work.what == "profiling"
        tick(12, 12)
        assert work.told.startswith("12 of 12 (100 %)")
        with step("writing"):  # what was counted is over
            assert work.counted is None
            assert work.told == ""
    assert work.steps == []


def test_a_step_ends_with_its_error_and_decorates():
    @step("fitting")
    def fails() -> None:
        raise ValueError(work.what)

    with watched() as work:
        for _ in range(2):
            with pytest.raises(ValueError, match="fitting"):
                fails()
        assert work.steps == []


def test_time_left_leaves_out_what_a_log_held_before(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    mine = Step("searching")
    mine.tick(500, 1000)
    assert mine.left_s is None
    now[0] += 10.0
    mine.tick(600, 1000)
    assert mine.left_s == pytest.approx(40.0)
    mine.tick(1000, 1000)
    assert mine.left_s == 0.0


def test_two_are_told():
    told = []
    both(lambda *at: told.append(at), lambda *at: told.append(at))(1, 2)
    assert told == [(1, 2), (1, 2)]


def test_lines_go_to_stderr_alone(monkeypatch, capsys):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    with watched() as work, lines(work), step("profiling") as tick:
        tick(1, 4)
        while "1 of 4" not in stream.getvalue():
            time.sleep(0.01)
    first = stream.getvalue().splitlines()[-1]
    assert re.fullmatch(r"\[0:\d\d\] profiling, 1 of 4 \(25 %\)", first)
    assert capsys.readouterr().out == ""


def test_short_work_is_silent(capsys):
    with watched() as work, lines(work), step("profiling"):
        pass
    assert capsys.readouterr().err == ""


def test_ctrl_c_carries_what_is_kept():
    taken: list[int] = []

    def part() -> None:
        with watched():
            keep("bursts", "journal", lambda: len(taken))
            taken.append(1)

    def work() -> None:
        keep("nobody", "watches", lambda: 0)
        with watched():
            part()
            with watched():
                keep("of 9 evaluations", "folder", lambda: 4)
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop:
        work()
    assert stop.value.__notes__ == ["4 of 9 evaluations, in folder", "1 bursts, in journal"]


def test_clock():
    assert [clock(seconds) for seconds in (0.4, 65, 7210)] == ["0:00", "1:05", "2:00:10"]
