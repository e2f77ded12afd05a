"""The worker's own rules on a clock that only a fake model moves: bursts, warm-up, scenarios, references, jumping clocks."""

from __future__ import annotations

import hashlib
import inspect
from types import SimpleNamespace

import pytest

from hwbench.device.agent import machine, worker
from hwbench.device.agent.message import CANARY, EMPTY
from hwbench.device.agent.worker import Loaded, Worker

MS = 1_000_000
POLICY = {
    "burst_ms": 10.0, "burst_readings": 5, "most_readings": 64, "reading_ms": 1.0, "warmup_ms": 3.0, "warmup_limit_ms": 50.0,
    "canary_ms": 2.0, "wait_ms": 200.0, "slow": 1.08,
}  # fmt: skip
"""What a worker reads of a policy, as it comes through the pipe."""


class Clock:
    """perf_counter_ns and sleep of the worker; only runs and sleeps move it."""

    def __init__(self) -> None:
        self.now = 5_000_000_000
        self.slept: list[float] = []
        self.log: list[str] = []
        self.spin_until = 0
        """Until when a thread of another model turns."""

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * 1e9)

    def process_time_ns(self) -> int:
        return min(self.now, self.spin_until)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(worker, "perf_counter_ns", made)
    monkeypatch.setattr(worker, "time", SimpleNamespace(sleep=made.sleep, process_time_ns=made.process_time_ns))
    worker._preparation.cache_clear()
    yield made
    worker._preparation.cache_clear()


class Session:
    """Run number i takes `takes(i)` ns."""

    def __init__(self, clock: Clock, takes, name: str = "") -> None:
        self.clock, self.takes, self.name, self.runs = clock, takes if callable(takes) else lambda i: takes, name, 0

    def run(self) -> None:
        took = self.takes(self.runs)
        if isinstance(took, Exception):
            raise took
        self.clock.now += took
        self.runs += 1
        self.clock.log.append(self.name)

    def keep_outputs(self) -> None:
        self.clock.log.append(f"{self.name} keeps")


class Runtime:
    """Loads what a test prepared."""

    def __init__(self, *sessions: Session) -> None:
        self.sessions = list(sessions)

    def load(self, path, setting, high, shapes):
        found = self.sessions.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


# Bursts


def test_a_burst_lasts_as_long_as_asked(clock):
    loaded = Loaded(Session(clock, 1 * MS), "back-to-back")
    assert loaded.readings(10 * MS, 5) == [1 * MS] * 10


def test_a_burst_has_at_least_as_many_readings_as_asked(clock):
    loaded = Loaded(Session(clock, 100 * MS), "back-to-back")
    assert loaded.readings(10 * MS, 5) == [100 * MS] * 5
    assert loaded.readings(0, 1) == [100 * MS]


def test_short_runs_are_looped_inside_a_reading(clock):
    session = Session(clock, 100)
    loaded = Loaded(session, "back-to-back")
    loaded.warm_up(POLICY)
    assert loaded.inner == 10_000  # of 100 ns, to fill 1 ms
    session.runs = 0
    assert loaded.readings(3 * MS, 1) == [100.0] * 3  # ns per run
    assert session.runs == 3 * 10_000


def test_a_run_longer_than_a_reading_is_read_alone(clock):
    loaded = Loaded(Session(clock, 7 * MS), "back-to-back")
    loaded.warm_up(POLICY)
    assert loaded.inner == 1


# Warm-up


def test_warm_up_ends_when_two_spans_agree(clock):
    session = Session(clock, lambda i: 1 * MS)
    Loaded(session, "back-to-back").warm_up(POLICY)
    assert session.runs == 2 * 3  # two spans of 3 ms


def test_warm_up_goes_on_while_the_model_gets_faster(clock):
    """Spans of 3 runs: 1.5, 1.2, 1.1, 1.0, 1.0 ms: four times faster by more than 2 %, then not."""
    speeds = [1.5, 1.2, 1.1, 1.0, 1.0]
    session = Session(clock, lambda i: round((speeds[i // 3] if i < 15 else 1.0) * MS))
    loaded = Loaded(session, "back-to-back")
    loaded.warm_up({**POLICY, "warmup_ms": 2.9})
    assert loaded.fastest_ns == 1 * MS
    assert session.runs >= 13
    slower = Session(clock, lambda i: (1 + i) * MS)  # getting slower is no reason to go on
    Loaded(slower, "back-to-back").warm_up(POLICY)
    assert slower.runs == 3


def test_a_warm_up_that_never_gets_steady_ends_at_its_limit(clock):
    session = Session(clock, lambda i: max(1, round(10 * MS * 0.9**i)))
    Loaded(session, "back-to-back").warm_up({**POLICY, "warmup_ms": 0.0, "warmup_limit_ms": 30.0})
    assert session.runs == 4  # 10 + 9 + 8.1 + 7.29 ms
    endless = Session(clock, lambda i: max(1, round(10 * MS * 0.9**i)))
    Loaded(endless, "back-to-back").warm_up({**POLICY, "warmup_ms": 0.0, "warmup_limit_ms": 0.0})
    assert endless.runs == 2  # one run says nothing


def test_what_is_short_settles_before_its_burst_and_what_is_long_does_not(clock):
    short, long = Session(clock, 1 * MS), Session(clock, 5 * MS)
    for session in (short, long):
        loaded = Loaded(session, "back-to-back")
        loaded.warm_up(POLICY)
        session.runs = 0
        loaded.settle()
    assert (short.runs, long.runs) == (2, 0)  # 2 ms


# Scenarios


def test_a_paced_model_idles_before_every_run(clock):
    session = Session(clock, 1000)
    loaded = Loaded(session, "paced-20ms")
    loaded.warm_up(POLICY)
    assert loaded.inner == 1  # however short: a loop would not be paced
    assert clock.slept == [0.02] * session.runs
    clock.slept.clear()
    assert loaded.readings(0, 7) == [1000.0] * 7  # the gap is not in the reading
    assert clock.slept == [0.02] * 7


def test_a_paced_burst_ends_though_its_runs_are_short(clock):
    """10 ms of readings of 1 us would take 10,000 gaps: the burst ends after 10 times its length on the clock."""
    loaded = Loaded(Session(clock, 1000), "paced-20ms")
    assert len(loaded.readings(10 * MS, 2)) == 5  # 5 x 20 ms = 10 x 10 ms
    assert len(loaded.readings(10 * MS, 30)) == 30  # but it has its least readings


def test_a_cold_model_finds_its_caches_emptied_before_every_run(clock, monkeypatch):
    monkeypatch.setattr(machine, "eviction_bytes", lambda: 8000)
    session = Session(clock, 1000)
    loaded = Loaded(session, "cold")
    buffer = inspect.getclosurevars(loaded.before).nonlocals["buffer"]
    assert buffer.nbytes == 8000
    session.takes = lambda i: 1000 if (buffer == i + 1).all() else pytest.fail("run before the buffer was written")
    loaded.warm_up(POLICY)
    loaded.readings(0, 5)
    assert loaded.inner == 1
    assert (buffer == session.runs).all()
    assert session.runs > 5


def test_the_buffer_that_empties_caches_is_there_once(clock, monkeypatch):
    """It may take half a gigabyte; a process may hold many cold models."""
    monkeypatch.setattr(machine, "eviction_bytes", lambda: 8000)
    first, second = (Loaded(Session(clock, 1000), "cold") for _ in range(2))
    assert first.before is second.before


def test_back_to_back_does_nothing_in_between(clock):
    loaded = Loaded(Session(clock, 1 * MS), "back-to-back")
    assert loaded.before is None
    loaded.readings(10 * MS, 1)
    assert clock.slept == []


# Clocks that jump


def jumping(clock: Clock, at: range, by_ns: int) -> Loaded:
    """Runs of 1 ms; the clock jumps inside those runs."""
    return Loaded(Session(clock, lambda i: 1 * MS + (by_ns if i in at else 0)), "back-to-back")


@pytest.mark.parametrize("at", range(5))
def test_a_clock_that_jumps_forward_ends_the_burst_and_leaves_its_median_alone(clock, at):
    readings = jumping(clock, range(at, at + 1), 10_000 * MS).readings(10 * MS, 5)
    assert len(readings) == 5  # 10 s are more than the burst was to take
    assert sorted(readings) == [1 * MS] * 4 + [10_001 * MS]
    assert worker.statistics.median(readings) == 1 * MS


def test_a_clock_that_jumps_back_costs_one_reading(clock):
    readings = jumping(clock, range(3, 4), -10_000 * MS).readings(10 * MS, 5)
    assert readings == [1 * MS] * 10
    standing = Loaded(Session(clock, lambda i: 0 if i == 0 else 1 * MS), "back-to-back")
    assert standing.readings(2 * MS, 1) == [1 * MS] * 2  # a run of no time at all is no reading either


def test_a_clock_that_keeps_going_back_is_refused_with_the_reason(clock, tmp_path):
    session = Session(clock, lambda i: 1 * MS if i < 12 else -1 * MS)
    busy, loaded = Worker(), Loaded(session, "back-to-back")
    loaded.warm_up(POLICY)  # 6 runs, and 4 to settle
    busy._items["x"] = loaded
    answer = busy.answer({"ask": "sample", "item": "x", "policy": POLICY})
    assert answer == {"status": "refused", "reason": "the machine's clock keeps going backwards"}
    assert session.runs == 12 + worker.MOST_JUMPS + 1  # it does not try forever
    busy._runtime = Runtime(Session(clock, -1 * MS))
    assert busy.answer(asked_to_load(tmp_path, "y")) == answer


# Requests, by a fake runtime


def asked_to_load(tmp_path, item: str, scenario: str = "back-to-back", threads: int = 1) -> dict:
    (tmp_path / "model").write_bytes(b"model")
    digest = hashlib.sha256(b"model").hexdigest()
    message = {"ask": "load", "item": item, "path": str(tmp_path / "model"), "sha256": digest, "policy": POLICY}
    return {**message, "setting": {"scenario": scenario, "threads": threads}, "high": {}, "shapes": {}}


def test_loading_times_the_first_run_apart(clock, tmp_path):
    session = Session(clock, lambda i: 30 * MS if i == 0 else 1 * MS, "x")

    class Slow(Runtime):
        def load(self, *arguments):
            clock.now += 70 * MS
            return session

    busy = Worker()
    busy._runtime = Slow()
    answer = busy.answer(asked_to_load(tmp_path, "x"))
    assert (answer["status"], answer["load_ms"], answer["first_ms"], answer["inner"]) == ("ok", 70.0, 30.0, 1)
    assert answer["memory_bytes"] >= answer["memory_before_bytes"] > 0
    assert answer["computes"] == ""
    assert clock.log[:2] == ["x", "x keeps"]
    assert clock.log.count("x keeps") == 1


def test_canary_and_empty_run_around_every_burst(clock, tmp_path):
    """The canary takes 1.5 ms before and 1.0 ms after: the slower side counts."""
    busy = Worker()
    speed = {CANARY: 1.5 * MS}
    canary = Session(clock, lambda i: round(speed[CANARY]), "canary")
    busy._runtime = Runtime(canary, Session(clock, 100_000, "empty"), Session(clock, 6 * MS, "x"))
    for name in (CANARY, EMPTY, "x"):
        assert busy.answer(asked_to_load(tmp_path, name))["status"] == "ok"
    clock.log.clear()
    busy._items["x"].run = _then(busy._items["x"].run, lambda: speed.update({CANARY: 1.0 * MS}))
    answer = busy.answer({"ask": "sample", "item": "x", "policy": POLICY})
    assert (answer["canary_ns"], answer["empty_ns"], answer["readings_ns"]) == (1.5 * MS, 100_000, [6 * MS] * 5)
    shown = [name for i, name in enumerate(clock.log) if i == 0 or clock.log[i - 1] != name]
    assert shown == ["canary", "empty", "x", "canary"]
    assert {"other_cores", "throttled"} <= set(answer)
    off = busy.answer({"ask": "sample", "item": "x", "policy": {**POLICY, "canary_ms": 0.0}})
    assert (off["canary_ns"], off["empty_ns"]) == (None, 100_000)


def test_a_slow_machine_is_waited_for_and_the_burst_taken_once_more(clock, tmp_path):
    """The canary takes 1 ms as a rule; while a neighbour works, both it and the item take half as long again."""
    busy = Worker()
    until = {"slow": 0}

    def slowed(ns: int):
        return lambda i: ns * 3 // 2 if clock.now < until["slow"] else ns

    busy._runtime = Runtime(Session(clock, slowed(MS), "canary"), Session(clock, 100_000), Session(clock, slowed(6 * MS), "x"))
    for name in (CANARY, EMPTY, "x"):
        assert busy.answer(asked_to_load(tmp_path, name))["status"] == "ok"

    def sample(slow_ms: float, wait_ms: float) -> tuple[list[float], list[float], float]:
        until["slow"] = clock.now + slow_ms * MS
        busy._items["x"].undisturbed = False
        found = busy.answer({"ask": "sample", "item": "x", "policy": {**POLICY, "wait_ms": wait_ms}})
        return found["readings_ns"], found["extra_ns"], found["canary_ns"]

    assert sample(0, 60) == ([6 * MS] * 5, [], MS)
    assert sample(80, 60) == ([9 * MS] * 5, [6 * MS] * 5, MS)  # the burst as it came, and one more
    assert sample(80, 0) == ([9 * MS] * 5, [], 1.5 * MS)  # a policy that does not wait
    assert sample(9000, 60) == ([9 * MS] * 5, [], 1.5 * MS)  # it did not recover in time
    assert sample(30, 60)[1:] == ([6 * MS] * 5, MS)  # over before the burst was, which it had disturbed all the same


@pytest.mark.parametrize("threads", [1, 2])
def test_what_ran_on_several_threads_comes_to_rest_before_anything_else_is_measured(clock, tmp_path, threads):
    """A model whose thread spins 30 ms after each run: the canary and the next model wait for that."""
    busy, spinning = Worker(), {"while": []}

    class Spinner(Session):
        def run(self) -> None:
            super().run()
            self.clock.spin_until = self.clock.now + (30 * MS if threads > 1 else 0)

    class Watched(Session):
        def run(self) -> None:
            spinning["while"].append(self.clock.now < self.clock.spin_until)
            super().run()

    busy._runtime = Runtime(Watched(clock, MS), Watched(clock, 100_000), Spinner(clock, 6 * MS), Watched(clock, 6 * MS))
    for name in (CANARY, EMPTY):
        busy.answer(asked_to_load(tmp_path, name))
    for name in ("x", "y"):
        assert busy.answer(asked_to_load(tmp_path, name, threads=threads))["status"] == "ok"
    for name in ("x", "y"):
        assert busy.answer({"ask": "sample", "item": name, "policy": POLICY})["readings_ns"] == [6 * MS] * 5
    assert not any(spinning["while"])
    assert bool(clock.slept) is (threads > 1)
    assert sum(clock.slept) <= 0.15  # three times 30 ms, and a look at what had come to rest


def test_threads_that_never_rest_are_not_waited_for_without_end(clock, tmp_path):
    busy = Worker()
    busy._runtime = Runtime(Session(clock, 6 * MS))
    clock.spin_until = 1 << 62
    busy.answer(asked_to_load(tmp_path, "x", threads=2))
    assert busy.answer({"ask": "sample", "item": "x", "policy": POLICY})["readings_ns"] == [6 * MS] * 5
    assert 0.4 <= sum(clock.slept) <= 0.42  # before its burst and after it


def test_an_item_that_had_a_good_burst_is_not_waited_for_again(clock, tmp_path):
    busy = Worker()
    slow = {"now": False}
    canary = Session(clock, lambda i: 2 * MS if slow["now"] else MS)
    busy._runtime = Runtime(canary, Session(clock, 100_000), Session(clock, 6 * MS))
    for name in (CANARY, EMPTY, "x"):
        busy.answer(asked_to_load(tmp_path, name))

    def extra() -> list[float]:
        return busy.answer({"ask": "sample", "item": "x", "policy": POLICY})["extra_ns"]

    slow["now"] = True
    assert extra() == []  # it never recovers, so the item had no good burst yet
    assert busy._items["x"].undisturbed is False
    slow["now"] = False
    assert extra() == []
    assert busy._items["x"].undisturbed is True
    slow["now"] = True
    before = clock.now
    extra()
    assert clock.now - before < 60 * MS  # two canaries, the empty call and the burst: no waiting


def test_a_process_that_starts_on_a_slow_machine_learns_the_usual_speed_from_the_host(clock, tmp_path):
    busy = Worker()
    busy._runtime = Runtime(Session(clock, 2 * MS), Session(clock, 100_000), Session(clock, 6 * MS))
    for name in (CANARY, EMPTY, "x"):
        busy.answer(asked_to_load(tmp_path, name))
    asked = {"ask": "sample", "item": "x", "policy": POLICY}
    busy.answer({**asked, "usual_ns": None})
    assert busy._items["x"].undisturbed is True  # for all it knows
    busy._items["x"].undisturbed = False
    busy.answer({**asked, "usual_ns": 1.0 * MS})
    assert busy._items["x"].undisturbed is False


def test_a_burst_ends_with_its_most_readings(clock):
    session = Session(clock, 1 * MS)
    loaded = Loaded(session, "back-to-back")
    loaded.warm_up(POLICY)
    policy = {**POLICY, "burst_ms": 50.0}
    assert len(loaded.burst(policy)) == 50
    assert len(loaded.burst({**policy, "most_readings": 12})) == 12
    assert len(loaded.burst({**policy, "most_readings": 2, "burst_readings": 4})) == 4  # the least comes first


def test_one_lucky_canary_does_not_make_the_machine_slow_for_ever(clock, tmp_path):
    busy = Worker()
    lucky = Session(clock, lambda i: MS // 2 if i == 7 else MS)
    busy._runtime = Runtime(lucky, Session(clock, 100_000), Session(clock, 6 * MS))
    for name in (CANARY, EMPTY, "x"):
        busy.answer(asked_to_load(tmp_path, name))
    busy._canaries = sorted([MS / 2, *busy._canaries])[:2]
    assert busy.answer({"ask": "sample", "item": "x", "policy": POLICY})["extra_ns"] == []


def _then(run, after):
    def both() -> None:
        run()
        after()

    return both


@pytest.mark.parametrize("text", ["", "\nno memory for 7 GB"])
def test_running_out_of_memory_is_an_answer(clock, tmp_path, text):
    busy = Worker()
    busy._runtime = Runtime(MemoryError(text), Session(clock, lambda i: MemoryError(text)))
    refused = {"status": "refused", "reason": "out of memory"}
    assert busy.answer(asked_to_load(tmp_path, "x")) == refused  # when loaded
    assert busy.answer(asked_to_load(tmp_path, "x")) == refused  # when first run
    busy._items["x"] = Loaded(Session(clock, lambda i: MemoryError(text)), "back-to-back")
    assert busy.answer({"ask": "sample", "item": "x", "policy": POLICY}) == refused


def test_an_error_without_words_is_named(clock, tmp_path):
    busy = Worker()
    busy._runtime = Runtime(ValueError(), KeyError("a"), RuntimeError("first\nsecond"))
    assert [busy.answer(asked_to_load(tmp_path, "x"))["reason"] for _ in range(3)] == ["ValueError", "'a'", "first"]
