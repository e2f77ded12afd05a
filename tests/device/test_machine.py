"""What the machine tells of itself, read from files made by hand; a machine that does not tell is not an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hwbench.device.agent import machine

TICKS = os.sysconf("SC_CLK_TCK")


def test_busy_time_is_what_processes_used(tmp_path):
    stat = tmp_path / "stat"
    #                    user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text("cpu  100 20 30 9999 888 4 5 777 66 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert machine.busy_seconds(str(stat)) == (100 + 20 + 30 + 4 + 5) / TICKS
    stat.write_text("")
    assert machine.busy_seconds(str(stat)) is None
    assert machine.busy_seconds(str(tmp_path / "none")) is None


def test_throttle_events_of_all_cores_are_counted(tmp_path):
    for i, count in enumerate(("3\n", "0\n", "4\n")):
        (tmp_path / f"cpu{i}").write_text(count)
    assert machine.throttle_count(str(tmp_path / "cpu*")) == 7
    (tmp_path / "cpu0").write_text("many")
    assert machine.throttle_count(str(tmp_path / "cpu*")) is None
    assert machine.throttle_count(str(tmp_path / "none*")) is None


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (["48K", "32K", "2048K", "8M"], 16 << 20),
        (["48K\n", "1024K\n"], 2 << 20),
        (["266240K"], machine.MOST_EVICTION_BYTES),
        (["1G"], machine.MOST_EVICTION_BYTES),
        (["65536"], 128 << 10),
        ([], machine.DEFAULT_EVICTION_BYTES),
        ([""], machine.DEFAULT_EVICTION_BYTES),
    ],
)
def test_caches_are_emptied_by_twice_the_largest_within_reason(tmp_path, sizes, expected):
    for i, size in enumerate(sizes):
        (tmp_path / f"index{i}").write_text(size)
    assert machine.eviction_bytes(str(tmp_path / "index*")) == expected


def test_a_process_has_held_some_memory():
    before = machine.peak_memory_bytes()
    held = bytearray(os.urandom(1)) * (before + (64 << 20))
    assert machine.peak_memory_bytes() >= len(held) - (32 << 20)  # bytes, not kilobytes


def test_what_the_starting_process_held_does_not_count():
    """Linux hands the peak of whoever starts a process on to it, as `getrusage` tells it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell a process's own peak")
    held = bytearray(os.urandom(1)) * (256 << 20)
    code = "from hwbench.device.agent import machine; print(machine.peak_memory_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < len(held)


def test_a_peak_is_read_where_the_system_tells_it(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t  1234 kB\nVmRSS:\t 99 kB\n")
    assert machine.peak_memory_bytes(str(status)) == 1234 * 1024
    status.write_text("Name:\tpython\n")
    assert machine.peak_memory_bytes(str(status)) == machine.peak_memory_bytes(str(tmp_path / "none")) > 0


class Told:
    """A machine that says what a test wrote down: wall, own, busy seconds and throttle events."""

    def __init__(self, monkeypatch, **facts: list) -> None:
        self.facts = {name: iter(values) for name, values in facts.items()}
        ticking = SimpleNamespace(perf_counter=lambda: next(self.facts["wall"]), process_time=lambda: next(self.facts["own"]))
        monkeypatch.setattr(machine, "time", ticking)
        monkeypatch.setattr(machine, "busy_seconds", lambda: next(self.facts["busy"]))
        monkeypatch.setattr(machine, "throttle_count", lambda: next(self.facts["heat"]))


@pytest.mark.parametrize(
    ("own", "busy", "heat", "expected"),
    [
        ([1.0, 2.0], [50.0, 54.0], [7, 9], {"other_cores": 1.5, "throttled": 2}),  # 4 s busy, 1 of them ours, in 2 s
        ([1.0, 3.0], [50.0, 52.0], [7, 7], {"other_cores": 0.0, "throttled": 0}),
        ([1.0, 3.0], [50.0, 51.9], [7, 7], {"other_cores": 0.0, "throttled": 0}),  # ticks of 10 ms: never below nothing
        ([1.0, 2.0], [None, 54.0], [None, None], {"other_cores": None, "throttled": None}),
        ([1.0, 2.0], [50.0, None], [7, None], {"other_cores": None, "throttled": None}),
    ],
)
def test_a_watch_tells_others_from_ourselves(monkeypatch, own, busy, heat, expected):
    Told(monkeypatch, wall=[10.0, 12.0], own=own, busy=busy, heat=heat)
    assert machine.Watch().stop() == expected


def test_a_watch_on_this_machine_answers():
    found = machine.Watch().stop()
    assert found["other_cores"] is None or found["other_cores"] >= 0
    assert found["throttled"] is None or found["throttled"] >= 0
