"""Fixtures of tests of the engine."""

from __future__ import annotations

import pytest

from hwbench.profiler import host
from hwbench.profiler.host import WorkerProcess
from tests.profiler.engine import Scripted


@pytest.fixture
def worker():
    process = WorkerProcess("onnxruntime", timeout_s=60)
    yield process
    process.close(kill=True)


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr(host, "WorkerProcess", Scripted)
    monkeypatch.setattr(Scripted, "started", -1)
    monkeypatch.setattr(Scripted, "log", [], raising=False)
    monkeypatch.setattr(Scripted, "faults", {}, raising=False)
    monkeypatch.setattr(Scripted, "canaries_ns", {}, raising=False)
    monkeypatch.setattr(Scripted, "values_ns", {name: [100.0] * 99 for name in "abcdefghijkl"}, raising=False)
    return Scripted
