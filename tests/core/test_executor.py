"""Every executor by its contract; Ray on a cluster of its own, and what is said where it cannot be had."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Iterator

import pytest

from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.executor import ray as door
from hwbench.core.executor.base import make_executor
from hwbench.core.executor.processes import Processes
from hwbench.testing import ExecutorContract
from studies.ray_cluster import RayCluster

LONG = os.environ.get("HWBENCH_CAMPAIGN") == "1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """One raylet with two processors, and a device that only it reaches."""
    pytest.importorskip("ray", reason="ray is not installed")
    with RayCluster(2, resources={0: '{"device:pi4": 1}'}) as found:
        yield found


class TestProcesses(ExecutorContract):
    name = "processes"


@pytest.mark.skipif(not LONG, reason="long: make campaign runs it")
class TestRay(ExecutorContract):
    name = "ray"

    @pytest.fixture(autouse=True)
    def joined(self, cluster, monkeypatch):
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        monkeypatch.setenv("RAY_TMPDIR", str(cluster.folder))

    def test_a_device_has_one_item_at_a_time_and_one_that_nobody_has_is_refused(self):
        executor = self.executor()
        try:
            submit = executor.at("pi4")
            assert [each.result(300) for each in [submit(math.sqrt, n) for n in (4, 9)]] == [2.0, 3.0]
            with pytest.raises(UsageError, match=r"No machine of the cluster has device pi5\. .*\"device:pi5\": 1"):
                executor.at("pi5")
        finally:
            executor.shutdown()


def test_an_item_that_finds_other_versions_is_refused(monkeypatch):
    mine = door.versions()
    assert door.answer(mine, (), operator.neg, (2,), {}) == (-2, None)
    nothing, error = door.answer({**mine, "numpy": "1.0"}, (), operator.neg, (2,), {})
    assert nothing is None
    assert "numpy" in str(error)
    assert "this machine has 1.0: answers could differ" in str(error)


def test_an_address_is_its_schemes_and_an_unknown_name_is_answered_with_the_nearest(monkeypatch):
    asked = []
    monkeypatch.setattr(door, "_joined", lambda address: asked.append(address) or _Stub())
    made = make_executor("ray://head:10001")
    assert (made.name, asked) == ("ray", ["ray://head:10001"])
    assert isinstance(make_executor("processes", 3, 1), Processes)
    for wrong in ("rey", "rey://head"):
        with pytest.raises(UnknownName, match=r"Unknown executor 'rey'\. Did you mean ray"):
            make_executor(wrong)


class _Stub:
    """As much of Ray as an executor asks for before it has an item."""

    def remote(self, **_: object):
        return lambda function: function


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"Executor ray needs a package: pip install 'hwbench-nas\[ray\]'"):
        make_executor("ray")


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    if not LONG:
        pytest.skip("long: make campaign runs it")
    with pytest.raises(UsageError, match=r"No Ray cluster answers at ray://127\.0\.0\.1:1"):
        make_executor("ray://127.0.0.1:1")
