"""One suite over every registered strategy: seeded, canonical, never the same architecture twice, NaN-proof, resumable.

A strategy whose package is not installed is skipped with the command that installs it.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.genes import keys
from hwbench.optimize.problem import Problem
from hwbench.optimize.strategy.base import Strategy
from hwbench.optimize.variation import everything, sample

every_strategy = pytest.mark.parametrize("name", registry.names("strategy"))

GENES = [("a", 4), ("b", 4), ("c", 3), ("only", 1), ("d", 4), ("e", 2), ("f", 3)]
BOTH = {"accuracy": "max", "latency_ms": "min"}


def measure(genes: np.ndarray) -> dict[str, np.ndarray]:
    """Values that are functions of the genes: accuracy has pairs that interact, latency is a sum, energy a product."""
    x = genes.astype(float)
    weights = np.cos(np.arange(1, x.shape[1] + 1))
    return {
        "accuracy": 70 + 3 * x @ weights + np.sin(x[:, 0] * x[:, -1]) - 0.3 * (x**2) @ np.abs(weights),
        "latency_ms": 1 + x @ (1.5 + weights),
        "energy": (1 + x.sum(axis=1)) * (2 + x[:, 1]),
        "shift": -(x @ weights),
    }


def alone(name: str):
    return lambda genes: measure(genes)[name]


PROBLEMS = {
    "one objective": Problem(GENES, {"accuracy": "max"}),
    "one to minimise, below zero too": Problem(GENES, {"shift": "min"}),
    "two objectives": Problem(GENES, BOTH),
    "three objectives": Problem(GENES, {**BOTH, "energy": "min"}),
    "a limit": Problem(GENES, {"accuracy": "max"}, {"latency_ms": 9.0}),
    "a limit nobody meets": Problem(GENES, BOTH, {"latency_ms": 0.5}),
    "a least accuracy": Problem(GENES, BOTH, {"accuracy": 71.0}),
    "a known cost": Problem(GENES, BOTH, {"energy": 60.0}, {"latency_ms": alone("latency_ms")}),
    "a known limit": Problem(GENES, {"accuracy": "max"}, {"latency_ms": 9.0}, {"latency_ms": alone("latency_ms")}),
    "everything known": Problem(GENES, BOTH, known={name: alone(name) for name in BOTH}),
    "forty genes": Problem([(f"g{i}", 3) for i in range(40)], BOTH),
}


BRIEF = {
    "bayesian": ":start=10",
    "differentiable": ":start=15,batch=15",
    "evolution": ":population=15,parents=6",
    "dynamic_hurdles": ":population=10",
    "linas": ":start=16,batch=12",
    "nsga2": ":population=8",
    "pareto_evolution": ":start=12",
    "pymoo_nsga2": ":population=8",
    "regularised": ":population=10,sample=4",
}
"""Options with which a strategy leaves its random beginning, and turns its population over, within few evaluations."""


def make(name: str, problem: Problem, seed: int = 0, brief: bool = True) -> Strategy:
    options = next((text for start, text in BRIEF.items() if name.startswith(start) and ":" not in name), "") if brief else ""
    try:
        return registry.make("strategy", name + options, problem=problem, rng=np.random.default_rng(seed))
    except UsageError as error:
        if "pip install" in str(error):
            pytest.skip(str(error))
        raise


def play(strategy: Strategy, evaluations: int, n: int = 10, told=measure) -> np.ndarray:
    """What a strategy asks when it is told `told`, row by row."""
    asked: list[np.ndarray] = []
    while sum(map(len, asked)) < evaluations:
        genes = strategy.ask(n)
        asked.append(genes)
        if not len(genes):
            break
        strategy.tell(genes, told(genes))
    return np.concatenate(asked)


@every_strategy
def test_the_same_seed_asks_the_same(name):
    first, again, other = (play(make(name, PROBLEMS["two objectives"], seed), 30, 7) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert first.shape != other.shape or (first != other).any()


@every_strategy
@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_kind_of_problem_is_worked_on_without_repetition(name, kind):
    problem = PROBLEMS[kind]
    asked = play(make(name, problem), 26)
    assert asked.dtype == np.uint8
    assert len(asked) >= 26
    assert len(set(keys(problem.check(asked)))) == len(asked)


def layers(genes: np.ndarray) -> np.ndarray:
    """Gene 0 is a depth: layers beyond it are 0."""
    genes = genes.copy()
    genes[:, 1:][np.arange(genes.shape[1] - 1) > genes[:, :1]] = 0
    return genes


@every_strategy
def test_architectures_are_canonical(name):
    problem = Problem([("depth", 5), *((f"layer{i}", 4) for i in range(5))], BOTH, canonical=layers)
    asked = play(make(name, problem), 40)
    assert (asked == layers(asked)).all()
    assert len(set(keys(asked))) == len(asked)


@every_strategy
@pytest.mark.parametrize("n", [1, 7, 25])
def test_no_more_is_asked_than_may_be_and_something_always(name, n):
    strategy = make(name, PROBLEMS["a limit"])
    for _ in range(5 if n > 1 else 35):
        asked = strategy.ask(n)
        assert asked.shape[1] == len(GENES)
        assert 1 <= len(asked) <= n
        strategy.tell(asked, measure(asked))


@every_strategy
@pytest.mark.parametrize(
    ("sizes", "n", "objectives"), [((2, 3, 2), 1, {"accuracy": "max"}), ((2, 3, 2), 100, BOTH), ((4, 3, 3), 5, BOTH)]
)
def test_a_small_space_is_exhausted_and_then_nothing_is_asked(name, sizes, n, objectives):
    problem = Problem([(f"g{i}", size) for i, size in enumerate(sizes)], objectives)
    strategy = make(name, problem)
    asked = play(strategy, 1000, n)
    assert sorted(keys(asked)) == sorted(keys(everything(problem)))
    assert strategy.ask(n).shape == (0, 3)
    assert strategy.ask(n).dtype == np.uint8


@every_strategy
def test_a_space_of_one_architecture_is_asked_once(name):
    problem = Problem([("a", 1), ("b", 1)], BOTH)
    assert play(make(name, problem), 10, 3).tolist() == [[0, 0]]


@every_strategy
def test_what_is_told_is_not_changed(name):
    strategy = make(name, PROBLEMS["two objectives"])
    for _ in range(6):
        asked = strategy.ask(10)
        values = measure(asked)
        for array in (asked, *values.values()):
            array.setflags(write=False)  # an attempt to write raises
        before = asked.copy(), {key: value.copy() for key, value in values.items()}
        strategy.tell(asked, values)
        strategy.ask(1)
        assert (asked == before[0]).all()
        assert all((values[key] == before[1][key]).all() for key in values)


@every_strategy
@pytest.mark.parametrize("kind", ["one objective", "two objectives", "a limit"])
def test_invalid_architectures_are_survived(name, kind):
    """A third of them: found by asking only."""

    def told(genes):
        values = measure(genes)
        values["accuracy"][genes.sum(axis=1) % 3 == 0] = np.nan
        return values

    asked = play(make(name, PROBLEMS[kind]), 40, told=told)
    assert len(asked) >= 40
    assert len(set(keys(asked))) == len(asked)


@every_strategy
@pytest.mark.parametrize("kind", ["one objective", "two objectives", "a known limit"])
def test_only_invalid_architectures_are_survived(name, kind):
    def told(genes):
        return measure(genes) | {"accuracy": np.full(len(genes), np.nan)}

    assert len(play(make(name, PROBLEMS[kind]), 40, told=told)) >= 40


@every_strategy
def test_values_that_are_all_alike_are_survived(name):
    def told(genes):
        return {"accuracy": np.full(len(genes), 50.0), "latency_ms": np.full(len(genes), 3.0)}

    assert len(play(make(name, PROBLEMS["two objectives"]), 40, told=told)) >= 40


@every_strategy
def test_what_it_never_asked_for_may_be_told_and_is_not_asked_again(name):
    problem = PROBLEMS["two objectives"]
    strategy = make(name, problem)
    foreign = sample(problem, 40, np.random.default_rng(9))  # some of them twice
    strategy.tell(foreign, measure(foreign))
    early = play(strategy, 20)
    strategy.tell(more := sample(problem, 100, np.random.default_rng(10)), measure(more))
    late = play(strategy, 10, 3)
    assert not set(keys(early)) & set(keys(foreign))
    assert not set(keys(late)) & {*keys(early), *keys(foreign), *keys(more)}


@every_strategy
def test_a_refused_tell_says_why_and_changes_nothing(name):
    problem = PROBLEMS["two objectives"]
    strategy, other = make(name, problem), make(name, problem)
    for _ in range(5):
        asked = strategy.ask(8)
        assert np.array_equal(other.ask(8), asked)
        values = measure(asked)
        with pytest.raises(UsageError, match="tell lacks 'latency_ms'; it needs accuracy, latency_ms"):
            strategy.tell(asked, {"accuracy": values["accuracy"]})
        with pytest.raises(UsageError, match="'accuracy' has shape"):
            strategy.tell(asked, values | {"accuracy": values["accuracy"][:-1]})
        with pytest.raises(UsageError, match=r"Architectures are uint8\[n, 7\], got int64"):
            strategy.tell(asked.astype(int), values)
        strategy.tell(asked, values)
        other.tell(asked, values)


@every_strategy
@pytest.mark.parametrize("kind", ["two objectives", "a known limit"])
def test_killed_and_resumed_equals_never_killed(name, kind):
    """A new instance that replays the log asks what the first one asked, and goes on as it did, whatever else was drawn."""
    whole = make(name, PROBLEMS[kind], seed=3)
    log = []
    for n in (12, 10, 1, 6, 5, 4):
        asked = whole.ask(n)
        log.append((n, asked, measure(asked)))
        whole.tell(asked, log[-1][2])
    for _ in range(30 - sum(len(asked) for _, asked, _ in log)):  # some give one at a time
        asked = whole.ask(1)
        log.append((1, asked, measure(asked)))
        whole.tell(asked, log[-1][2])
    following = whole.ask(5)
    resumed = make(name, PROBLEMS[kind], seed=3)
    for at, (n, asked, values) in enumerate(log):
        _disturb(at)
        assert np.array_equal(resumed.ask(n), asked)
        resumed.tell(asked, values)
    assert np.array_equal(resumed.ask(5), following)


def _disturb(seed: int) -> None:
    """Another process would have other global generators: nothing may depend on them."""
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


@pytest.mark.parametrize("name", ["differentiable-gdas", "reinforce"])
def test_torch_is_left_as_it_was_and_its_threads_change_nothing(name):
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'hwbench-nas[torch]'")
    before = torch.get_num_threads()
    asked = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            asked.append(play(make(name, PROBLEMS["forty genes"]), 40))
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
        return {"accuracy": 90 + TRUTH[np.arange(PLACES), genes].sum(axis=1)}

    problem = Problem([(f"g{i}", CHOICES) for i in range(PLACES)], {"accuracy": "max"})
    asked = play(make(name, problem, seed, brief=False), evaluations, told=told)[:evaluations]
    middle, best = 90 + TRUTH.mean(axis=1).sum(), 90 + TRUTH.max(axis=1).sum()
    return float((told(asked)["accuracy"].max() - middle) / (best - middle))


DEAR = {"bayesian": 60, "gp_ehvi": 60, "differentiable": 100, "linas": 60, "optuna-tpe": 120}


@pytest.fixture(scope="module")
def of_random() -> float:
    return float(np.median([best_found("random", seed, 300) for seed in range(7)]))


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
        ("differentiable-darts:batch=0", "batch at least 1"),
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
