"""What a strategy is to solve: checked when it is made, and values are turned into losses and violations the right way."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core.errors import UsageError
from hwbench.optimize.problem import MOST_CHOICES, Problem

GENES = [("a", 3), ("b", 2)]
BOTH = {"accuracy": "max", "latency_ms": "min"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"genes": []}, "different names, got none"),
        ({"genes": [("a", 2), ("a", 3)]}, "different names, got a, a"),
        ({"genes": [("a", 0)]}, "a has 0"),
        ({"genes": [("a", MOST_CHOICES + 1)]}, f"a has {MOST_CHOICES + 1}"),
        ({"objectives": {}}, "at least one objective"),
        ({"objectives": {"accuracy": "maximise"}}, 'must be "max" or "min", got \'maximise\''),
        ({"limits": {"latency_ms": float("nan")}}, "limit of 'latency_ms' must be a finite number, got nan"),
        ({"limits": {"latency_ms": "12"}}, "must be a finite number, got '12'"),
        ({"known": {"energy": len}}, "'energy' is neither an objective nor limited; those are accuracy, latency_ms"),
        ({"known": {"latency_ms": 12.0}}, "'latency_ms' must be a function"),
        ({"additive": {"energy": []}}, "additive: 'energy' is neither an objective nor limited"),
        ({"additive": {"accuracy": [((0,), np.zeros(2))]}}, r"a table of 'accuracy' over genes \[0\] has shape \[2\]"),
        ({"additive": {"accuracy": [((1, 0), np.zeros((2, 3)))]}}, r"over genes \[1, 0\]"),
        ({"refusals": [((2,), np.zeros(2))]}, r"a table of 'refusals' over genes \[2\]"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        Problem(**{"genes": GENES, "objectives": BOTH, **arguments})


def test_names_sizes_and_size():
    problem = Problem(GENES, {"accuracy": "max"}, {"latency_ms": np.float32(3), "accuracy": 50})
    assert problem.names == ("accuracy", "latency_ms")
    assert problem.sizes.tolist() == [3, 2]
    assert problem.size == 6


@pytest.mark.parametrize(
    ("genes", "message"),
    [
        (np.zeros((2, 3), np.uint8), r"uint8\[n, 2\], got uint8\[2, 3\]"),
        (np.zeros(2, np.uint8), r"uint8\[n, 2\], got uint8\[2\]"),
        (np.zeros((1, 2), int), r"got int64\[1, 2\]"),
        (np.array([[0, 0], [1, 2]], np.uint8), "Architecture 1: gene 'b' is 2, it has choices 0 to 1"),
    ],
)
def test_architectures_of_another_problem_are_refused(genes, message):
    with pytest.raises(UsageError, match=message):
        Problem(GENES, BOTH).check(genes)


def test_known_values_complete_what_is_told_and_the_rest_must_be_told():
    problem = Problem(GENES, {"accuracy": "max"}, {"latency_ms": 3}, {"latency_ms": lambda genes: genes.sum(axis=1)})
    genes = np.array([[0, 1], [2, 1]], np.uint8)
    told = problem.complete(genes, {"accuracy": [1, 2], "colour": ["red", "blue"]})
    assert {name: values.tolist() for name, values in told.items()} == {"accuracy": [1, 2], "latency_ms": [1, 3]}
    assert problem.complete(genes, {"accuracy": [1, 2], "latency_ms": [5, 6]})["latency_ms"].tolist() == [5, 6]
    with pytest.raises(UsageError, match="tell lacks 'accuracy'; it needs accuracy, latency_ms"):
        problem.complete(genes, {"latency_ms": [1, 2]})
    with pytest.raises(UsageError, match=r"'accuracy' has shape \[3\] for 2 architectures"):
        problem.complete(genes, {"accuracy": [1, 2, 3]})


def test_losses_fall_with_what_is_better_and_are_infinite_where_invalid():
    problem = Problem(GENES, BOTH, {"energy": 1.0})
    values = {"accuracy": [90, 80, 70, 60], "latency_ms": [4, 3, np.nan, 1], "energy": [0, 0, 0, np.inf]}
    told = problem.complete(np.zeros((4, 2), np.uint8), values)
    assert problem.losses(told).tolist() == [[-90, 4], [-80, 3], [np.inf, np.inf], [np.inf, np.inf]]
    assert problem.invalid(told).tolist() == [False, False, True, True]


def test_violations_are_relative_sums_towards_the_forbidden_side():
    problem = Problem(GENES, BOTH, {"latency_ms": 10, "accuracy": 80, "memory": 0})
    values = {
        "accuracy": [80, 60, 90, np.nan],
        "latency_ms": [10, 15, 5, 1],
        "memory": [0, 0, 0.25, 0],
    }
    told = problem.complete(np.zeros((4, 2), np.uint8), values)
    assert problem.violation(told).tolist() == [0, 0.5 + 0.25, 0.25, np.inf]
    assert problem.order(told).tolist() == [0, 2, 1, 3]


def test_a_sum_that_is_beyond_a_limit_by_rounding_keeps_it():
    """0.1 + 0.2 within 0.3."""
    problem = Problem(GENES, BOTH, {"latency_ms": 0.3, "accuracy": 0.1 + 0.2})
    told = {"accuracy": np.array([0.3, 0.3, 0.3 - 1e-9]), "latency_ms": np.array([0.1 + 0.2, 0.3 + 1e-9, 0.3])}
    assert (problem.violation(told) > 0).tolist() == [False, True, True]


def test_what_was_not_evaluated_as_it_breaks_a_limit_stands_where_that_puts_it():
    """Behind all that keep the limits and before what is broken more; what fails within the limits is last, as ever."""
    problem = Problem(GENES, {"accuracy": "max"}, {"latency_ms": 10})
    told = {
        "accuracy": np.array([50, np.nan, np.nan, np.nan, 90, 60]),
        "latency_ms": np.array([9, 12, 11, 9, 13, np.nan]),
    }
    assert problem.violation(told).tolist() == pytest.approx([0, 0.2, 0.1, np.inf, 0.3, np.inf])
    assert problem.order(told).tolist() == [0, 2, 1, 4, 3, 5]
    assert problem.invalid(told).tolist() == [False, True, True, True, False, True]


def test_known_limits_are_looked_at_before_anything_is_evaluated():
    known = {"latency_ms": lambda genes: genes.sum(axis=1) * 1.0}
    problem = Problem(GENES, {"accuracy": "max"}, {"latency_ms": 2, "energy": 5}, known)
    genes = np.array([[0, 1], [2, 0], [2, 1]], np.uint8)
    assert problem.excess(genes).tolist() == [0, 0, 0.5]
    assert problem.affordable(genes).tolist() == [True, True, False]
    assert problem.bounded
    unknown = Problem(GENES, {"accuracy": "max"}, {"energy": 5})
    assert unknown.excess(genes).tolist() == [0, 0, 0]
    assert not unknown.bounded
