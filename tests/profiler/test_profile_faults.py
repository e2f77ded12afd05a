"""A whole profile through a runtime that is killed, crashes, hangs and runs out of memory in turn: it ends, every other row
is measured, the rows at fault carry status and reason, and the next run measures those again and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
from types import SimpleNamespace

import pytest

from hwbench.lut.journal import Journal
from hwbench.profiler.profile import needed_specs

SPACE = "autoformer-tiny"

# A model's file is named by its key, so a fault is told by the file's name; `faults.json` stands beside the runtime.
FAULTY = '''
"""onnxruntime, but for the faults a test asks for; for tests only."""
import ctypes, json, os, resource, signal, time
from pathlib import Path

from hwbench.runtime.onnxruntime import Onnxruntime

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def segmentation_fault():
    ctypes.string_at(0)

def hung():
    time.sleep(600)

def out_of_memory():
    """Really: the process may not grow by more than 64 MB, and asks for a gigabyte."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + (64 << 20), before[1]))
    try:
        bytearray(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)

def refused():
    raise ValueError("no kernel for that\\nand more the table has no room for")

class Session:
    """Behaves while it is loaded (a first run and two to warm up), then does as asked."""

    def __init__(self, session, fault):
        self._session, self._fault, self._runs = session, fault, 0
        self.outputs, self.keep_outputs = session.outputs, session.keep_outputs

    def run(self):
        self._runs += 1
        if self._runs > 3:
            self._fault()
        self._session.run()

class Faulty:
    def __init__(self):
        self._faults = json.loads(Path(__file__).with_name("faults.json").read_text())

    def version(self):
        return "1"

    def executes_on(self):
        return "cpu"

    def convert(self, path, setting, shapes):
        return path

    def load(self, path, setting, high, shapes):
        fault = self._faults.get(Path(path).stem, "")
        if fault.endswith("when loaded"):
            globals()[fault.removesuffix(" when loaded").replace(" ", "_")]()
        session = Onnxruntime().load(path, setting, high, shapes)
        if not fault.endswith("when sampled"):
            return session
        return Session(session, globals()[fault.removesuffix(" when sampled").replace(" ", "_")])
'''
PROFILE = """
import dataclasses, json, sys
import hwbench
from hwbench.profiler.policy import Policy
from hwbench.lut.table import Lut

policy = Policy(precision=9e9, min_processes=3, max_processes=3, rounds=2, burst_ms=0, burst_readings=1, reading_ms=0,
                warmup_ms=0, warmup_limit_ms=0, canary_ms=0.1, timeout_s=8)
done = hwbench.profile(sys.argv[2], runtime="faulty", workspace=sys.argv[1], policy=policy)
rows = {key: row for (key, _), row in Lut.read(done.path).rows.items()}
print(json.dumps({"done": dataclasses.asdict(done), "rows": rows}, default=str))
"""
KILLED = "worker ended by signal 9 (killed; out of memory?)"
SEGFAULT = "worker ended by signal 11 (segmentation fault)"
HUNG = "no answer within 8 s"
EXPECTED = {
    "killed when loaded": ("crashed", KILLED),
    "killed when sampled": ("crashed", KILLED),
    "segmentation fault when sampled": ("crashed", SEGFAULT),
    "hung when sampled": ("hung", HUNG),
    "out of memory when loaded": ("refused", "out of memory"),
    "out of memory when sampled": ("refused", "out of memory"),
    "refused when loaded": ("refused", "no kernel for that"),
}
"""Fault -> what its row says."""


@pytest.fixture
def faulty(package_copy, python, tiny_workspace, tmp_path):
    """Profiles the space with faults by key, and tells what came of it."""
    (package_copy / "runtime" / "faulty.py").write_text(FAULTY)
    place = tmp_path / "workspace"
    shutil.copytree(tiny_workspace / "devices", place / "devices")

    def profile(faults: dict[str, str]) -> SimpleNamespace:
        named = {hashlib.sha256(key.encode()).hexdigest()[:24]: fault for key, fault in faults.items()}
        (package_copy / "runtime" / "faults.json").write_text(json.dumps(named))
        done = python(PROFILE, place, SPACE, package=package_copy, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        found = SimpleNamespace(**json.loads(done.stdout))
        (path,) = place.glob("luts/*/faulty.samples.jsonl")
        return SimpleNamespace(**vars(found), journal=path.read_bytes(), entries=list(Journal(path).read()))

    return profile


@pytest.mark.slow  # every kind of fault is waited for, and the rows that failed are measured again
def test_a_profile_outlives_every_fault_and_mends_only_what_failed(faulty):
    keys = [spec.key for spec in needed_specs([SPACE])]
    faults = dict(zip(keys[1::2], EXPECTED, strict=False))  # between good rows, of every kind of block
    assert len(faults) == len(EXPECTED)
    first = faulty(faults)
    assert sorted(first.rows) == keys
    for key, row in first.rows.items():
        if key in faults:
            assert (row["status"], row["reason"]) == EXPECTED[faults[key]], faults[key]
            assert (row["latency_min_ms"], row["verdict"], row["processes"], row["samples"]) == (None, None, 0, 0)
        else:
            assert (row["status"], row["samples"]) == ("ok", 3 * 2), key
            assert row["latency_min_ms"] > 0
    assert first.done["failed"] == {key: ": ".join(EXPECTED[fault]) for key, fault in faults.items()}
    assert first.done["measured_rows"] == 18
    tried = [entry["key"] for entry in first.entries if entry["status"] != "ok"]
    assert sorted(tried) == sorted(faults)  # once each, not again in the next process

    second = faulty({})
    assert second.journal.startswith(first.journal)
    new = second.entries[len(first.entries) :]
    assert {entry["key"] for entry in new} == set(faults)
    assert {(entry["status"], entry["edition"]) for entry in new} == {("ok", 1)}
    assert (second.done["measured_rows"], second.done["failed"]) == (len(faults), {})
    assert {row["status"] for row in second.rows.values()} == {"ok"}
    kept = ("samples", "processes", "min_spread", "median_spread")  # the cost of a call, taken off, is known better now
    for key in set(keys) - set(faults):
        assert [second.rows[key][name] for name in kept] == [first.rows[key][name] for name in kept]


def test_a_runtime_without_a_canary_says_so_in_every_row(faulty):
    done = faulty({"@canary": "refused when loaded"})
    reason = "@canary, which every measurement needs: no kernel for that"
    assert {(row["status"], row["reason"]) for row in done.rows.values()} == {("refused", reason)}
    assert len(done.entries) == 18
