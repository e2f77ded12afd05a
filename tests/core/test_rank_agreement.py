"""Taus of resamples equal what scipy says of the networks drawn, and pairs of other groups do not count."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from hwbench.core.rank_agreement import Stated, pairs_within, partial, resamples, taus

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 9, 40).astype(float)  # with ties
SCORE = TRUTH + RNG.normal(0, 3, 40).round()


def test_the_first_is_of_the_networks_the_others_of_those_drawn():
    weights = resamples(40, 20)
    found = taus(SCORE, TRUTH, weights)
    assert found[0] == pytest.approx(kendalltau(SCORE, TRUTH).statistic)
    for drawn, tau in zip(weights[1:].astype(int), found[1:], strict=True):
        at = np.repeat(np.arange(40), drawn)
        assert tau == pytest.approx(kendalltau(SCORE[at], TRUTH[at]).statistic)


def test_pairs_of_different_groups_do_not_count():
    groups = np.array(["narrow"] * 20 + ["wide"] * 20)
    one, other = slice(0, 20), slice(20, 40)
    among = resamples(20, 0)
    apart = np.where(groups == "wide", SCORE + 1000, SCORE)
    assert taus(apart, TRUTH, resamples(40, 0), groups)[0] == pytest.approx(taus(SCORE, TRUTH, resamples(40, 0), groups)[0])
    both = [taus(SCORE[part], TRUTH[part], among)[0] for part in (one, other)]
    assert min(both) <= taus(SCORE, TRUTH, resamples(40, 0), groups)[0] <= max(both)
    assert pairs_within(groups) == 2 * 190


def test_what_has_no_score_is_left_out():
    holes = SCORE.copy()
    holes[:5] = np.nan
    assert taus(holes, TRUTH, resamples(40, 0))[0] == pytest.approx(kendalltau(SCORE[5:], TRUTH[5:]).statistic)


def test_a_score_without_an_order_has_no_tau():
    found = taus(np.ones(40), TRUTH, resamples(40, 5))
    assert np.isnan(found).all()
    assert np.isnan(Stated.of(found).value)


def test_an_interval_holds_the_middle_of_the_resamples():
    stated = Stated.of(np.array([0.5, *np.linspace(0, 1, 1001)]))
    assert (stated.value, stated.low, stated.high) == (0.5, pytest.approx(0.025), pytest.approx(0.975))


def test_what_only_follows_another_score_has_nothing_left_beside_it():
    """Kendall's partial tau by its own definition, from the 2 x 2 table of pairs that the other score orders."""
    other = RNG.permutation(40).astype(float)
    score, truth = other + RNG.normal(0, 8, 40), other + RNG.normal(0, 8, 40)
    ones = resamples(40, 0)
    found = partial(taus(score, truth, ones), taus(score, other, ones), taus(other, truth, ones))[0]
    i, j = np.triu_indices(40, 1)
    sign = np.sign(other[i] - other[j])
    a, b = np.sign(score[i] - score[j]) * sign > 0, np.sign(truth[i] - truth[j]) * sign > 0
    assert found == pytest.approx(np.corrcoef(a, b)[0, 1])
