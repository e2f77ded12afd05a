"""One suite over every registered regressor: learns physics from few rows, comes back exactly, keeps its promises."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.testing.base import suites
from hwbench.testing.regressor import measured

NAMES = registry.names("regressor")
RISE = ("additive", "best", "trees")
"""Those that keep what `rising` asks."""

globals().update(suites("regressor", rises=lambda name: name in RISE))


def test_best_is_made_of_the_others():
    best = registry.make("regressor", "best")
    best.fit(*measured(150))
    shares = best.shares
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
