"""One suite over every registered strategy: seeded, canonical, never the same architecture twice, NaN-proof, resumable.

A strategy whose package is not installed is skipped with the command that installs it.
"""

from __future__ import annotations

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.optimize.problem import Problem
from hwbench.optimize.strategy.base import Strategy
from hwbench.testing.base import suites
from hwbench.testing.strategy import BOTH, GENES, PROBLEMS, play, problem_of

BRIEF = {
    "bayesian": ":start=10",
    "block_evolution": ":population=10,mutants=5,children=5",
    "differentiable": ":start=15,batch=15",
    "evolution": ":population=15,parents=6",
    "dynamic_hurdles": ":population=10",
    "linas": ":start=16,batch=12",
    "nsga2": ":population=8",
    "pareto_evolution": ":start=12",
    "pymoo-nsga2": ":population=8",
    "regularised": ":population=10,sample=4",
}
"""Options with which a strategy leaves its random beginning, and turns its population over, within few evaluations."""


def brief(name: str) -> str:
    return name + next((text for start, text in BRIEF.items() if name.startswith(start)), "")


globals().update(suites("strategy", name=brief))
pytestmark = pytest.mark.campaign(keep=40)  # of each check, over all strategies and kinds of problem


def make(name: str, problem: Problem, seed: int = 0) -> Strategy:
    try:
        return registry.make("strategy", name, problem=problem, rng=np.random.default_rng(seed))
    except UsageError as error:
        if "pip install" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("name", ["differentiable-gdas", "reinforce"])
def test_torch_is_left_as_it_was_and_its_threads_change_nothing(name):
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'hwbench-nas[torch]'")
    before = torch.get_num_threads()
    asked = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            asked.append(play(make(brief(name), PROBLEMS["forty genes"]), 40))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*asked)


CHOICES, PLACES = 5, 10
TRUTH = np.random.default_rng(20).normal(size=(PLACES, CHOICES))
"""What every choice adds to the accuracy."""


def best_found(name: str, seed: int, evaluations: int) -> float:
    """Share of the way from the mean to the best architecture."""

    def told(genes):
        added = TRUTH[np.arange(PLACES), genes]
        return {"accuracy": 90 + added.sum(axis=1), **{f"part{i}": added[:, i] for i in range(PLACES)}}

    sums = [((), np.array(90.0)), *(((place,), TRUTH[place]) for place in range(PLACES))]
    problem = problem_of([(f"g{i}", CHOICES) for i in range(PLACES)], {"accuracy": "max"}, additive={"accuracy": sums})
    asked = play(make(name, problem, seed), evaluations, told=told)[:evaluations]
    middle, best = 90 + TRUTH.mean(axis=1).sum(), 90 + TRUTH.max(axis=1).sum()
    return float((told(asked)["accuracy"].max() - middle) / (best - middle))


DEAR = {"bayesian": 60, "gp_ehvi": 60, "differentiable": 100, "linas": 60, "optuna-tpe": 120}


@pytest.fixture(scope="module")
def of_random() -> float:
    return float(np.median([best_found("random", seed, 300) for seed in range(7)]))


@pytest.mark.campaign(keep=8)
@pytest.mark.parametrize("name", [name for name in registry.names("strategy") if name != "random"])
def test_every_strategy_is_better_than_random_search(name, of_random):
    """On ten million architectures whose accuracy is a sum; the dear ones are given fewer evaluations than random search."""
    evaluations = next((n for start, n in DEAR.items() if name.startswith(start)), 300)
    assert min(best_found(name, seed, evaluations) for seed in range(2)) > of_random


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("evolution:population=0", "population and parents must be at least 1"),
        ("evolution:parents=0", "population and parents must be at least 1"),
        ("regularised:sample=0", "sample between 1 and it"),
        ("nsga2:population=1", "population must be at least 2"),
        ("local:start=0", "start must be at least 1"),
        ("linas-ridge:start=3", "start must be at least 8"),
        ("bayesian:start=2", "start must be at least 5"),
        ("lite:fresh=2", "fresh within 0 .. 1"),
        ("hurdles:least=0", "least within 0 .. 1"),
        ("reinforce:gamma=0.07", "gamma must be <= 0"),
        ("exact:gap=-1", "gap and nodes must not be negative"),
        ("exact", "Strategy exact finds the best of one objective, not a front of accuracy, latency_ms"),
        ("differentiable-darts:batch=0", "batch at least 1"),
        ("block-evolution:part=0", "part within 0 .. 1"),
        ("block-evolution:mutants=0,children=0", "at least 0 and together 1"),
        ("block-evolution:positions=first", "positions must be lowest or random, got 'first'"),
        ("nsga2:colour=3", "cannot read 'colour=3'. Options: population, crossover_rate"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, message):
    with pytest.raises(UsageError, match=message):
        make(name, PROBLEMS["two objectives"])


def test_the_contract_is_public_python():
    asked = []

    def latency(genes):
        return genes.sum(axis=1) + 1.0

    strategy = hwbench.make_strategy(
        name="default",
        genes=[(f"edge{i}", 5) for i in range(6)],
        objectives={"accuracy": "max", "latency_ms": "min"},
        limits={"latency_ms": 12.0},
        known={"latency_ms": latency},
        seed=0,
    )
    for _ in range(4):
        genes = strategy.ask(10)
        asked.append(genes)
        strategy.tell(genes, {"accuracy": 50.0 + genes[:, 0]})
    assert np.concatenate(asked).shape[1] == 6


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "nsga3"}, UnknownName, "Unknown strategy 'nsga3'. Did you mean nsga2"),
        ({"objectives": {"accuracy": "up"}}, UsageError, 'must be "max" or "min", got \'up\''),
        ({"objectives": None}, UsageError, "at least one objective"),
        ({"genes": ()}, UsageError, "needs genes with different names, got none"),
    ],
)
def test_a_strategy_asked_for_wrongly_says_what_is_wrong(arguments, error, message):
    with pytest.raises(error, match=message):
        hwbench.make_strategy(**{"name": "random", "genes": GENES, "objectives": BOTH, **arguments})
