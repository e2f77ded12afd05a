"""Constrained evolution climbs, also towards a budget nobody met at first, and keeps parents of every kind."""

from __future__ import annotations

import numpy as np

from hwbench.core import registry
from hwbench.optimize.problem import Problem
from hwbench.optimize.variation import sample

WEIGHTS = np.cos(np.arange(1, 13))


def told(genes: np.ndarray) -> dict[str, np.ndarray]:
    return {"accuracy": genes @ WEIGHTS, "cost": genes.sum(axis=1).astype(float)}


def test_after_the_start_proposals_are_better_than_random_ones_within_a_tight_budget():
    problem = Problem([(f"g{i}", 5) for i in range(12)], {"accuracy": "max"}, {"cost": 9.0})
    strategy = registry.make("strategy", "evolution:population=40,parents=10", problem=problem, rng=np.random.default_rng(0))
    for at in range(20):
        genes = strategy.ask(40)
        strategy.tell(genes, told(genes))
        if at == 0:
            assert (told(genes)["cost"] > 9).all(), "nobody met the budget at first"
    drawn = sample(problem, 20_000, np.random.default_rng(9))
    rare = told(drawn)["accuracy"][told(drawn)["cost"] <= 9]
    assert (told(genes)["cost"] <= 9).mean() > 100 * len(rare) / len(drawn)
    assert np.median(told(genes)["accuracy"][told(genes)["cost"] <= 9]) > rare.max(initial=-np.inf)


def test_no_single_width_takes_all_the_places():
    """Width 0 is good at once, width 2 is better in the end: without parents of every width it is never seen again."""
    problem = Problem([("width", 3), *((f"g{i}", 4) for i in range(9))], {"accuracy": "max"}, wide=(0,))

    def quality(genes):
        layers = genes[:, 1:].astype(float)
        return {"accuracy": np.where(genes[:, 0] == 0, 20 + 0 * layers[:, 0], layers.sum(axis=1) * (genes[:, 0] == 2))}

    strategy = registry.make("strategy", "evolution:population=60", problem=problem, rng=np.random.default_rng(1))
    best = -np.inf
    for _ in range(40):
        genes = strategy.ask(20)
        strategy.tell(genes, quality(genes))
        best = max(best, quality(genes)["accuracy"].max())
    assert best > 22, "the best of width 2 is 27, all of width 0 are 20"
