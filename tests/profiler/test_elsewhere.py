"""A device that another process reaches: pieces of a profile make one, and a lost one costs itself only."""

from __future__ import annotations

import shutil
from concurrent.futures import Future

import pytest

from hwbench.core.errors import UsageError
from hwbench.core.executor.base import WorkerLost
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut.journal import Journal, journal_path
from hwbench.lut.table import lut_path
from hwbench.network.spec import OpSpec
from hwbench.profiler import elsewhere
from hwbench.profiler.elsewhere import measure_piece, profile_elsewhere
from hwbench.profiler.side_by_side import Failed, Work

SPECS = [OpSpec.of(name, tokens=4, dim=8) for name in ("relu", "gelu", "silu")]


class Here:
    """A cluster of one machine, which this is; it loses what comes at these calls."""

    def __init__(self, loses: tuple[int, ...] = ()) -> None:
        self.loses, self.calls = loses, 0

    def at(self, device: str):
        return self._submit

    def _submit(self, fn, *arguments) -> Future:
        future: Future = Future()
        self.calls += 1
        if self.calls in self.loses:
            future.set_exception(WorkerLost("its machine was lost"))
        else:
            future.set_result(fn(*arguments, piece_s=0.0))  # stops after its first burst
        return future

    def shutdown(self, **_: object) -> None:
        """Nothing was started."""


@pytest.fixture
def target(tiny_workspace, tmp_path) -> Target:
    shutil.copytree(tiny_workspace / "devices", tmp_path / "devices")
    return Target.of(workspace=tmp_path)


def test_pieces_make_the_whole_and_nothing_is_measured_twice(target, fast_policy, monkeypatch):
    cluster = Here()
    monkeypatch.setattr(elsewhere, "make_executor", lambda name: cluster)
    (answer,) = profile_elsewhere(Work(SPECS, fast_policy), [target], "ray").values()
    assert not isinstance(answer, Failed), answer
    assert (answer.rows, answer.failed, answer.path) == (3, {}, lut_path(target))
    taken = [(line["key"], line["process"], line["round"]) for line in Journal(journal_path(lut_path(target))).read()]
    assert len(set(taken)) == len(taken) == 3 * 3
    assert cluster.calls > 3
    again = profile_elsewhere(Work(SPECS, fast_policy), [target], "ray")[target.device]
    assert again.measured_rounds == 0


def test_what_was_measured_before_a_machine_is_lost_is_kept(target, fast_policy, monkeypatch):
    monkeypatch.setattr(elsewhere, "make_executor", lambda name: Here(loses=(3,)))
    (answer,) = profile_elsewhere(Work(SPECS, fast_policy), [target], "ray").values()
    assert isinstance(answer, Failed)
    assert "its machine was lost; what was measured is kept" in answer.message
    assert len(list(Journal(journal_path(lut_path(target))).read())) == 2


def test_a_second_writer_is_refused(target, fast_policy, monkeypatch):
    from hwbench.core.files import only_writer

    monkeypatch.setattr(elsewhere, "make_executor", lambda name: Here())
    with only_writer(journal_path(lut_path(target))):
        (answer,) = profile_elsewhere(Work(SPECS, fast_policy), [target], "ray").values()
    assert isinstance(answer, Failed)
    assert "is writing" in answer.message


def test_an_executor_without_devices_is_refused(target):
    with pytest.raises(UsageError, match="Executor processes knows no devices"):
        profile_elsewhere(Work(SPECS), [target], "processes")


def test_a_device_that_cannot_be_measured_there_says_why(target, fast_policy):
    shipped = next(each for each in map(files.read, files.files(target.workspace)) if each.unreachable)
    asked = (shipped.name, target.runtime, target.setting)
    answer, kept = measure_piece(Work(SPECS, fast_policy), asked, shipped.path.read_bytes(), {})
    assert isinstance(answer, Failed)
    assert kept == {}
