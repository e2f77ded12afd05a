"""What every objective keeps: cheaper is never worse, budgets are positive, and who breaks one stands behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.optimize.objective.base import Objective
from hwbench.optimize.problem import Problem
from hwbench.testing.base import Contract, cases

LIMITS = {"latency_ms": 10.0, "params_m": 8.0, "macs_m": 1000.0}
HALF = {name: most / 2 for name, most in LIMITS.items()}
DRAWS = 100
"""Pairs that are compared, over six orders of magnitude, with the ends and equals among them."""


def values(accuracy: Sequence[float], **costs: Sequence[float]) -> dict[str, np.ndarray]:
    """Arrays for every name; costs not given are half their limit."""
    n = len(accuracy)
    found = {"accuracy": np.array(accuracy, float), **{name: np.full(n, cost) for name, cost in HALF.items()}}
    return {**found, **{name: np.array(cost, float) for name, cost in costs.items()}}


def problem(objective: Objective) -> Problem:
    """What a strategy would be given."""
    return Problem([("gene", 2)], objective.objectives, objective.limits)


def order(objective: Objective, given: dict[str, np.ndarray]) -> list[int]:
    """Best first, as a strategy that is told sees it."""
    found: list[int] = problem(objective).order(objective.told(given)).tolist()
    return found


def _positive(n: int, seed: int) -> np.ndarray:
    """[DRAWS, n] between 0.001 and 1000; the ends, 1 and equal numbers first."""
    drawn = 10.0 ** np.random.default_rng(seed).uniform(-3, 3, (DRAWS, n))
    for i, value in enumerate((1e-3, 1e3, 1.0)):
        drawn[i] = value
    drawn[3], drawn[4] = np.geomspace(1e-3, 1e3, n), np.geomspace(1e3, 1e-3, n)
    return np.asarray(drawn)


class ObjectiveContract(Contract):
    """Of an objective that is made with `limits`."""

    kind = "objective"
    needs_budget = True
    """False for one that also works without any budget."""

    def arguments(self) -> dict[str, Any]:
        """Three budgets."""
        return {"limits": LIMITS}

    def new(self, limits: dict[str, float] | None = None) -> Objective:
        """The objective under these budgets."""
        made: Objective = self.make(limits=LIMITS if limits is None else limits)
        return made

    def expect_first(self, given: dict[str, np.ndarray], first: int, why: str) -> None:
        """That one stands before the others."""
        found = order(self.new(), given)
        shown = {name: column.tolist() for name, column in given.items()}
        self.expect(found[0] == first, "told", f"expected {why}; of {shown} number {found[0]} came first")

    @cases(cost=sorted(LIMITS))
    def test_at_equal_accuracy_the_cheaper_never_stands_behind(self, cost: str) -> None:
        """Whichever cost it is."""
        for (accuracy,), pair in zip(_positive(1, 1), _positive(2, 2), strict=True):
            given = values([accuracy] * 2, **{cost: sorted(pair)})
            self.expect_first(given, 0, f"the lower {cost} first at equal accuracy")

    def test_at_equal_cost_the_more_accurate_never_stands_behind(self) -> None:
        """Whatever it costs."""
        for (cost,), pair in zip(_positive(1, 3), _positive(2, 4), strict=True):
            if pair[0] != pair[1]:
                given = values(sorted(pair, reverse=True), latency_ms=[cost] * 2)
                self.expect_first(given, 0, "the higher accuracy first at equal cost")

    def test_within_the_budgets_accuracy_counts(self) -> None:
        """All of them cost half of what they may."""
        self.expect_first(values([1.0, 3.0, 2.0]), 1, "the highest accuracy first within the budgets")

    def test_what_is_told_is_what_a_problem_needs_and_nothing_given_is_changed(self) -> None:
        """Every name of `objectives` and `limits`, finite, the same again."""
        objective, given = self.new(), values([1.0, 2.0, 3.0], latency_ms=[5.0, 10.0, 20.0])
        before = {key: column.copy() for key, column in given.items()}
        told, names = objective.told(given), set(problem(objective).names)
        self.expect(set(told) == names, "told", f"expected {sorted(names)}, found {sorted(told)}")
        finite = all(column.shape == (3,) and np.isfinite(column).all() for column in told.values())
        self.expect(finite, "told", "expected three finite numbers per name")
        kept = all((given[key] == before[key]).all() for key in before)
        self.expect(kept, "told", "expected that the arrays it is given stay as they are")
        again = objective.told(given)
        self.expect(all((again[key] == told[key]).all() for key in told), "told", "expected the same answer to the same values")
        empty = all(column.shape == (0,) for column in objective.told(values([])).values())
        self.expect(empty, "told", "expected empty arrays for no architectures")

    def test_only_a_hard_objective_limits_the_strategy_and_it_puts_whoever_breaks_a_budget_last(self) -> None:
        """`hard` says which it is."""
        objective = self.new()
        given = values([9.0, 1.0, 8.0, 2.0], latency_ms=[10.1, 10.0, 30.0, 4.0], params_m=[1.0, 8.0, 1.0, 1.0])
        if objective.hard:
            first = set(order(objective, given)[:2])
            self.expect(first == {1, 3}, "told", f"expected the two that keep their budgets first, found {first}")
        else:
            self.expect(not objective.limits, "limits", f"expected none, as hard is False, found {dict(objective.limits)}")

    def test_what_is_invalid_stays_so(self) -> None:
        """NaN in, NaN out, and last."""
        objective = self.new()
        for broken in (values([math.nan, 1.0], latency_ms=[5.0, 5.0]), values([1.0, 1.0], latency_ms=[math.nan, 5.0])):
            invalid = problem(objective).invalid(objective.told(broken)).tolist()
            self.expect(invalid == [True, False], "told", "expected NaN for an architecture whose accuracy or cost is NaN")
            self.expect(order(objective, broken) == [1, 0], "told", "expected an invalid architecture last")
        beyond = values([math.nan, 1.0], latency_ms=[50.0, 5.0])
        invalid = problem(objective).invalid(objective.told(beyond)).tolist()
        self.expect(invalid == [True, False], "told", "expected NaN for an invalid architecture beyond its budget, too")

    @cases(cost=sorted(LIMITS), budget=[0.0, -1.0, -0.0, math.inf, -math.inf, math.nan, "much", None])
    def test_a_budget_is_a_positive_number(self, cost: str, budget: Any) -> None:
        """`check_budgets` says it."""
        with self.refusal(UsageError, f"A budget must be a positive number; that of {cost} is {budget}", "limits"):
            self.make(limits={**LIMITS, cost: budget})

    def test_one_number_needs_a_budget(self) -> None:
        """Unless it passes everything on."""
        if not self.needs_budget:
            self.skip("it works without a budget")
        with self.refusal(UsageError, "needs at least one budget", "limits"):
            self.make(limits={})
