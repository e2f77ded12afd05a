"""Hurdles: a driver that trains in parts is asked again for what passed, one that does not never is."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.genes import keys
from hwbench.optimize.problem import Problem

PROBLEM = Problem([(f"g{i}", 4) for i in range(8)], {"accuracy": "max"})


def make(options: str = "") -> object:
    return registry.make("strategy", f"hurdles{options}", problem=PROBLEM, rng=np.random.default_rng(0))


def accuracy(genes: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Short trainings tell less."""
    return share**0.1 * (60 + genes.sum(axis=1))


def test_only_those_above_the_mean_are_trained_on():
    strategy = make(":least=0.1")
    briefly, fully = {}, {}
    for _ in range(40):
        genes = strategy.ask(10)
        share = strategy.fidelity
        assert share.shape == (len(genes),)
        assert set(share) <= {0.1, 1.0}
        for key, trained, value in zip(keys(genes), share, accuracy(genes, share), strict=True):
            place = fully if trained == 1 else briefly
            assert key not in place, "never trained twice as far"
            place[key] = value
        strategy.tell(genes, {"accuracy": accuracy(genes, share), "fidelity": share})
    assert set(fully) <= set(briefly)
    assert 0.25 < len(fully) / len(briefly) < 0.95
    passed = np.mean([briefly[key] for key in fully])
    assert passed > np.mean(list(briefly.values()))


def test_parents_come_from_the_most_trained():
    """Told lies about brief trainings, it must not follow them once full ones are there."""
    strategy = make(":least=0.1,population=10")
    for _ in range(60):
        genes = strategy.ask(10)
        share = strategy.fidelity
        lie = np.where(share < 1, np.random.default_rng(len(genes)).random(len(genes)), genes.sum(axis=1))
        strategy.tell(genes, {"accuracy": lie, "fidelity": share})
    assert genes.sum(axis=1).mean() > 8 * 1.5 + 2, "a random architecture has 12"


def test_a_driver_that_trains_fully_is_never_asked_twice():
    strategy = make()
    asked = []
    for _ in range(20):
        genes = strategy.ask(10)
        strategy.tell(genes, {"accuracy": accuracy(genes, np.ones(len(genes)))})
        asked += keys(genes)
    assert len(set(asked)) == len(asked) == 200


@pytest.mark.parametrize("fidelity", [np.full(4, 0.01), np.ones(3)])
def test_a_training_shorter_than_asked_is_refused(fidelity):
    strategy = make(":least=0.1")
    genes = strategy.ask(4)
    with pytest.raises(UsageError, match=r"one share of a training per architecture, 0\.1 or more"):
        strategy.tell(genes, {"accuracy": np.ones(4), "fidelity": fidelity})
