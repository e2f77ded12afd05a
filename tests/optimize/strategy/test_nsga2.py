"""NSGA-II against pymoo's: the same ranks, the same room, and as good a front."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import pareto, registry
from hwbench.optimize.problem import Problem

PLACES, CHOICES = 8, 4
GENES = [(f"g{i}", CHOICES) for i in range(PLACES)]


def values(genes: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy and latency that rise together, with some choices better than others."""
    rng = np.random.default_rng(5)
    gain, cost = rng.random((2, PLACES, CHOICES))
    place = np.arange(PLACES)
    return {"accuracy": gain[place, genes].sum(axis=1), "latency_ms": cost[place, genes].sum(axis=1)}


def volume(name: str, seed: int) -> float:
    """Hypervolume after 600 evaluations."""
    problem = Problem(GENES, {"accuracy": "max", "latency_ms": "min"})
    strategy = registry.make("strategy", name, problem=problem, rng=np.random.default_rng(seed))
    losses = []
    while sum(map(len, losses)) < 600:
        genes = strategy.ask(10)
        told = values(genes)
        strategy.tell(genes, told)
        losses.append(problem.losses(told))
    return pareto.hypervolume(np.concatenate(losses)[:600], np.array([0.0, PLACES]))


@pytest.mark.parametrize("losses", [2, 3])
def test_ranks_and_room_are_those_of_pymoo(losses):
    pytest.importorskip("pymoo", reason="needs pymoo: pip install 'hwbench-nas[peers]'")
    from pymoo.operators.survival.rank_and_crowding.metrics import get_crowding_function
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    for seed in range(10):
        points = np.random.default_rng(seed).random((80, losses))
        ranks = pareto.ranks(points)
        for level, theirs in enumerate(NonDominatedSorting().do(points)):
            assert sorted(theirs) == np.flatnonzero(ranks == level).tolist()
            room = get_crowding_function("cd").do(points[theirs])
            # Theirs is the mean over losses, ours the sum.
            assert pareto.crowding(points[theirs]) == pytest.approx(losses * room)


@pytest.mark.parametrize("losses", [2, 3])
@pytest.mark.parametrize("broken", [0.0, 0.3, 0.9])
def test_who_survives_survives_with_pymoo(losses, broken):
    """Of 60, those it keeps, also where many break a limit."""
    pytest.importorskip("pymoo", reason="needs pymoo: pip install 'hwbench-nas[peers]'")
    from pymoo.core.population import Population
    from pymoo.core.problem import Problem as Theirs
    from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

    theirs = Theirs(n_var=1, n_obj=losses, n_ieq_constr=1, xl=0, xu=1)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        points = rng.random((60, losses))
        violation = np.where(rng.random(60) < broken, rng.random(60), 0.0)
        told = Population.new(X=np.arange(60.0)[:, None], F=points, G=violation[:, None])
        theirs_kept = RankAndCrowding().do(theirs, told, n_survive=25, random_state=rng).get("X")[:, 0].astype(int)
        kept = pareto.order(points, violation)[:25]
        for one in {*kept} ^ {*theirs_kept}:
            # Who stands at an end of the last front has all the room; pymoo then draws lots.
            ranks = np.where(violation > 0, -1, pareto.ranks(np.where(violation[:, None] > 0, np.inf, points)))
            last = np.flatnonzero(ranks == ranks[one])
            assert ranks[one] == ranks[kept].max()
            assert pareto.crowding(points[last])[last == one] == np.inf
        assert len({*kept} & {*theirs_kept}) >= 22


def test_fronts_are_as_good_as_those_of_pymoo():
    """The mean over seeds, to two standard errors of the difference; random search is far below both."""
    pytest.importorskip("pymoo", reason="needs pymoo: pip install 'hwbench-nas[peers]'")
    ours, theirs = (np.array([volume(name, seed) for seed in range(10)]) for name in ("nsga2", "pymoo-nsga2"))
    doubt = np.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / 10)
    assert ours.mean() > theirs.mean() - 2 * doubt
    assert np.mean([volume("random", seed) for seed in range(10)]) < min(ours.mean(), theirs.mean()) - 10 * doubt


def test_fronts_are_better_than_those_of_random_search():
    of_random = np.median([volume("random", seed) for seed in range(5)])
    assert min(volume("nsga2", seed) for seed in range(3)) > of_random


def test_the_population_is_what_survives():
    """After a generation, parents are the best of all that were told: their children have most of their genes."""
    problem = Problem([(f"g{i}", 50) for i in range(6)], {"accuracy": "max"})
    strategy = registry.make("strategy", "nsga2:population=10", problem=problem, rng=np.random.default_rng(0))
    first = strategy.ask(10)
    strategy.tell(first, {"accuracy": first.sum(axis=1).astype(float)})
    told = np.repeat(np.arange(40, 50, dtype=np.uint8), 6).reshape(10, 6)
    strategy.tell(told, {"accuracy": 1000.0 + told.sum(axis=1)})
    children = strategy.ask(10)
    # One gene in three is redrawn, and then seldom 40 or more.
    assert (children >= 40).mean() > 0.5
    assert (first >= 40).mean() < 0.4
