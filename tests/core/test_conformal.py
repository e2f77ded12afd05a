"""Bands keep their finite-sample promise whatever the errors are, and say so when they cannot."""

from __future__ import annotations

import json

import crepes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.conformal import (
    LEAST_SCALE,
    Band,
    calibrate,
    coverage_evidence,
    covered,
    evidence,
    falls_short,
    interval,
    least_pairs,
)
from hwbench.core.errors import UsageError

SHAPES = {
    "normal": lambda rng, shape: 0.1 * rng.standard_normal(shape),
    "one-sided": lambda rng, shape: rng.exponential(0.3, shape),
    "heavy": lambda rng, shape: 0.02 * rng.standard_t(2, shape),
    "biased": lambda rng, shape: 0.7 + 0.02 * rng.standard_normal(shape),
}


@pytest.mark.parametrize("errors", SHAPES)
@pytest.mark.parametrize(
    ("n", "coverage", "exact"),
    # Exchangeable values: the new one is inside with probability 1 - 2k / (n + 1), k the rank that is left out per side.
    [(19, 0.9, 0.9), (99, 0.9, 0.9), (25, 0.9, 24 / 26), (9, 0.8, 0.8), (50, 0.8, 41 / 51), (39, 0.95, 0.95)],
)
def test_a_new_measurement_is_inside_exactly_as_often_as_promised(errors, n, coverage, exact):
    rng = np.random.default_rng([n, len(errors)])
    draws = 2000
    measured = np.exp(SHAPES[errors](rng, (draws, n + 1)))
    predicted = np.ones(n)
    inside = 0
    for row in measured:
        low, high = calibrate(predicted, row[:n], coverage).bounds(np.ones(1))
        inside += bool(low[0] <= row[n] <= high[0])
    deviation = (exact * (1 - exact) / draws) ** 0.5
    assert abs(inside / draws - exact) < 4 * deviation
    assert exact >= coverage - 1e-9


def test_a_band_is_made_of_the_ranks_that_each_side_may_miss():
    residuals = np.linspace(-0.5, 0.7, 39)  # 40 places: one rank of 20 on each side at 90 %
    shuffled = np.random.default_rng(3).permutation(residuals)
    band = calibrate(np.full(39, 2.0), 2.0 * np.exp(shuffled), 0.9)
    assert (band.below, band.above) == pytest.approx((residuals[1], residuals[-2]))
    assert (band.coverage, band.n) == (0.9, 39)
    assert band.margin == pytest.approx(np.exp(residuals[-2]) - 1)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.7, 0.8, 0.9, 0.95, 0.99]), st.integers(0, 60), st.booleans())
def test_bands_are_those_of_crepes(seed, coverage, more, doubted):
    """Its conformal predictive systems have a quantile for each side, as bands do."""
    rng = np.random.default_rng(seed)
    n = least_pairs(coverage) + more
    residuals = np.round(rng.standard_t(3, n), 1)  # rounded: many are equal
    scale = rng.uniform(0.1, 2.0, n) if doubted else np.ones(n)
    theirs = crepes.ConformalPredictiveSystem().fit(residuals * scale, sigmas=scale)
    tail = round(50 * (1 - coverage), 9)
    new, doubt = rng.uniform(1, 10, 5), rng.uniform(0.1, 2.0, 5)
    logs = theirs.predict_percentiles(np.log(new), sigmas=doubt, lower_percentiles=tail, higher_percentiles=100 - tail)
    band = calibrate(np.ones(n), np.exp(residuals * scale), coverage, scale)
    assert np.stack(band.bounds(new, doubt), axis=1) == pytest.approx(np.exp(logs), rel=1e-9)


def test_a_predictor_that_errs_to_one_side_gets_a_band_on_that_side():
    rng = np.random.default_rng(0)
    predicted = rng.uniform(1, 10, 200)
    band = calibrate(predicted, predicted * np.exp(rng.uniform(0.1, 0.4, 200)))
    assert 0.1 <= band.below < band.above <= 0.4
    low, high = band.bounds(predicted)
    assert (low > predicted).all()
    assert (high > low).all()


def test_doubt_makes_bands_wide_where_it_is_large_and_keeps_the_promise():
    rng = np.random.default_rng(1)
    doubt = np.where(np.arange(4000) % 2, 0.01, 0.3)
    predicted = rng.uniform(1, 10, 4000)
    measured = predicted * np.exp(doubt * rng.standard_normal(4000))
    half = slice(0, 2000)
    rest = slice(2000, 4000)
    scaled = calibrate(predicted[half], measured[half], 0.9, doubt[half])
    low, high = scaled.bounds(predicted[rest], doubt[rest])
    sure = doubt[rest] == 0.01
    for some in (sure, ~sure):
        assert covered(low[some], high[some], measured[rest][some]) == pytest.approx(0.9, abs=4 * (0.09 / 1000) ** 0.5 + 0.01)
    widths = (high - low) / predicted[rest]
    assert widths[sure].max() < 0.1 < widths[~sure].min()
    flat_low, flat_high = calibrate(predicted[half], measured[half], 0.9).bounds(predicted[rest])
    assert covered(flat_low[sure], flat_high[sure], measured[rest][sure]) == 1.0  # one width for all: too wide for these


def test_no_doubt_at_all_counts_as_the_least():
    predicted = np.ones(19)
    measured = np.exp(np.linspace(-0.1, 0.1, 19))
    assert calibrate(predicted, measured, 0.9, 0.0) == calibrate(predicted, measured, 0.9, LEAST_SCALE)
    band = Band(-1.0, 2.0, 0.9, 19)
    low, high = band.bounds(np.array([3.0]), 0.0)
    assert (low[0], high[0]) == pytest.approx((3 * np.exp(-LEAST_SCALE), 3 * np.exp(2 * LEAST_SCALE)))


@pytest.mark.parametrize(("coverage", "n"), [(0.9, 19), (0.8, 9), (0.95, 39), (0.99, 199), (0.5, 3), (0.7, 6)])
def test_the_least_number_of_pairs_is_the_first_that_bounds_both_sides(coverage, n):
    assert least_pairs(coverage) == n
    residuals = np.random.default_rng(0).standard_normal(n)
    band = calibrate(np.ones(n), np.exp(residuals), coverage)
    assert (band.below, band.above) == pytest.approx((residuals.min(), residuals.max()))
    with pytest.raises(UsageError, match=f"needs at least {n} held-out measurements, got {n - 1}"):
        calibrate(np.ones(n - 1), np.exp(residuals[1:]), coverage)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 1.5, -0.1, float("nan")])
def test_a_coverage_that_is_no_share_is_refused(coverage):
    with pytest.raises(UsageError, match="between 0 and 1"):
        calibrate(np.ones(100), np.ones(100), coverage)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("side", ["predicted", "measured"])
def test_a_latency_that_is_not_positive_is_refused(bad, side):
    pairs = {"predicted": np.ones(30), "measured": np.ones(30)}
    pairs[side][7] = bad
    with pytest.raises(UsageError, match="latencies above 0"):
        calibrate(**pairs)
    with pytest.raises(UsageError, match="latencies above 0"):
        interval(**{name: values[:8] for name, values in pairs.items()})  # too few for a promise


def test_falling_short_is_what_chance_would_rarely_give():
    # Binomial(20, 0.9): P(at most 15) = 0.0432, P(at most 16) = 0.1330.
    assert falls_short(15, 20)
    assert not falls_short(16, 20)
    assert not falls_short(20, 20)
    assert falls_short(0, 20)
    assert not falls_short(15, 20, level=0.04)
    assert not falls_short(15, 20, coverage=0.8)


def test_evidence_states_coverage_and_width_on_unseen_pairs():
    band = Band(np.log(0.5), np.log(2.0), 0.9, 19)
    found = evidence(np.array([1.0, 1.0, 2.0, 4.0]), band, np.array([0.5, 2.01, 4.0, 1.0]))
    assert dict(found) == {"n": 4, "asked": 0.9, "covered": pytest.approx(0.5), "median_width": pytest.approx(1.5)}


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite, finite, st.floats(0.01, 0.99), st.integers(1, 10**6))
def test_a_band_survives_json(below, above, coverage, n):
    band = Band(below, above, coverage, n)
    assert Band(**json.loads(json.dumps(band.state()))) == band


def pairs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    measured = rng.uniform(5, 50, n)
    return measured * np.exp(rng.normal(0.01, 0.03, n)), measured


def test_intervals_cover_new_networks_as_promised():
    inside, above = [], []
    for seed in range(60):
        predicted, measured = pairs(59, seed)
        band, how = interval(predicted[:39], measured[:39])
        assert how == "split-conformal, 39 networks not fitted on"
        low, high = band.bounds(predicted[39:])
        inside.append(covered(low, high, measured[39:]))
        above.append(np.mean(measured[39:] <= high))
    assert 0.88 < np.mean(inside) < 0.95
    assert 0.94 < np.mean(above) < 0.98, "the upper end alone is a 95 % bound"
    widest, _ = interval(*pairs(9))
    assert widest.coverage == 0.8
    assert coverage_evidence(*pairs(23)) is None
    told = coverage_evidence(*pairs(60))
    assert 0.8 < told["covered"] < 1
    assert told["how"] == "band from 30 networks, judged on the other 30, 200 random splits"


def test_an_interval_never_excludes_the_prediction():
    predicted, measured = pairs(40)
    for shift in (0.5, 2.0):
        band, _ = interval(predicted * shift, measured)
        assert band.below <= 0 <= band.above
