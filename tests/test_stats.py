"""Statistics against numbers computed by hand and against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.errors import UsageError
from hwbench.stats import accuracy, kendall_tau, minimum_spread, pareto_front, relative_errors, summarise


def test_a_latency_by_hand():
    found = summarise({"a": [4e6, 2e6, 3e6], "b": [9e6, 2.02e6, 2.5e6, 2.6e6], "c": [5e6, 2.1e6]})
    assert found.min_ms == 2.0
    assert found.min_spread == pytest.approx(0.05, rel=1e-12)  # 2.0, 2.02, 2.1
    assert found.median_ms == pytest.approx(3.0, rel=1e-12)  # of 3.0, 2.55, 3.55
    assert found.median_spread == pytest.approx(1 / 3, rel=1e-12)
    assert (found.processes, found.samples) == (3, 9)


def test_one_process_has_no_doubt_to_state():
    found = summarise({"a": [1e6]})
    assert (found.min_ms, found.median_ms, found.median_spread, found.processes) == (1.0, 1.0, 0.0, 1)
    assert math.isnan(found.min_spread)


@pytest.mark.parametrize("samples", [{}, {"a": []}, {"a": [1.0], "b": []}])
def test_no_samples_are_no_latency(samples):
    with pytest.raises(UsageError, match="No samples"):
        summarise(samples)


@pytest.mark.parametrize(
    ("minima", "spread"),
    [
        ([100.0, 110.0, 105.0], 0.1),
        ([100.0, 900.0, 105.0, 110.0, 101.0], 0.05),  # the three lowest only
        ([100.0, 100.0, 100.0], 0.0),
        ([100.0, 101.0], math.nan),
        ([], math.nan),
    ],
)
def test_the_spread_of_minima_by_hand(minima, spread):
    assert minimum_spread(minima) == pytest.approx(spread, rel=1e-12, nan_ok=True)


def test_accuracy_by_hand():
    measured = np.array([10.0, 20.0, 40.0, 50.0])
    predicted = np.array([11.0, 19.0, 40.0, 49.0])
    assert relative_errors(predicted, measured) == pytest.approx([0.1, -0.05, 0.0, -0.02])
    found = accuracy(predicted, measured)
    assert found.n == 4
    assert found.mean_abs_error == pytest.approx(0.0425)
    assert found.bias == pytest.approx(0.0075)
    assert found.p95_abs_error == pytest.approx(0.05 + 0.85 * 0.05)  # between the third and the fourth: 0.95 * 3 = 2.85
    assert found.max_abs_error == pytest.approx(0.1)
    assert found.within_5 == pytest.approx(0.75)
    assert found.kendall_tau == 1.0


def test_rank_agreement_by_hand():
    # Pairs of (1, 2, 3, 4) against (1, 3, 2, 4): 5 agree, 1 does not.
    assert kendall_tau(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4])) == pytest.approx(4 / 6)
    # One tie on the left: 2 agree, none disagree, 3 pairs; tau-b = 2 / sqrt(2 * 3).
    assert kendall_tau(np.array([1, 1, 2]), np.array([1, 2, 3])) == pytest.approx(2 / math.sqrt(6))
    assert kendall_tau(np.array([3, 2, 1]), np.array([1, 2, 3])) == -1.0


few = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(few)
def test_rank_agreement_counts_every_pair(points):
    a, b = (np.array([p[i] for p in points], float) for i in range(2))
    signs = [(np.sign(x[0] - y[0]), np.sign(x[1] - y[1])) for x, y in itertools.combinations(points, 2)]
    agreement = sum(x * y for x, y in signs)
    untied = [sum(pair[i] != 0 for pair in signs) for i in range(2)]
    expected = agreement / math.sqrt(untied[0] * untied[1]) if all(untied) else math.nan
    assert kendall_tau(a, b) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(few)
def test_the_front_is_what_nothing_beats(points):
    gain, cost = (np.array([p[i] for p in points], float) for i in range(2))
    front = pareto_front(gain, cost)
    beaten = {
        p for p in points if any((q[0] >= p[0] and q[1] <= p[1]) and q != p for q in points)
    }  # q is at least as good in both and not the same point
    assert [points[i] for i in front] == sorted(set(points) - beaten, key=lambda p: p[1])
    assert (np.diff(cost[front]) > 0).all()
    assert (np.diff(gain[front]) > 0).all()
