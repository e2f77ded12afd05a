"""Spaces priced from kernels: errors by hand-computed numbers, unseen networks, and a trial run beside a stand-in's prices."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.predictor.base import Latencies, Refusal
from hwbench.predictor.fit import calibration_sets
from studies import accuracy, kernel_spaces

SPACE = "autoformer-tiny"


@dataclass(frozen=True)
class Prices:
    """A predictor of ONNX models that says 10 ms of everything."""

    spaces: tuple[str, ...] = ("bert", "nasvit")

    @property
    def card(self) -> SimpleNamespace:
        return SimpleNamespace(spaces=self.spaces, networks_per_space=SimpleNamespace(fit=4, holdout=4), seed=0)

    def for_space(self, space, statistic):
        return self

    def predict(self, population) -> Latencies:
        ten = np.full(population.shape[1], 10.0)
        return Latencies(ten, 0.9 * ten, 1.1 * ten, np.full(len(ten), 0.5))


def test_errors_and_intervals_of_a_way():
    ten = np.full(4, 10.0)
    found = Latencies(ten, 0.9 * ten, 1.3 * ten, np.array([0.0, 0.2, 0.4, 1.0]))
    judged = kernel_spaces.judged(found, np.array([10.0, 12.5, 8.0, 10.0]))  # 0, -20 %, +25 %, 0
    assert (judged["mean"], judged["worst"], judged["within_10"]) == pytest.approx((0.1125, 0.25, 0.5))
    assert (judged["inside"], judged["median_width"], judged["measured_share"]) == pytest.approx((0.75, 0.4, 0.3))


def test_networks_to_judge_on_are_in_no_calibration():
    card = Prices((SPACE,)).card
    known = kernel_spaces.calibrated_on(card, SPACE)
    assert known == {key for part in calibration_sets([SPACE], 4, 4, 0) for each in part for key in each.keys}
    assert len(known) == 8
    assert kernel_spaces.calibrated_on(card, "bert") == set()
    drawn = accuracy.unseen(SPACE, 5, kernel_spaces.SEED, set())
    others = accuracy.unseen(SPACE, 5, kernel_spaces.SEED, {drawn.keys[0]})
    assert others.keys[:4] == drawn.keys[1:]
    assert not {*drawn.keys} & known


def test_a_refusal_ends_the_stage_in_its_own_words():
    refusing = SimpleNamespace(for_space=lambda space, statistic: Refusal("no price of Softmax"))
    with pytest.raises(UsageError, match="no price of Softmax"):
        kernel_spaces.answering(refusing, registry.get("space", SPACE))


@pytest.mark.campaign
@pytest.mark.slow  # kernels of a space are profiled and its networks measured
def test_a_trial_run_from_the_command_line_to_the_report(tiny_workspace, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_spaces.onnx_latency, "load", lambda target: Prices())
    place = shutil.copytree(tiny_workspace, tmp_path / "workspace")
    assert kernel_spaces.STUDY.main(["--tiny", "--out", str(tmp_path / "out"), "--workspace", str(place)]) == 0
    text = (tmp_path / "out" / "kernel_spaces.md").read_text()
    assert f"| {SPACE} | kernels | 3 |" in text
    assert f"| {SPACE} | table | 3 |" in text
    assert f"kernels calibrated on bert, nasvit ({SPACE} not among them)" in text
