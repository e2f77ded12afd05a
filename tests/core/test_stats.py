"""Statistics against numbers computed by hand and against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.stats import accuracy, kendall_tau, relative_errors, spearman


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
    # Rank differences of (1, 2, 3, 4) against (1, 3, 2, 4) are 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15).
    assert spearman(np.array([1, 2, 3, 4]), np.array([10, 30, 20, 40])) == pytest.approx(0.8)
    assert math.isnan(spearman(np.array([1, 1]), np.array([1, 2])))


few = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(few)
def test_rank_agreement_counts_every_pair(points):
    a, b = (np.array([p[i] for p in points], float) for i in range(2))
    signs = [(np.sign(x[0] - y[0]), np.sign(x[1] - y[1])) for x, y in itertools.combinations(points, 2)]
    agreement = sum(x * y for x, y in signs)
    untied = [sum(pair[i] != 0 for pair in signs) for i in range(2)]
    expected = agreement / math.sqrt(untied[0] * untied[1]) if all(untied) else math.nan
    assert kendall_tau(a, b) == pytest.approx(expected, abs=1e-12, nan_ok=True)
