"""The whole flow in one call: here, and on a board over a real sshd, whose files can then be used elsewhere."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import HwbenchError, MeasurementError, UsageError
from hwbench.lut.table import Lut
from hwbench.profiler.profile import ProfileResult, profile
from hwbench.study import quickstart
from tests.device.sshd import Sshd
from tests.space.mixer import Mixer
from tests.study.test_verify_elsewhere import describe


@pytest.fixture(autouse=True)
def brief(monkeypatch, fast_policy) -> Iterator[None]:
    """The smallest space there is, measured shortly."""
    with monkeypatch.context() as patch:
        patch.setitem(registry._targets("space"), "mixer", lambda: Mixer)
        for name, value in {"SPACE": "mixer", "NETWORKS": 4, "RANDOM": 2, "POLICY": fast_policy}.items():
            patch.setattr(quickstart, name, value)
        patch.setattr(quickstart, "profile", functools.partial(profile, policy=fast_policy))
        yield
    registry._shared.cache_clear()


def flow(root: Path, **asked: str) -> tuple[dict[str, Any], list[str]]:
    """What it returned, and its lines without numbers that were measured."""
    said: list[str] = []
    done = quickstart.quickstart(root, say=said.append, **asked)
    return done, [line.partition(":")[0] for line in said]


STEPS = ["1/6 device", "2/6 table", "3/6 predictor", "4/6 search", "5/6 verified", "6/6 report"]


def test_from_this_machine_to_a_report(tmp_path):
    done, said = flow(tmp_path)
    assert list(dict.fromkeys(said)) == STEPS
    assert Path(done["html"]).is_file()
    assert done["answer"].startswith("The best network of mixer within ")
    again, _ = flow(tmp_path)
    assert (done["measured_rows"] > 0, again["measured_rows"]) == (True, 0)


def test_the_same_on_a_board_and_what_is_sent_back_is_used_elsewhere(tmp_path, tmp_path_factory, monkeypatch):
    board = Sshd(tmp_path_factory.mktemp("sshd"))
    monkeypatch.setenv("PATH", f"{board.bin}{os.pathsep}{os.environ['PATH']}")
    try:
        describe(tmp_path, board)
        done, said = flow(tmp_path, device="board")
    finally:
        board.close()
    assert said == STEPS
    assert done["verification"]["measured"]
    other = tmp_path_factory.mktemp("other") / "workspace"
    for part in ("devices", "luts", "predictors", "reports"):  # what docs/boards.md asks for
        shutil.copytree(tmp_path / part, other / part)
    table = Lut.read(other / "luts" / "board" / "onnxruntime.parquet")
    assert table.environment.values["machine"] == os.uname().machine
    arch = next((other / "reports").glob("quickstart-*"))
    answers = hwbench.predict("mixer", arch, device="board", workspace=other)
    assert answers[0]["latency_ms"] == pytest.approx(done["verification"]["winner"]["predicted_ms"])


def test_an_emulated_device_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(UsageError, match=r"counts instructions.*hwbench profile --space mixer --device emulated-x86-64"):
        quickstart.quickstart(tmp_path, device="emulated-x86-64")


def test_a_device_nobody_knows_is_named(tmp_path):
    with pytest.raises(HwbenchError, match="Unknown device 'nowhere'"):
        quickstart.quickstart(tmp_path, device="nowhere")


def test_a_runtime_that_runs_nothing_ends_the_flow_with_its_reason(tmp_path, monkeypatch):
    failed = {"relu(dim=8,tokens=4)": "refused: built, not run: no CUDA device"}
    result = ProfileResult(tmp_path, "here", 1, 0, 0, failed, {}, 0.0)
    monkeypatch.setattr(quickstart, "profile", lambda *args, **kwargs: result)
    with pytest.raises(MeasurementError, match=r"^tensorrt did not run 1 ops of mixer.*First: relu.*no CUDA device$"):
        quickstart.quickstart(tmp_path, runtime="tensorrt")
