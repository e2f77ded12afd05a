"""What every regressor keeps: it learns physics from few rows, comes back exactly, and keeps its promises."""

from __future__ import annotations

import io
import json
from typing import Any, ClassVar

import numpy as np

from hwbench.predictor.regressor.base import Regressor
from hwbench.testing.base import Contract


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
    """Rows and what was measured of them."""
    x = rows(n, seed)
    return x, latency(x) * np.exp(np.random.default_rng(seed + 1).normal(0, noise, n))


class RegressorContract(Contract):
    """Fitted on 150 rows with one per cent of noise."""

    kind = "regressor"
    rises = False
    """Whether it keeps what `rising` asks."""
    _fitted: ClassVar[dict[str, Regressor]] = {}

    def fitted(self) -> Regressor:
        """The regressor, fitted once for all checks."""
        if self.called not in self._fitted:
            model: Regressor = self.make()
            model.fit(*measured(150))
            self._fitted[self.called] = model
        return self._fitted[self.called]

    def test_learns_a_latency_from_few_noisy_rows(self) -> None:
        """And doubts itself."""
        x = rows(400, seed=9)
        predicted, doubt = self.fitted().predict(x)
        off = float(np.abs(predicted / latency(x) - 1).mean())
        self.expect(off < 0.03, "predict", f"expected a mean error below 3 %, found {off:.1%}")
        shapes = predicted.shape, doubt.shape
        self.expect(shapes == ((400,), (400,)), "predict", f"expected (value[400], doubt[400]), found shapes {shapes}")
        self.expect((doubt > 0).all(), "predict", "expected positive doubts")

    def test_a_stored_state_predicts_the_same_to_the_last_bit(self) -> None:
        """JSON values and plain arrays."""
        values, arrays = self.fitted().state()
        restored: Regressor = self.make()
        restored.restore(*stored(values, arrays))
        x = rows(300, seed=5)
        same = all(np.array_equal(a, b) for a, b in zip(self.fitted().predict(x), restored.predict(x), strict=True))
        self.expect(same, "restore", "expected the same predictions from a restored state")

    def test_the_same_rows_give_the_same_regressor(self) -> None:
        """Whatever is drawn is seeded."""
        again: Regressor = self.make()
        again.fit(*measured(150))
        x = rows(50, seed=3)
        same = np.array_equal(again.predict(x)[0], self.fitted().predict(x)[0])
        self.expect(same, "fit", "expected the same regressor from the same rows")

    def test_outliers_do_not_pull_the_fit(self) -> None:
        """One row in fifteen is three times too slow."""
        x, y = measured(150)
        y[::15] *= 3
        model: Regressor = self.make()
        model.fit(x, y)
        asked = rows(200, seed=9)
        off = float(np.median(np.abs(model.predict(asked)[0] / latency(asked) - 1)))
        self.expect(off < 0.05, "fit", f"expected a median error below 5 % beside outliers, found {off:.1%}")

    def test_predictions_are_positive_and_finite_far_outside(self) -> None:
        """A hundred times as large, zero, negative."""
        predicted, doubt = self.fitted().predict(np.vstack([rows(5) * 100, rows(5) * 0, rows(5) * -3]))
        finite = np.isfinite(predicted).all() and np.isfinite(doubt).all() and (predicted > 0).all()
        self.expect(finite, "predict", "expected positive, finite values and finite doubts far outside of the rows")

    def test_rises_where_physics_says_so(self) -> None:
        """Only of regressors that say so."""
        if not self.rises:
            self.skip("it does not promise to rise")
        x, y = measured(120, noise=0.2)
        model: Regressor = self.make()
        model.fit(x, y, [True, True, True, False, False])
        for feature in range(3):
            path = np.repeat(rows(20, seed=4), 12, axis=0)
            path[:, feature] = np.tile(np.linspace(x[:, feature].min(), x[:, feature].max(), 12), 20)
            steps = np.diff(model.predict(path)[0].reshape(20, 12), axis=1)
            self.expect((steps >= -1e-12).all(), "fit", f"expected predictions that never fall along feature {feature}")

    def test_one_feature_and_twenty_rows_are_enough(self) -> None:
        """A straight line."""
        x = np.arange(1.0, 21.0)[:, None]
        model: Regressor = self.make()
        model.fit(x, 2 + 3 * x[:, 0])
        found = float(model.predict(np.array([[10.5]]))[0][0])
        self.expect(abs(found / 33.5 - 1) <= 0.05, "predict", f"expected 33.5 within 5 %, found {found:.3g}")


def stored(values: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A state as it comes back from a card: through JSON and NPZ, nothing pickled.

    Raises:
        TypeError: a value is no JSON.
        ValueError: an array holds objects.
    """
    objects = [name for name, array in arrays.items() if np.asarray(array).dtype.hasobject]
    if objects:
        raise ValueError(f"array '{objects[0]}' of the state holds Python objects")
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as read:
        return json.loads(json.dumps(values, allow_nan=False)), dict(read)
