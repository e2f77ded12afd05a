"""The one posterior equals scikit-learn's, refits without a row and finite differences; jitter comes only where it must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbench.core.gaussian_process import JITTERS, Factor, Posterior

problems = st.integers(0, 2**32 - 1)


def kernel(a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / length**2)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """(points, observed values, noise of each, new points, length of the kernel)."""
    rng = np.random.default_rng(seed)
    n, columns = int(rng.integers(2, 40)), int(rng.integers(1, 5))
    x, new = rng.normal(size=(n, columns)), rng.normal(size=(7, columns))
    return x, rng.normal(size=n), rng.uniform(1e-3, 0.5, n), new, float(rng.uniform(0.3, 3.0))


@given(problems)
@settings(max_examples=40)
def test_mean_deviation_covariance_and_likelihood_are_scikit_learns(seed):
    gp = pytest.importorskip("sklearn.gaussian_process", reason="the extra `peers` is not installed")
    x, y, noise, new, length = drawn(seed)
    theirs = gp.GaussianProcessRegressor(gp.kernels.RBF(length), alpha=noise, optimizer=None).fit(x, y)
    ours = Posterior(Factor(kernel(x, x, length), noise), y)
    across = kernel(x, new, length)
    mean, deviation = theirs.predict(new, return_std=True)
    assert ours.mean(across) == pytest.approx(mean, abs=1e-8)
    assert np.sqrt(np.maximum(ours.factor.variance(1.0, across), 0)) == pytest.approx(deviation, abs=1e-8)
    covariance = ours.factor.covariance(kernel(new, new, length), across)
    assert covariance == pytest.approx(theirs.predict(new, return_cov=True)[1], abs=1e-8)
    constant = len(y) / 2 * np.log(2 * np.pi)
    likelihood, gradient = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    assert float(ours.log_likelihood) - constant == pytest.approx(likelihood, rel=1e-8)
    by_log_length = kernel(x, x, length) * ((x[:, None] - x[None]) ** 2).sum(-1) / length**2
    assert (ours.likelihood_slope * by_log_length).sum() == pytest.approx(gradient[0], rel=1e-8, abs=1e-8)


@given(problems)
@settings(max_examples=40)
def test_the_likelihoods_slope_is_that_of_small_steps_in_the_noise(seed):
    x, y, noise, _, length = drawn(seed)
    slope, step = Posterior(Factor(kernel(x, x, length), noise), y).likelihood_slope, 1e-6
    for i in range(len(y)):
        moved = [noise + sign * step * (np.arange(len(y)) == i) for sign in (1, -1)]
        up, down = (float(Posterior(Factor(kernel(x, x, length), each), y).log_likelihood) for each in moved)
        assert slope[i, i] == pytest.approx((up - down) / (2 * step), rel=1e-3, abs=1e-3)


@given(problems)
@settings(max_examples=40)
def test_leaving_one_out_is_conditioning_on_the_others(seed):
    x, y, noise, _, length = drawn(seed)
    residual, variance = Posterior(Factor(kernel(x, x, length), noise), y).leave_one_out()
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        others = Posterior(Factor(kernel(x[rest], x[rest], length), noise[rest]), y[rest])
        across = kernel(x[rest], x[i : i + 1], length)
        assert residual[i] == pytest.approx(y[i] - others.mean(across)[0], abs=1e-8)
        assert variance[i] == pytest.approx(others.factor.variance(1.0, across)[0] + noise[i], rel=1e-8)


@given(problems)
@settings(max_examples=20)
def test_the_scale_is_the_most_likely_one_and_profiling_takes_it(seed):
    x, y, noise, _, length = drawn(seed)
    covariance = kernel(x, x, length)
    plain = Posterior(Factor(covariance, noise), y)

    def at(scale: float) -> float:
        return float(Posterior(Factor(scale * covariance, scale * noise), y).log_likelihood)

    assert at(plain.scale) >= max(at(1.01 * plain.scale), at(plain.scale / 1.01))
    assert plain.profile_log_likelihood - len(y) / 2 == pytest.approx(at(plain.scale), rel=1e-9)


@given(problems, st.integers(1, 40))
@settings(max_examples=20)
def test_the_first_points_have_a_factor_of_their_own(seed, n):
    x, _, noise, new, length = drawn(seed)
    whole, alone = Factor(kernel(x, x, length), noise), Factor(kernel(x[:n], x[:n], length), noise[:n])
    assert whole.first(n).lower == pytest.approx(alone.lower, abs=1e-12)
    across = kernel(x[:n], new, length)
    assert whole.first(n).variance(1.0, across) == pytest.approx(alone.variance(1.0, across), abs=1e-12)


def test_columns_of_observations_are_conditioned_on_side_by_side():
    x, y, noise, new, length = drawn(3)
    factor, both = Factor(kernel(x, x, length), noise), np.stack([y, y[::-1]], axis=1)
    together, across = Posterior(factor, both), kernel(x, new, length)
    for i, each in enumerate(both.T):
        alone = Posterior(factor, each)
        assert together.mean(across)[:, i] == pytest.approx(alone.mean(across))
        assert together.log_likelihood[i] == pytest.approx(float(alone.log_likelihood))
        assert together.leave_one_out()[0][:, i] == pytest.approx(alone.leave_one_out()[0])


def test_whitening_keeps_single_precision():
    x, _, noise, new, length = drawn(5)
    factor, across = Factor(kernel(x, x, length), noise), kernel(x, new, length)
    single = factor.whiten(across.astype(np.float32))
    assert single.dtype == np.float32
    assert single == pytest.approx(factor.whiten(across), abs=1e-3)


def test_jitter_is_added_only_where_the_factor_does_not_exist_without():
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert Factor(kernel(x, x, 1.0), 1e-3).jitter == 0.0
    twice = np.concatenate([x, x])  # each point twice and no noise: singular
    factor = Factor(kernel(twice, twice, 1.0), 0.0)
    assert factor.jitter in JITTERS[1:]
    assert factor.lower @ factor.lower.T == pytest.approx(kernel(twice, twice, 1.0), abs=1e-5)


@pytest.mark.parametrize("broken", [np.array([[1.0, 2.0], [2.0, 1.0]]), np.full((2, 2), np.nan)])
def test_what_is_no_covariance_is_refused(broken):
    with pytest.raises(np.linalg.LinAlgError, match=r"No covariance: \(2, 2\)"):
        Factor(broken, 0.0)


def test_the_argument_is_left_as_it_was_and_a_stored_factor_is_the_same():
    covariance = np.eye(3)
    factor = Factor(covariance, 0.5)
    assert (covariance == np.eye(3)).all()
    assert (Factor.restored(factor.lower).solve(np.ones(3)) == factor.solve(np.ones(3))).all()


def test_observations_that_are_all_zero_have_a_likelihood():
    flat = Posterior(Factor(np.eye(4), 0.1), np.zeros(4))
    assert np.isfinite(flat.profile_log_likelihood)
    assert flat.scale > 0
