"""One suite over every registered strategy: seeded, canonical, never the same architecture twice, and it ends."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench import registry
from hwbench.errors import UsageError
from hwbench.objective.base import Score
from hwbench.space.base import canonical, keys, sample, size
from hwbench.strategy.base import Seen, Strategy, sample_new

every_strategy = pytest.mark.parametrize("name", registry.names("strategy"))


@pytest.fixture
def tiny():
    return registry.get("space", "autoformer-tiny")


def make(name: str, space, seed: int = 0) -> Strategy:
    return registry.make("strategy", name, space=space, rng=np.random.default_rng(seed))


def score(population: np.ndarray) -> Score:
    """Any score that is a function of the genes, some of them over the budget."""
    weights = np.cos(np.arange(1, population.shape[0] + 1))
    fitness = weights @ population.astype(float)
    return Score(fitness, np.maximum(population.sum(axis=0) - population.shape[0] * 0.6, 0.0))


def play(strategy: Strategy, batches: int, n: int) -> np.ndarray:
    asked = []
    for _ in range(batches):
        asked.append(strategy.ask(n))
        if not asked[-1].shape[1]:
            break
        strategy.tell(asked[-1], score(asked[-1]))
    return np.concatenate(asked, axis=1)


@every_strategy
def test_the_same_seed_asks_the_same(name, tiny):
    first, again, other = (play(make(name, tiny, seed), 6, 50) for seed in (0, 0, 1))
    assert (first == again).all()
    assert first.shape != other.shape or (first != other).any()


@every_strategy
def test_architectures_are_canonical_and_never_asked_for_twice(name, tiny):
    asked = play(make(name, tiny), 12, 60)
    assert asked.dtype == np.uint8
    assert asked.shape[1] > 600
    assert (asked == canonical(tiny, asked)).all()
    assert len(set(keys(asked))) == asked.shape[1]


@every_strategy
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_no_more_is_asked_than_may_be(name, tiny, n):
    strategy = make(name, tiny)
    for _ in range(5):
        asked = strategy.ask(n)
        assert asked.shape[0] == len(tiny.genes)
        assert 1 <= asked.shape[1] <= n
        strategy.tell(asked, score(asked))


@every_strategy
@pytest.mark.parametrize("n", [1, 10, 1000])
def test_a_tiny_space_is_exhausted_and_then_nothing_is_asked(name, mixer, n):
    strategy = make(name, mixer)
    asked = play(strategy, 10_000, n)
    assert len(set(keys(asked))) == asked.shape[1] == size(mixer)
    assert strategy.ask(n).shape == (len(mixer.genes), 0)


@every_strategy
def test_what_is_told_is_not_changed(name, tiny):
    strategy = make(name, tiny)
    asked = strategy.ask(40)
    before, told = asked.copy(), score(asked)
    fitness = told.fitness.copy()
    strategy.tell(asked, told)
    strategy.ask(40)
    assert (asked == before).all()
    assert (told.fitness == fitness).all()


def test_evolution_climbs(tiny):
    """After the random start its proposals are better than random ones, also towards a budget nobody met at first."""
    strategy = make("evolution:population=40,parents=10", tiny)
    last = play(strategy, 20, 40)[:, -40:]
    drawn = sample(tiny, 4000, np.random.default_rng(9))
    assert np.median(score(last).violation) <= np.median(score(drawn).violation)
    feasible = score(last).fitness[score(last).violation == 0]
    assert np.median(feasible) > np.quantile(score(drawn).fitness[score(drawn).violation == 0], 0.95)


@pytest.mark.parametrize("option", ["population=0", "parents=0", "parents=-1"])
def test_an_evolution_without_parents_is_refused(tiny, option):
    with pytest.raises(UsageError, match="population and parents must be at least 1"):
        make(f"evolution:{option}", tiny)


def test_seen_lets_each_architecture_pass_once(mixer):
    seen = Seen()
    population = sample(mixer, 500, np.random.default_rng(0))
    first = seen.new(population)
    assert first.shape[1] == len(set(keys(population)))
    assert seen.new(population).shape == (len(mixer.genes), 0)
    rest = sample_new(mixer, 500, np.random.default_rng(1), seen)
    assert not set(keys(rest)) & set(keys(first))
