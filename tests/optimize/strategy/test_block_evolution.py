"""Block-wise evolution changes what scores lowest; its control differs in positions alone; limits are kept all along."""

from __future__ import annotations

import numpy as np
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.genes import Block
from hwbench.optimize.pool import Pool
from hwbench.optimize.problem import NoBlocks, Problem
from hwbench.optimize.strategy.block_evolution import standing
from hwbench.testing.strategy import play

LAYERS, CHOICES = 6, 7
WORTH = np.random.default_rng(4).normal(size=(2, LAYERS, CHOICES)) * np.array([1.0, 1000.0])[:, None, None]
"""What a choice adds, by kind of block: the kinds are not comparable."""
GENES = [("width", 3), ("depth", 3), *((f"{kind}{i}", CHOICES) for kind in ("attention", "mlp") for i in range(LAYERS))]
BLOCKS = [
    Block(f"{kind}{i}", kind, (2 + k * LAYERS + i,)) for k, kind in enumerate(("attention", "mlp")) for i in range(LAYERS)
]
FIRST = 2
"""Genes before those of blocks."""


def canonical(genes: np.ndarray) -> np.ndarray:
    """Depth 0 has four layers, 2 has six."""
    genes = genes.copy()
    beyond = np.arange(LAYERS) >= LAYERS - 2 + genes[:, 1:2]
    genes[:, FIRST:][np.tile(beyond, 2)] = 0
    return genes


def shares(genes: np.ndarray) -> np.ndarray:
    """float[n, blocks]: a sum, so that a block's share depends on nothing else; NaN beyond the depth."""
    found = np.concatenate([WORTH[k, np.arange(LAYERS), genes[:, FIRST + k * LAYERS :][:, :LAYERS]] for k in (0, 1)], axis=1)
    found[np.tile(np.arange(LAYERS) >= LAYERS - 2 + genes[:, 1:2], 2)] = np.nan
    return found


def told(genes: np.ndarray) -> dict[str, np.ndarray]:
    found = shares(genes)
    sums = np.nansum(found / np.array([1.0, 1000.0]).repeat(LAYERS), axis=1)
    return {"accuracy": sums + genes[:, 0], **{block.name: found[:, at] for at, block in enumerate(BLOCKS)}}


def problem(**given) -> Problem:
    return Problem(GENES, {"accuracy": "max"}, canonical=canonical, wide=(0, 1), blocks=BLOCKS, **given)


def make(options: str, of: Problem, seed: int = 0):
    return registry.make("strategy", f"block-evolution:{options}", problem=of, rng=np.random.default_rng(seed))


def one_generation(options: str, size: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(the population, what is made of it)."""
    strategy = make(f"population={size},{options}", problem(), seed)
    population = play(strategy, size, size, told)
    return population, strategy.ask(100)


def ranks(population: np.ndarray) -> np.ndarray:
    """float[n, blocks]: how many blocks of the kind in the population score no more, counted one by one."""
    found = shares(population)
    counted = np.full(found.shape, np.nan)
    for columns in (range(LAYERS), range(LAYERS, 2 * LAYERS)):
        mine = [found[i, j] for i in range(len(found)) for j in columns if np.isfinite(found[i, j])]
        for i in range(len(found)):
            for j in columns:
                if np.isfinite(found[i, j]):
                    below, equal = sum(each < found[i, j] for each in mine), sum(each == found[i, j] for each in mine)
                    counted[i, j] = (below + (equal + 1) / 2) / len(mine)
    return counted


def changed(genes: np.ndarray, parent: np.ndarray) -> set[int]:
    """Blocks in which an architecture differs; all where it differs in another gene."""
    if (genes[:FIRST] != parent[:FIRST]).any():
        return set(range(-1, 2 * LAYERS))
    return set(np.flatnonzero(genes[FIRST:] != parent[FIRST:]).tolist())


def lowest(scores: np.ndarray, part: float) -> set[int]:
    """The lowest-scoring blocks of one architecture."""
    there = np.flatnonzero(np.isfinite(scores))
    return set(there[np.argsort(scores[there])][: int(np.ceil(part * len(there)))].tolist())


def test_the_lowest_scoring_blocks_are_drawn_anew_and_nothing_else():
    population, mutants = one_generation("mutants=60,children=0")
    scores = ranks(population)
    allowed = [lowest(row, 0.25) for row in scores]
    assert len(mutants) == 60
    for mutant in mutants:
        assert any(changed(mutant, parent) <= blocks for parent, blocks in zip(population, allowed, strict=True))
    assert max(len(changed(mutant, population[0]) & allowed[0]) for mutant in mutants) == 3
    _, at_random = one_generation("mutants=60,children=0,positions=random")
    elsewhere = [
        mutant
        for mutant in at_random
        if not any(changed(mutant, parent) <= blocks for parent, blocks in zip(population, allowed, strict=True))
    ]
    assert len(elsewhere) > 30
    assert all(min(len(changed(mutant, parent)) for parent in population) <= 3 for mutant in at_random)


def test_a_child_is_its_first_parent_with_the_blocks_that_score_higher_in_the_second():
    population, children = one_generation("mutants=0,children=40")
    scores = ranks(population)
    lower = scores[:, None] < scores[None]  # where one lacks a block, the comparison is false
    pairs = population[:, None].repeat(len(population), 1)
    pairs[:, :, FIRST:] = np.where(lower, population[None, :, FIRST:], population[:, None, FIRST:])
    expected = {row.tobytes() for row in pairs.reshape(-1, len(GENES))}
    assert len(children) == 40
    assert {row.tobytes() for row in children} <= expected
    _, at_random = one_generation("mutants=0,children=40,positions=random")
    assert np.mean([row.tobytes() in expected for row in at_random]) < 0.5


def test_its_control_differs_in_positions_alone():
    """Where every block is drawn anew there is no position to choose: both are the same search, to the bit."""
    of = problem()
    searches = {
        (part, positions): play(
            make(f"population=10,mutants=20,children=0,part={part},positions={positions}", of), 200, 20, told
        )
        for part in (0.25, 1.0)
        for positions in ("lowest", "random")
    }
    assert np.array_equal(searches[1.0, "lowest"], searches[1.0, "random"])
    first, control = searches[0.25, "lowest"], searches[0.25, "random"]
    assert np.array_equal(first[:10], control[:10])
    assert not np.array_equal(first, control)
    name, rng = "block-evolution-random:population=10,mutants=20,children=0", np.random.default_rng(0)
    variant = registry.make("strategy", name, problem=of, rng=rng)
    assert np.array_equal(play(variant, 200, 20, told), control)


def test_what_breaks_a_known_limit_is_never_asked_for():
    """Hardly any random architecture keeps it, and the best lie on it."""

    def cost(genes: np.ndarray) -> np.ndarray:
        return genes[:, FIRST:].sum(axis=1) + 5.0 * genes[:, 0]

    of = problem(limits={"cost": 9.0}, known={"cost": cost})
    drawn = canonical(np.random.default_rng(0).integers(0, [size for _, size in GENES], (20_000, len(GENES)), np.uint8))
    assert (cost(drawn) <= 9).mean() < 1e-3
    for seed in range(3):
        asked = play(make("population=20,mutants=10,children=10", of, seed), 300, told=told)
        assert len(asked) == 300
        assert (cost(asked) <= 9).all()
        found = told(asked)["accuracy"]
        assert found[-50:].mean() > found[:20].mean() + found[:20].std()


def test_a_limit_nothing_keeps_is_said_before_anything_is_scored():
    of = problem(limits={"cost": 1.0}, known={"cost": lambda genes: 2.0 + genes[:, 0]})
    with pytest.raises(UsageError, match="no architecture within the limits to begin with"):
        make("population=5", of).ask(5)


def test_ranks_are_counted_within_a_kind_and_equal_ones_share_them():
    found = standing(np.array([[3.0, 500.0, 100.0], [1.0, np.nan, 100.0], [3.0, np.nan, 300.0]]), ["a", "b", "b"])
    expected = np.array([[2.5 / 3, 4 / 4, 1.5 / 4], [1 / 3, np.nan, 1.5 / 4], [2.5 / 3, np.nan, 3 / 4]])
    assert np.allclose(found, expected, equal_nan=True)


def test_it_climbs_faster_than_its_control_where_shares_tell_the_truth():
    """Means over seeds of the best found: on a sum every block can be judged by itself."""
    best = {
        positions: np.mean(
            [
                told(play(make(f"population=20,mutants=10,children=10,positions={positions}", problem(), seed), 240, 20, told))[
                    "accuracy"
                ].max()
                for seed in range(8)
            ]
        )
        for positions in ("lowest", "random")
    }
    assert best["lowest"] > best["random"]


def test_without_shares_it_is_refused():
    with pytest.raises(NoBlocks, match="needs to know what every block has of the accuracy"):
        hwbench.make_strategy("block-evolution", GENES, {"accuracy": "max"})
    with pytest.raises(UsageError, match="blocks: 'layer' is no gene"):
        hwbench.make_strategy("block-evolution", GENES, {"accuracy": "max"}, blocks=[("a", "kind", ["layer"])])
    with pytest.raises(UsageError, match="'accuracy' is told twice"):
        hwbench.make_strategy("random", GENES, {"accuracy": "max"}, blocks=[("accuracy", "kind", ["width"])])
    mine = hwbench.make_strategy(
        "block-evolution", GENES, {"accuracy": "max"}, blocks=[("first", "attention", ["attention0", "mlp0"])]
    )
    asked = mine.ask(5)
    with pytest.raises(UsageError, match="tell lacks the shares of block 'first'"):
        mine.tell(asked, {"accuracy": np.ones(5)})
    with pytest.raises(UsageError, match="Block 'first' has shape"):
        mine.tell(asked, {"accuracy": np.ones(5), "first": np.ones(4)})
    mine.tell(asked, {"accuracy": np.ones(5), "first": np.ones(5)})


def test_in_a_sparse_pool_offspring_are_members_near_their_parents_not_drawn_blindly():
    rng = np.random.default_rng(3)
    sizes = [size for _, size in GENES]
    members = np.unique(canonical(rng.integers(0, sizes, (400, len(sizes)), dtype=np.uint8)), axis=0)
    of = Problem(GENES, {"accuracy": "max"}, wide=(0, 1), blocks=BLOCKS, pool=Pool(members))
    strategy = make("population=20,mutants=20,children=20", of)
    population = play(strategy, 20, 20, told)
    offspring = strategy.ask(40)

    def apart(genes: np.ndarray) -> np.ndarray:
        return (genes[:, None] != population[None]).sum(axis=2).min(axis=1)

    known = {row.tobytes() for row in population}
    assert {row.tobytes() for row in offspring} <= {row.tobytes() for row in members} - known
    others = np.array([row for row in members if row.tobytes() not in known])
    assert apart(offspring).mean() < apart(others).mean() - 0.75
