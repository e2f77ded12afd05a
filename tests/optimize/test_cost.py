"""Costs that add over ops."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.optimize.cost import op_cost
from tests.space.test_compiled import everything, random_values


def test_the_upper_bound_is_the_value_with_its_margin(mixer):
    values = random_values(mixer)
    cost = op_cost(mixer, "latency_ms@x/y", "ms", lambda specs: np.array([abs(values[s]) for s in specs]), 2.0, margin=0.1)
    population = everything(mixer)
    assert cost.upper(population) == pytest.approx(1.1 * cost.value(population), rel=1e-15)
    least, column = cost.least()
    assert least == pytest.approx(cost.upper(population).min(), rel=1e-12)
    assert cost.upper(column[:, None])[0] == pytest.approx(least, rel=1e-12)
    assert (cost.name, cost.unit) == ("latency_ms@x/y", "ms")
