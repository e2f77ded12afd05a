"""One suite over every registered regressor: learns physics from few rows, comes back exactly, keeps its promises."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from hwbench.core import registry

NAMES = registry.names("regressor")
RISE = ("additive", "best", "trees")
"""Those that keep what `rising` asks."""
every_regressor = pytest.mark.parametrize("name", NAMES)


def rows(n: int, seed: int = 0) -> np.ndarray:
    """Layers, width, hidden, a truth value, and a column that never changes."""
    rng = np.random.default_rng(seed)
    layers, width, hidden = rng.integers(1, 13, n), rng.choice([192, 256, 320, 512], n), rng.choice([512, 1024, 2048], n)
    return np.column_stack([layers, width, hidden, rng.integers(0, 2, n), np.full(n, 7)]).astype(float)


def latency(x: np.ndarray) -> np.ndarray:
    """Calls, products and a head: milliseconds as networks make them."""
    layers, width, hidden, wide, _ = x.T
    return np.asarray(0.3 + layers * (0.1 + width * hidden * 2e-6 + width * (1 + wide) * 3e-4))


def measured(n: int, seed: int = 0, noise: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    x = rows(n, seed)
    return x, latency(x) * np.exp(np.random.default_rng(seed + 1).normal(0, noise, n))


@pytest.fixture(scope="module")
def fitted():
    """Each regressor, fitted once."""
    x, y = measured(150)
    models = {name: registry.make("regressor", name) for name in NAMES}
    for model in models.values():
        model.fit(x, y)
    return models


@every_regressor
def test_learns_a_latency_from_few_noisy_rows(fitted, name):
    x = rows(400, seed=9)
    predicted, doubt = fitted[name].predict(x)
    assert np.abs(predicted / latency(x) - 1).mean() < 0.03
    assert predicted.shape == doubt.shape == (400,)
    assert (doubt > 0).all()


@every_regressor
def test_a_stored_state_predicts_the_same_to_the_last_bit(fitted, name):
    values, arrays = fitted[name].state()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    restored = registry.make("regressor", name)
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as stored:
        restored.restore(json.loads(json.dumps(values)), dict(stored))
    x = rows(300, seed=5)
    for a, b in zip(fitted[name].predict(x), restored.predict(x), strict=True):
        assert np.array_equal(a, b)


@every_regressor
def test_the_same_rows_give_the_same_regressor(fitted, name):
    again = registry.make("regressor", name)
    again.fit(*measured(150))
    x = rows(50, seed=3)
    assert np.array_equal(again.predict(x)[0], fitted[name].predict(x)[0])


@every_regressor
def test_outliers_do_not_pull_the_fit(name):
    x, y = measured(150)
    y[::15] *= 3
    model = registry.make("regressor", name)
    model.fit(x, y)
    asked = rows(200, seed=9)
    assert np.median(np.abs(model.predict(asked)[0] / latency(asked) - 1)) < 0.05


@every_regressor
def test_predictions_are_positive_and_finite_far_outside(fitted, name):
    predicted, doubt = fitted[name].predict(np.vstack([rows(5) * 100, rows(5) * 0, rows(5) * -3]))
    assert np.isfinite(predicted).all()
    assert np.isfinite(doubt).all()
    assert (predicted > 0).all()


@pytest.mark.parametrize("name", RISE)
def test_rises_where_physics_says_so(name):
    x, y = measured(120, noise=0.2)
    model = registry.make("regressor", name)
    model.fit(x, y, [True, True, True, False, False])
    for feature in range(3):
        path = np.repeat(rows(20, seed=4), 12, axis=0)
        path[:, feature] = np.tile(np.linspace(x[:, feature].min(), x[:, feature].max(), 12), 20)
        steps = np.diff(model.predict(path)[0].reshape(20, 12), axis=1)
        assert (steps >= -1e-12).all()


@every_regressor
def test_one_feature_and_twenty_rows_are_enough(name):
    x = np.arange(1.0, 21.0)[:, None]
    model = registry.make("regressor", name)
    model.fit(x, 2 + 3 * x[:, 0])
    assert model.predict(np.array([[10.5]]))[0][0] == pytest.approx(33.5, rel=0.05)


def test_best_is_made_of_the_others(fitted):
    shares = fitted["best"].shares
    assert set(shares) <= set(NAMES) - {"best"}
    assert sum(shares.values()) == pytest.approx(1)


def test_best_leaves_the_sum_of_parts_where_latency_falls():
    x = np.random.default_rng(0).uniform(1, 8, (120, 2))
    y = 5 / x[:, 0] + x[:, 1] ** 2  # more of the first is faster: no sum of rising parts
    best, alone = registry.make("regressor", "best"), registry.make("regressor", "additive")
    best.fit(x, y)
    alone.fit(x, y)
    asked = np.random.default_rng(1).uniform(1, 8, (100, 2))
    truth = 5 / asked[:, 0] + asked[:, 1] ** 2
    errors = [np.abs(model.predict(asked)[0] / truth - 1).mean() for model in (best, alone)]
    assert errors[0] < 0.5 * errors[1]
