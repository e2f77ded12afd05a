"""Our own strategy: asks for as many as it may, learns which architectures are valid, finds the front with few questions."""

from __future__ import annotations

import numpy as np
import pytest

import hwbench
from hwbench.core import pareto
from hwbench.core.genes import keys
from hwbench.optimize.variation import everything

GENES = [(f"edge{i}", 5) for i in range(6)]
BOTH = {"accuracy": "max", "latency_ms": "min"}


def table(genes: np.ndarray) -> dict[str, np.ndarray]:
    """Six edges whose choices help alike, pairs of which interact, and what they cost."""
    x = genes.astype(int)
    helps, costs = np.array([0.0, 2.0, 3.0, 4.5, 1.0]), np.array([0.1, 0.2, 1.0, 2.5, 0.6])
    pairs = np.cos(x[:, 0] * 5 + x[:, 3]) + np.sin(x[:, 1] + 3 * x[:, 5])
    return {"accuracy": helps[x].sum(axis=1) + pairs, "latency_ms": 1 + costs[x] @ [1.0, 1.2, 0.8, 1.5, 1.0, 0.9]}


def losses(values: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([values["latency_ms"], -values["accuracy"]], axis=1)


EVERYTHING = losses(table(everything(hwbench.optimize.problem.Problem(GENES, BOTH))))
REFERENCE = EVERYTHING.max(axis=0)


def share(asked: np.ndarray) -> float:
    return pareto.hypervolume(losses(table(asked)), REFERENCE) / pareto.hypervolume(EVERYTHING, REFERENCE)


def play(strategy, evaluations: int, n: int, told=table) -> np.ndarray:
    asked = []
    while sum(map(len, asked)) < evaluations:
        asked.append(strategy.ask(n))
        strategy.tell(asked[-1], told(asked[-1]))
    return np.concatenate(asked)


@pytest.mark.parametrize("n", [1, 3, 50, 400])
def test_exactly_as_many_are_asked_as_may_be(n):
    strategy = hwbench.make_strategy("default", GENES, BOTH, seed=0)
    found = []
    for _ in range(3):
        found.append(strategy.ask(n))
        assert found[-1].shape == (n, 6)
        strategy.tell(found[-1], table(found[-1]))
    assert len(set(keys(np.concatenate(found)))) == 3 * n


def test_fewer_questions_than_by_chance_or_from_neighbours():
    ours = [share(play(hwbench.make_strategy("default", GENES, BOTH, seed=seed), 60, 10)) for seed in range(3)]
    for peer in ("random", "local"):
        theirs = [share(play(hwbench.make_strategy(peer, GENES, BOTH, seed=seed), 60, 10)) for seed in range(3)]
        assert min(ours) > max(theirs)


def test_answers_may_come_one_by_one_in_another_order_or_never():
    strategy = hwbench.make_strategy("default", GENES, BOTH, seed=0)
    first = play(strategy, 20, 10)
    late = strategy.ask(6)
    for i in (4, 1, 0):
        strategy.tell(late[i : i + 1], table(late[i : i + 1]))
    more = strategy.ask(10)
    assert len(set(keys(np.concatenate([first, late, more])))) == 36


def test_which_architectures_are_valid_is_learnt():
    """One in ten is: those that are good. By chance 12 of 120 questions would be answered."""
    edge = np.quantile(-EVERYTHING[:, 1], 0.9)

    def told(genes):
        values = table(genes)
        values["accuracy"][values["accuracy"] < edge] = np.nan
        return values

    asked = play(hwbench.make_strategy("default", GENES, BOTH, seed=0), 120, 10, told)
    assert np.isfinite(told(asked)["accuracy"]).sum() > 45


def test_a_known_cost_within_its_limit_is_never_broken_once_it_has_begun():
    strategy = hwbench.make_strategy(
        "default", GENES, {"accuracy": "max"}, {"latency_ms": 4.0}, {"latency_ms": lambda genes: table(genes)["latency_ms"]}, 0
    )
    asked = play(strategy, 60, 10, lambda genes: {"accuracy": table(genes)["accuracy"]})
    assert (table(asked[10:])["latency_ms"] <= 4.0).all()


def test_linear_algebra_runs_on_one_thread_and_is_as_it_was_afterwards():
    """Known costs are computed while it thinks, so they see what it sees."""
    from threadpoolctl import threadpool_info

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen: list[set[int]] = []

    def latency(genes: np.ndarray) -> np.ndarray:
        seen.append(threads())
        return genes.sum(axis=1).astype(float)

    strategy = hwbench.make_strategy(
        genes=[("a", 4), ("b", 4), ("c", 4)], objectives={"accuracy": "max", "latency_ms": "min"}, known={"latency_ms": latency}
    )
    before = threads()
    for _ in range(3):
        genes = strategy.ask(6)
        strategy.tell(genes, {"accuracy": genes[:, 0] * 1.0})
    assert seen
    assert set.union(*seen) == {1}
    assert threads() == before
