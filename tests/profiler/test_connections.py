"""Devices that come and go, and files that travel to them."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.device.transport.base import WorkerLost, popen
from hwbench.device.transport.local import Local
from hwbench.lut.sample import Sample
from hwbench.profiler import host
from hwbench.profiler.host import WorkerProcess, measure
from hwbench.profiler.plan import Item, Plan, Progress
from hwbench.runtime.onnxruntime import Onnxruntime
from tests.profiler.engine import ONCE, SETTING, Scripted, collect, items, load, relu

PACKAGE = Path(hwbench.__file__).parent


def test_a_lost_connection_costs_nothing_and_is_made_again(scripted, monkeypatch):
    monkeypatch.setattr(host, "RECONNECTS_S", (0.0, 0.0, 0.0))
    gone = iter([WorkerLost("disconnected", "the cable"), WorkerLost("disconnected", "the cable")])
    ask = Scripted.ask

    def cut(self, message: dict) -> dict:
        if message["ask"] == "sample" and message["item"] == "b" and (lost := next(gone, None)):
            raise lost
        return ask(self, message)

    monkeypatch.setattr(Scripted, "ask", cut)
    taken = collect(items("abc"), Plan(ONCE, "scripted"))
    assert sorted((s.key, s.process, s.round) for s in taken) == [(key, 0, r) for key in "abc" for r in range(ONCE.rounds)]
    assert {s.status for s in taken} == {"ok"}


def test_a_device_that_stays_away_ends_the_run_and_blames_nobody(scripted, monkeypatch):
    monkeypatch.setattr(host, "RECONNECTS_S", (0.0, 0.0))
    scripted.faults["sample", "b"] = WorkerLost("disconnected", "the cable")
    taken: list[Sample] = []
    with pytest.raises(WorkerLost, match="the cable"):
        measure(items("b"), Plan(ONCE, "scripted"), Progress(), lambda sample, _: taken.append(sample))
    assert (taken, Scripted.started + 1) == ([], len(host.RECONNECTS_S))


def test_an_unreachable_device_is_tried_for_a_while(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(host.time, "sleep", waits.append)
    monkeypatch.setattr(host, "WorkerProcess", lambda *_: (_ for _ in ()).throw(WorkerLost("unreachable", "no route")))
    with pytest.raises(WorkerLost, match="no route"):
        measure(items("a"), Plan(ONCE, "scripted"), Progress(), lambda *_: None)
    assert waits == list(host.RECONNECTS_S)


class Apart(Local):
    """This machine as if it saw none of our files."""

    shares_files = False


def test_files_travel_through_the_pipe_and_are_gone_once_loaded(tmp_path, fast_policy):
    path = relu(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    worker = WorkerProcess("onnxruntime", 60, Apart())
    try:
        there = worker.deliver(str(path), digest)
        assert there != str(path)
        assert Path(there).read_bytes() == path.read_bytes()
        answer = worker.ask({**load(path, fast_policy), "path": there})
        assert answer["status"] == "ok"
        assert not Path(there).exists()
        with pytest.raises(ValueError, match=r"a file arrived changed \(hash differs\)"):
            worker.deliver(str(path), "0" * 64)
        assert worker.ask({"ask": "sing"})["reason"] == "unknown request 'sing'"  # the pipe is where it was
    finally:
        worker.close(kill=True)


def test_a_full_disk_there_refuses_the_item_and_goes_on(tmp_path, fast_policy):
    """The worker may not write more than 100 kB to any file."""
    large, small = tmp_path / "large", relu(tmp_path)
    large.write_bytes(bytes(200_000))

    class Full(Apart):
        def start(self):
            limited = "import resource, runpy, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
            limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
            limited += "runpy.run_module('hwbench.device.agent.worker', run_name='__main__')"
            return popen([sys.executable, "-c", limited], {"PYTHONPATH": str(PACKAGE.parent)})

    def item(key: str, path: Path) -> Item:
        return Item(key, SETTING, lambda: (str(path), hashlib.sha256(path.read_bytes()).hexdigest()))

    plan = Plan(replace(fast_policy, min_processes=1, max_processes=1, rounds=1), "onnxruntime", transport=Full())
    taken = {s.key: s for s in collect([item("large", large), item("small", small)], plan)}
    assert taken["small"].status == "ok"
    assert taken["large"].status == "refused"
    assert taken["large"].reason == "the device cannot store a file of 200000 bytes: File too large"


@pytest.mark.parametrize(("factor", "status"), [(1.0, "ok"), (1.01, "refused")])
def test_a_runtime_whose_result_is_wrong_is_not_measured(tmp_path, fast_policy, factor, status):
    path = relu(tmp_path)
    good = Onnxruntime().load(str(path), SETTING, {}, {})
    good.run()
    np.savez(tmp_path / "expected.npz", **{"000": factor * good.outputs()[0]})
    digest = hashlib.sha256((tmp_path / "expected.npz").read_bytes()).hexdigest()
    worker = WorkerProcess("onnxruntime", 60)
    try:
        expected = {"path": str(tmp_path / "expected.npz"), "sha256": digest}
        answer = worker.ask({**load(path, fast_policy), "expected": expected})
    finally:
        worker.close(kill=True)
    assert answer["status"] == status
    if status == "refused":
        assert answer["reason"].startswith("wrong result: outputs differ from onnxruntime's by 0.0099 of their largest value")
