"""hwbench.reward: the objectives that make one number, as functions of accuracy and costs."""

from __future__ import annotations

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.optimize.objective.mnasnet import Mnasnet

LIMITS = {"latency_ms": 12.0}


def test_it_is_mnasnets():
    reward = hwbench.reward("mnasnet-soft", limits=LIMITS)
    accuracy, latency_ms = np.array([0.7, 0.8]), np.array([6.0, 24.0])
    assert reward(accuracy, latency_ms) == pytest.approx(accuracy * (latency_ms / 12) ** -0.07)
    assert reward(0.7, 12.0) == 0.7
    assert np.ndim(reward(0.7, 12.0)) == 0
    hard = hwbench.reward("mnasnet-hard", limits=LIMITS, gamma=-2.0)
    assert hard(accuracy, latency_ms) == pytest.approx([0.7, 0.8 / 4])
    assert repr(hard) == "Reward(mnasnet-hard, latency_ms 12)"


def test_several_limits_take_a_mapping():
    reward = hwbench.reward("mnasnet-soft", limits={"latency_ms": 12.0, "params_m": 5.0}, gamma=-1)
    assert reward([0.8], {"latency_ms": [24.0], "params_m": [10.0], "macs_m": [1.0]}) == pytest.approx([0.2])
    with pytest.raises(UsageError, match="has the limits latency_ms, params_m: give the costs as a mapping"):
        reward([0.8], [24.0])
    with pytest.raises(UsageError, match="needs params_m; given are latency_ms"):
        reward([0.8], {"latency_ms": [24.0]})


@pytest.mark.parametrize("name", registry.names("objective"))
def test_every_objective_is_a_reward_or_says_why_not(name):
    limits = {"latency_ms": 12.0, "params_m": 5.0, "macs_m": 100.0}
    if name in ("constrained", "pareto"):
        with pytest.raises(UsageError, match="tells several numbers"):
            hwbench.reward(name, limits)
        return
    costs = {"latency_ms": [6.0, np.nan], "params_m": [4.0, 4.0], "macs_m": [90.0, 90.0]}
    good, invalid = hwbench.reward(name, limits)([0.7, 0.7], costs)
    assert np.isfinite(good)
    assert np.isnan(invalid)


def test_a_class_and_options_are_taken():
    assert hwbench.reward("uninet:alpha=1", limits=LIMITS)(0.5, 24.0) == pytest.approx(0.25)

    class Mine(Mnasnet):
        def __init__(self, limits):
            super().__init__(limits, within=True)

    assert hwbench.reward(Mine, limits=LIMITS)(0.7, 12.0) == 0.7


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "mnasnet-sft"}, "Did you mean mnasnet-soft"),
        ({"limits": {}}, "at least one budget"),
        ({"limits": {"latency_ms": -1}}, "positive number"),
        ({"gamma": 0.1}, "gamma must be <= 0"),
        ({"name": "zeroed", "gamma": -1}, "takes no --gamma"),
    ],
)
def test_what_makes_no_sense_is_refused(asked, said):
    with pytest.raises(UsageError, match=said):
        hwbench.reward(**{"name": "mnasnet-soft", "limits": LIMITS, **asked})


@pytest.mark.parametrize(("accuracy", "costs"), [(0.7, [1.0, 2.0]), ([0.7, 0.8], [1.0]), ([[0.7]], [[1.0]])])
def test_numbers_must_belong_together(accuracy, costs):
    with pytest.raises(UsageError, match="as many costs as accuracies; their shapes are accuracy"):
        hwbench.reward("mnasnet-soft", limits=LIMITS)(accuracy, costs)
