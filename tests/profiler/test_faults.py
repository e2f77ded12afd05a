"""Faults cost only the item at fault."""

from __future__ import annotations

import hashlib
import json

import pytest

from hwbench.device.transport.base import WorkerLost
from hwbench.profiler import host
from hwbench.profiler.plan import Item, Plan
from tests.profiler.engine import FIXED, SETTING, collect, items

FAULTY = '''
"""Does to each model what the model's file says, by number of runs (few to load, thousands to sample); for tests only."""
import os, signal, time

class Session:
    def __init__(self, what):
        self.what, self.runs = what, 0

    def run(self):
        self.runs += 1
        if self.runs > 50 and self.what == "crash when sampled":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.runs > 50 and self.what == "exit when sampled":
            os._exit(3)
        if self.runs > 50 and self.what == "hang when sampled":
            time.sleep(600)
        if self.runs > 50 and self.what == "raise when sampled":
            raise RuntimeError("no\\nmore")

    def keep_outputs(self):
        pass

    def outputs(self):
        return []

class Faulty:
    def version(self):
        return "1"

    def executes_on(self):
        return "cpu"

    def load(self, path, setting, high, shapes):
        with open(path, "rb") as stream:
            what = stream.read()
        if what == b"crash when loaded":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == b"refuse":
            raise ValueError("cannot do that")
        return Session(what.decode())
'''

MEASURE = """
import hashlib, json, sys
from pathlib import Path
from hwbench.profiler.plan import Item, Plan, Progress
from hwbench.profiler.host import measure
from hwbench.profiler.policy import Policy

folder = Path(sys.argv[1])
def item(number, what):
    path = folder / f"{number}.model"
    path.write_text(what)
    digest = hashlib.sha256(what.encode()).hexdigest()
    return Item(f"{number} {what}", {"scenario": "back-to-back", "threads": 1}, lambda: (str(path), digest))

items = [item(number, what) for number, what in enumerate(sys.argv[2:])]
policy = Policy(min_processes=2, max_processes=2, rounds=2, burst_ms=1, burst_readings=51, reading_ms=0, warmup_ms=0,
                warmup_limit_ms=0, timeout_s=8)
measure(items, Plan(policy, "faulty"), Progress(),
        lambda s, environment: print(json.dumps([s.key, s.process, s.round, s.status, s.reason, environment.get("runtime")])))
"""


def test_every_fault_costs_only_its_own_item(package_copy, python, tmp_path):
    (package_copy / "runtime" / "faulty.py").write_text(FAULTY)
    killed = "worker ended by signal 9 (killed; out of memory?)"
    faults = {
        "refuse": ("refused", -1, "cannot do that"),
        "crash when loaded": ("crashed", -1, killed),
        "crash when sampled": ("crashed", -1, killed),
        "exit when sampled": ("crashed", -1, "worker ended with code 3"),
        "hang when sampled": ("hung", -1, "no answer within 8 s"),
        "raise when sampled": ("refused", 0, "no"),
    }
    wanted = ["fine", *(what for fault in faults for what in (fault, "fine"))]
    done = python(MEASURE, tmp_path, *wanted, package=package_copy)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row[-1] for row in rows} == {"faulty"}
    for i, what in enumerate(wanted):
        mine = [row[1:5] for row in rows if row[0] == f"{i} {what}"]
        if what == "fine":
            assert sorted(mine) == [[p, r, "ok", None] for p in range(2) for r in range(2)]
        else:
            status, number, reason = faults[what]
            assert mine == [[0, number, status, reason]]  # once: it is not tried again in the next process


def test_a_runtime_that_cannot_start_is_recorded_for_every_item():
    taken = collect(items("ab"), Plan(FIXED, "nothing"))
    assert sorted((s.key, s.status) for s in taken) == [(name, "refused") for name in "ab"]
    assert all(s.reason.startswith("Unknown runtime 'nothing'. Available: litert, ") for s in taken)


def test_starting_up_reports_a_refusal(tmp_path, fast_policy):
    path = tmp_path / "garbage.onnx"
    path.write_bytes(b"not a model")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(WorkerLost, match="onnxruntime cannot load it") as lost:
        host.start_up(Item("garbage", SETTING, lambda: (str(path), digest)), Plan(fast_policy, "onnxruntime"))
    assert lost.value.status == "refused"
