"""Peak memory as a cost that a search may limit."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.device.target import Target
from hwbench.optimize.cost_kind import Question, kind_of
from hwbench.predictor.space_memory import SpaceMemory
from hwbench.space import activity


def test_it_is_a_cost_with_a_least_value_and_a_recount():
    space = registry.get("space", "nasbench201")
    memory, population = SpaceMemory(space, Target.of()), activity.sample(space, 6, np.random.default_rng(3))
    question = Question(Target.of())
    kind = kind_of("peak_memory_mb", space, question)
    cost, chosen = kind.compile(space, "peak_memory_mb", question)
    assert chosen is None
    np.testing.assert_allclose(cost.value(population), memory(population) / 1e6)
    least, column = cost.least()
    assert least <= cost.value(population).min()
    assert cost.value(column[:, None])[0] == pytest.approx(least)
    assert "peak_memory_mb" in kind.available(space, question)
    assert kind.available(space, Question(Target.of(runtime="ncnn"))) == []
