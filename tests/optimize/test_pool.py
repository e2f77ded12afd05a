"""A search among known architectures asks for these only, each once, and finds all of them in the end."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.genes import keys
from hwbench.optimize.pool import NEAR, Pool
from hwbench.optimize.problem import Problem
from hwbench.optimize.variation import crossover, everything, mutate, neighbours, sample

GENES = [(f"g{i}", 4) for i in range(12)]
MEMBERS = np.unique(np.random.default_rng(0).integers(0, 4, (60, 12), dtype=np.uint8), axis=0)
WORTH = MEMBERS.sum(axis=1).astype(float)


def problem(**more) -> Problem:
    return Problem(GENES, {"accuracy": "max", "cost": "min"}, pool=Pool(MEMBERS), **more)


def told(genes: np.ndarray) -> dict[str, np.ndarray]:
    at = {key: i for i, key in enumerate(keys(MEMBERS))}
    rows = [at[key] for key in keys(genes)]  # KeyError: it is no member
    return {"accuracy": WORTH[rows], "cost": MEMBERS[rows][:, 0].astype(float)}


def strategies() -> list[str]:
    """All that solve such a problem, but for those that take long here and ask in the same way."""
    found = []
    for name in registry.names("strategy"):
        try:
            registry.make("strategy", name, problem=problem(), rng=np.random.default_rng(0))
        except UsageError:  # it needs more than genes, or a package
            continue
        if not name.startswith(("optuna", "differentiable")):
            found.append(name)
    return found


def test_the_nearest_member_has_the_fewest_different_genes():
    asked = np.random.default_rng(1).integers(0, 4, (50, 12), dtype=np.uint8)
    found = Pool(MEMBERS).nearest(asked)
    least = (asked[:, None] != MEMBERS[None]).sum(axis=2).min(axis=1)
    np.testing.assert_array_equal((found != asked).sum(axis=1), least)
    np.testing.assert_array_equal(Pool(MEMBERS).nearest(asked), found)
    np.testing.assert_array_equal(Pool(MEMBERS).nearest(MEMBERS), MEMBERS)


def test_equally_near_members_are_all_chosen_by_some():
    corners = np.array([[0, 0], [1, 1], [2, 2], [3, 3]], np.uint8)
    asked = np.stack(np.meshgrid(np.arange(4, 200), np.arange(4, 200))).reshape(2, -1).T.astype(np.uint8)
    _, counts = np.unique(Pool(corners).nearest(asked), axis=0, return_counts=True)
    assert len(counts) == 4
    assert counts.min() > 0.15 * len(asked)


def test_the_form_of_a_space_is_compared():
    """A gene that does not count in an architecture does not move it away."""

    def form(genes):
        return np.where(np.arange(12) < 6, genes, 0).astype(np.uint8)

    members = np.unique(form(MEMBERS), axis=0)
    noisy = members.copy()
    noisy[:, 6:] = 3
    np.testing.assert_array_equal(Pool(members, form).nearest(noisy), members)


def test_variation_leads_to_other_members():
    known, rng = problem(), np.random.default_rng(2)
    mutants = mutate(known, MEMBERS, 0.1, rng)
    told(mutants)
    assert (mutants != MEMBERS).any(axis=1).all()
    other = MEMBERS[::-1]
    children = crossover(known, MEMBERS, other, rng)
    told(children)
    assert ((children != MEMBERS).any(axis=1) & (children != other).any(axis=1)).all()
    around = neighbours(known, MEMBERS[:1])
    assert len(around) == NEAR
    assert keys(MEMBERS[:1])[0] not in keys(around)
    assert known.size == len(everything(known)) == len(MEMBERS)


def test_random_members_are_drawn_equally_often():
    drawn = sample(problem(), 30_000, np.random.default_rng(3))
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == len(MEMBERS)
    assert counts.min() > 350  # of 500; members that are the nearest of few combinations too


@pytest.mark.parametrize("name", strategies())
@pytest.mark.parametrize("known", [False, True], ids=["paid", "known"])
def test_every_strategy_asks_for_members_only_each_once_and_for_all_in_the_end(name, known):
    free = {"cost": lambda genes: told(genes)["cost"]} if known else {}
    strategy = registry.make("strategy", name, problem=problem(known=free), rng=np.random.default_rng(0))
    asked: list[bytes] = []
    while len(genes := strategy.ask(10)):
        asked += keys(genes)
        strategy.tell(genes, told(genes))
        assert len(asked) <= len(MEMBERS)
    assert len(set(asked)) == len(asked) == len(MEMBERS)


def test_an_empty_pool_or_one_with_twins_is_refused():
    for members in (MEMBERS[:0], MEMBERS[[0, 0]]):
        with pytest.raises(UsageError, match="A pool needs architectures, each once"):
            Pool(members)
