"""LINAS' predictors: they find what is there, and the support vector machine is scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.optimize.problem import Problem
from hwbench.optimize.strategy import linas
from hwbench.optimize.variation import sample

PROBLEM = Problem([(f"g{i}", 4) for i in range(6)], {"accuracy": "max"})
EFFECTS = np.random.default_rng(0).normal(size=(6, 4))


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(one-hot genes, values that are a sum of effects and one interaction)."""
    genes = sample(PROBLEM, n, np.random.default_rng(seed))
    return linas.one_hot(PROBLEM, genes), EFFECTS[np.arange(6), genes].sum(axis=1) + (genes[:, 0] == genes[:, 1])


@pytest.mark.parametrize("fit", [linas._ridge, linas._svr, linas._stacked])
def test_predictors_generalise(fit):
    if fit is not linas._ridge:
        pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'hwbench-nas[peers]'")
    x, y = drawn(300, 1)
    new, truth = drawn(200, 2)
    assert np.corrcoef(fit(x, y)(new), truth)[0, 1] > 0.95


def test_the_machine_is_scikit_learns():
    svm = pytest.importorskip("sklearn.svm", reason="needs scikit-learn: pip install 'hwbench-nas[peers]'")
    x, y = drawn(120, 3)
    new, _ = drawn(50, 4)
    theirs = svm.SVR(C=10.0, epsilon=0.01, tol=0.01).fit(x, (y - y.mean()) / y.std())
    assert linas._svr(x, y)(new) == pytest.approx(theirs.predict(new) * y.std() + y.mean(), rel=1e-9)


def test_the_mixture_is_about_as_good_as_the_better_of_both():
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'hwbench-nas[peers]'")
    x, y = drawn(150, 5)
    new, truth = drawn(2000, 6)
    errors = {
        fit.__name__: np.sqrt(np.mean((fit(x, y)(new) - truth) ** 2)) for fit in (linas._ridge, linas._svr, linas._stacked)
    }
    assert errors["_stacked"] < 1.05 * min(errors["_ridge"], errors["_svr"])
    assert errors["_stacked"] < 0.9 * max(errors["_ridge"], errors["_svr"])


def test_one_gene_has_one_column_per_choice():
    problem = Problem([("a", 2), ("b", 1), ("c", 3)], {"accuracy": "max"})
    assert linas.one_hot(problem, np.array([[1, 0, 2]], np.uint8)).tolist() == [[0, 1, 1, 0, 0, 1]]
