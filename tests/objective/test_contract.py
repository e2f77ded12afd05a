"""One suite over every registered objective: faster is never worse, budgets are positive, and who breaks one stands behind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench import registry
from hwbench.errors import UsageError
from hwbench.objective.base import Objective, Score, check_budget

NAMES = registry.names("objective")
every_objective = pytest.mark.parametrize("name", NAMES)
positive = st.floats(1e-3, 1e3)


def make(name: str, budget: float = 10.0, **extra: float) -> Objective:
    return registry.make("objective", name, budget=budget, **extra)


@every_objective
@given(accuracy=positive, budget=positive, costs=st.lists(positive, min_size=2, max_size=2))
def test_at_equal_accuracy_the_faster_never_scores_lower(name, accuracy, budget, costs):
    fast, slow = sorted(costs)
    score = make(name, budget).score(np.array([accuracy, accuracy]), np.array([fast, slow]))
    assert (score.violation[0], -score.fitness[0]) <= (score.violation[1], -score.fitness[1])
    assert score.order()[0] == 0


@every_objective
@given(cost=positive, budget=positive, accuracies=st.lists(positive, min_size=2, max_size=2, unique=True))
def test_at_equal_cost_the_more_accurate_scores_higher(name, cost, budget, accuracies):
    worse, better = sorted(accuracies)
    score = make(name, budget).score(np.array([worse, better]), np.array([cost, cost]))
    assert score.violation[0] == score.violation[1]
    assert score.fitness[0] < score.fitness[1] or better - worse < 1e-12 * better


@every_objective
def test_an_objective_scores_a_population_and_changes_nothing(name):
    accuracy, cost = np.array([1.0, 2.0, 3.0]), np.array([5.0, 10.0, 20.0])
    objective = make(name)
    score = objective.score(accuracy, cost)
    assert score.fitness.shape == score.violation.shape == (3,)
    assert np.isfinite(score.fitness).all()
    assert (score.violation >= 0).all()
    assert accuracy.tolist() == [1.0, 2.0, 3.0]
    assert cost.tolist() == [5.0, 10.0, 20.0]
    assert (objective.score(accuracy, cost).fitness == score.fitness).all()
    assert bool(score.violation.any()) is objective.hard  # only a hard budget rules anything out
    empty = objective.score(np.empty(0), np.empty(0))
    assert empty.order().tolist() == []


@every_objective
@pytest.mark.parametrize("budget", [0.0, -1.0, -0.0, math.inf, -math.inf, math.nan])
def test_a_budget_is_a_positive_number(name, budget):
    for refuse in (lambda: make(name, budget), lambda: check_budget(budget)):
        with pytest.raises(UsageError, match=f"must be a positive number of milliseconds, got {budget:g}"):
            refuse()


def test_the_hard_ones_leave_accuracy_alone_within_the_budget():
    accuracy, cost = np.array([3.0, 7.0, 5.0]), np.array([1.0, 9.999, 10.0])
    for name in ("constrained", "mnasnet-hard"):
        score = make(name).score(accuracy, cost)
        assert score.fitness.tolist() == accuracy.tolist()
        assert score.violation.tolist() == [0.0, 0.0, 0.0]


def test_the_constraint_by_hand():
    score = make("constrained").score(np.array([1.0, 9.0, 9.0, 2.0]), np.array([10.0, 12.5, 11.0, 4.0]))
    assert score.fitness.tolist() == [1.0, 9.0, 9.0, 2.0]
    assert score.violation == pytest.approx([0.0, 0.25, 0.1, 0.0])
    assert score.order().tolist() == [3, 0, 2, 1]


@given(budget=positive)
def test_a_hard_budget_is_broken_by_the_smallest_excess(budget):
    cost = np.array([np.nextafter(budget, 0), budget, np.nextafter(budget, np.inf)])
    for name in NAMES:
        objective = make(name, budget)
        if objective.hard:
            assert (objective.score(np.ones(3), cost).violation > 0).tolist() == [False, False, True]


def test_the_mnasnet_reward_by_hand():
    accuracy, cost = np.array([8.0, 8.0, 8.0]), np.array([5.0, 10.0, 20.0])
    assert make("mnasnet-soft").score(accuracy, cost).fitness == pytest.approx([8 * 2**0.07, 8.0, 8 * 2**-0.07])
    assert make("mnasnet-hard").score(accuracy, cost).fitness == pytest.approx([8.0, 8.0, 4.0])
    assert make("mnasnet-soft", gamma=-0.5).score(accuracy, cost).fitness == pytest.approx([8 * 2**0.5, 8.0, 8 / 2**0.5])
    assert make("mnasnet-hard", gamma=-2.0).score(accuracy, cost).fitness == pytest.approx([8.0, 8.0, 2.0])
    assert make("mnasnet-soft", gamma=0.0).score(accuracy, cost).fitness.tolist() == [8.0, 8.0, 8.0]


@pytest.mark.parametrize("name", ["mnasnet-soft", "mnasnet-hard"])
def test_a_reward_for_slowness_is_refused(name):
    for gamma in (0.07, 1e-9, math.inf, math.nan):
        with pytest.raises(UsageError, match="gamma must be <= 0"):
            make(name, gamma=gamma)
    for accuracy in (0.0, -1.0):
        with pytest.raises(UsageError, match="needs positive accuracies"):
            make(name).score(np.array([1.0, accuracy]), np.array([1.0, 1.0]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=10))
def test_the_order_is_feasible_first_then_least_broken_and_stable(points):
    fitness, violation = (np.array([p[i] for p in points], float) for i in range(2))
    order = Score(fitness, violation).order().tolist()
    assert order == sorted(range(len(points)), key=lambda i: (violation[i], -fitness[i], i))
