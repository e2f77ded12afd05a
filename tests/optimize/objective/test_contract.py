"""One suite over every registered objective: cheaper is never worse, budgets are positive, and who breaks one stands behind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.optimize.objective.base import Objective
from hwbench.optimize.problem import violation
from hwbench.testing.base import suites
from hwbench.testing.objective import LIMITS, order, values

positive = st.floats(1e-3, 1e3)


def make(name: str, limits: dict[str, float] | None = None, **extra: float) -> Objective:
    return registry.make("objective", name, limits=LIMITS if limits is None else limits, **extra)


def fitness(name: str, given: dict[str, np.ndarray], limits: dict[str, float] | None = None, **extra: float) -> np.ndarray:
    return make(name, limits, **extra).told(given)["fitness"]


# All of them

globals().update(suites("objective", needs_budget=lambda name: name != "pareto"))

# How far budgets are broken


def test_a_violation_by_hand():
    given = values([1.0] * 4, latency_ms=[10.0, 12.5, 11.0, 4.0], params_m=[8.0, 8.0, 10.0, 9.0])
    assert violation(given, LIMITS) == pytest.approx([0.0, 0.25, 0.1 + 0.25, 0.125])


@given(budget=positive)
def test_a_budget_is_broken_by_the_smallest_excess_that_is_no_rounding(budget):
    cost = budget * np.array([1 - 1e-9, 1.0, 1 + 1e-14, 1 + 1e-11])
    assert (violation({"latency_ms": cost}, {"latency_ms": budget}) > 0).tolist() == [False, False, False, True]


# Each by hand


def test_constraints_by_hand():
    given = values([1.0, 9.0, 9.5, 2.0], latency_ms=[10.0, 12.5, 11.0, 4.0], params_m=[8.0, 8.0, 10.0, 8.0])
    told = make("constrained").told(given)
    assert told["accuracy"].tolist() == [1.0, 9.0, 9.5, 2.0]
    assert violation(told, LIMITS) == pytest.approx([0.0, 0.25, 0.1 + 0.25, 0.0])
    assert order(make("constrained"), given) == [3, 0, 1, 2]


ONE = {"latency_ms": 10.0}
THREE = values([8.0, 8.0, 8.0], latency_ms=[5.0, 10.0, 20.0])


def test_the_mnasnet_reward_by_hand():
    assert fitness("mnasnet-soft", THREE, ONE) == pytest.approx([8 * 2**0.07, 8.0, 8 * 2**-0.07])
    assert fitness("mnasnet-hard", THREE, ONE) == pytest.approx([8.0, 8.0, 4.0])
    assert fitness("mnasnet-soft", THREE, ONE, gamma=-0.5) == pytest.approx([8 * 2**0.5, 8.0, 8 / 2**0.5])
    assert fitness("mnasnet-hard", THREE, ONE, gamma=-2.0) == pytest.approx([8.0, 8.0, 2.0])
    assert fitness("mnasnet-soft", THREE, ONE, gamma=0.0).tolist() == [8.0, 8.0, 8.0]


def test_the_mnasnet_reward_multiplies_over_costs():
    given = values([8.0, 8.0], latency_ms=[20.0, 5.0], params_m=[16.0, 32.0])
    limits = {"latency_ms": 10.0, "params_m": 8.0}
    assert fitness("mnasnet-hard", given, limits) == pytest.approx([8 / 2 / 2, 8 / 4])  # 5 of 10 ms earns nothing
    assert fitness("mnasnet-soft", given, limits, gamma=-0.5) == pytest.approx([8 / 2, 8 * 2**0.5 / 2])


def test_the_zeroed_reward_by_hand():
    given = values([3.0, 7.0, 5.0, 6.0], latency_ms=[1.0, 10.0, 10.001, 4.0], params_m=[1.0, 1.0, 1.0, 8.5])
    assert fitness("zeroed", given).tolist() == [3.0, 7.0, 0.0, 0.0]


def test_the_weighted_fitness_by_hand():
    given = values([0.8, 0.6], latency_ms=[20.0, 5.0])
    assert fitness("weighted", given, ONE, t=0.25) == pytest.approx([0.75 * 0.8 - 0.25 * 2, 0.75 * 0.6 - 0.25 * 0.5])
    percent = {**given, "accuracy": 100 * given["accuracy"]}
    assert fitness("weighted:t=0.25,accuracy_unit=100", percent, ONE) == pytest.approx(fitness("weighted:t=0.25", given, ONE))
    assert fitness("weighted", given, ONE, t=0.0).tolist() == [0.8, 0.6]
    assert fitness("weighted", given, ONE, t=1.0).tolist() == [-2.0, -0.5]
    two = {**given, "params_m": np.array([4.0, 12.0])}  # 0.5 and 1.5 of 8
    limits = {"latency_ms": 10.0, "params_m": 8.0}
    assert fitness("weighted", two, limits, t=0.5) == pytest.approx([0.4 - 0.5 * (2 + 0.5) / 2, 0.3 - 0.5 * (0.5 + 1.5) / 2])


def test_the_uninet_reward_by_hand_and_as_mnasnets():
    assert fitness("uninet", THREE, ONE, alpha=0.5) == pytest.approx([8 * 2**0.5, 8.0, 8 / 2**0.5])
    several = values([8.0, 3.0], latency_ms=[20.0, 5.0], params_m=[16.0, 2.0])
    for alpha in (0.07, 1.0):
        assert fitness("uninet", several, alpha=alpha) == pytest.approx(fitness("mnasnet-soft", several, gamma=-alpha))
    assert fitness("uninet", several) == pytest.approx(fitness("mnasnet-soft", several))


def test_the_adabert_fitness_by_hand():
    given = values([0.9, 0.8], params_m=[6.0, 2.0], macs_m=[500.0, 250.0])
    limits = {"params_m": 8.0, "macs_m": 1000.0}
    assert fitness("adabert", given, limits, weight=0.1) == pytest.approx([0.9 - 0.1 * (0.75 + 0.5), 0.8 - 0.1 * (0.25 + 0.25)])
    assert fitness("adabert", given, limits, weight=0.0).tolist() == [0.9, 0.8]
    timed = {**given, "latency_ms": np.array([12.0, 5.0])}
    expected = [0.9 - 0.1 * (0.75 + 0.5 + 1.2), 0.8 - 0.1 * (0.25 + 0.25 + 0.5)]
    assert fitness("adabert:weight=0.1", timed) == pytest.approx(expected)


def test_the_adabert_loss_grows_with_the_number_of_cells():
    """K / K_max of the printed loss: K equal cells cost K times what one does, so thrice the depth is thrice the loss."""
    cells = np.array([1.0, 3.0])
    given = values([0.0, 0.0], params_m=0.5 * cells, macs_m=40.0 * cells)
    loss = -fitness("adabert", given, {"params_m": 6.0, "macs_m": 480.0}, weight=1.0)  # the largest: 12 cells
    assert loss == pytest.approx([2 / 12, 2 * 3 / 12])


def test_pareto_passes_everything_on():
    objective = make("pareto")
    assert objective.objectives == {"accuracy": "max", "latency_ms": "min", "params_m": "min", "macs_m": "min"}
    assert objective.limits == LIMITS
    given = values([1.0, 2.0], latency_ms=[5.0, 20.0])
    told = objective.told(given)
    assert {name: column.tolist() for name, column in told.items()} == {name: given[name].tolist() for name in told}
    free = make("pareto", {})
    assert (free.hard, free.limits) == (False, {})
    assert free.objectives == {"accuracy": "max", "latency_ms": "min"}


# Signs


@pytest.mark.parametrize("name", ["mnasnet-soft", "mnasnet-hard"])
@pytest.mark.parametrize("gamma", [0.07, 1e-9, math.inf, math.nan])
def test_an_exponent_that_rewards_slowness_is_refused(name, gamma):
    with pytest.raises(UsageError, match=r"gamma must be <= 0, got .* would reward slower networks"):
        make(name, gamma=gamma)


@pytest.mark.parametrize("alpha", [0.0, -0.07, math.inf, math.nan])
def test_a_uninet_exponent_is_positive(alpha):
    with pytest.raises(UsageError, match=r"alpha must be > 0, got .* would reward dearer networks"):
        make("uninet", alpha=alpha)


@pytest.mark.parametrize("t", [-0.01, 1.01, math.nan, math.inf])
def test_a_weight_of_cost_is_a_share(t):
    with pytest.raises(UsageError, match=r"t must be between 0 \(accuracy alone counts\) and 1 \(cost alone counts\)"):
        make("weighted", t=t)


@pytest.mark.parametrize("unit", [0.0, -100.0, math.nan, math.inf])
def test_an_accuracy_unit_is_positive(unit):
    with pytest.raises(UsageError, match="accuracy_unit must be positive"):
        make("weighted", accuracy_unit=unit)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_an_efficiency_loss_is_not_a_reward(weight):
    with pytest.raises(UsageError, match=r"weight must be >= 0, got .* would reward large networks"):
        make("adabert", weight=weight)


@pytest.mark.parametrize(("given", "missing"), [(ONE, "params_m and macs_m"), ({"params_m": 8.0}, "macs_m")])
def test_adabert_needs_size_and_work(given, missing):
    with pytest.raises(UsageError, match=f"limit {missing} too, e.g. --limit "):
        make("adabert", given)


@pytest.mark.parametrize("name", ["mnasnet-soft", "mnasnet-hard", "uninet", "zeroed"])
@pytest.mark.parametrize("accuracy", [0.0, -1.0])
def test_a_product_needs_positive_accuracies(name, accuracy):
    with pytest.raises(UsageError, match="reward needs positive accuracies"):
        make(name).told(values([1.0, accuracy]))
