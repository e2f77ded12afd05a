"""Compiled costs equal the plain sum over the lowered network, and the minimum is the minimum, for every registered space."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.network.spec import OpSpec
from hwbench.space import compiled as costs
from hwbench.space import elimination
from hwbench.space.activity import canonical, sample, size, valid
from hwbench.space.base import Gene, Space, per_layer
from hwbench.space.compiled import CHUNK, CompiledMaximum, CompiledSum, least_together
from hwbench.space.lowering import Lowering, lower
from hwbench.space.slots import distinct_specs
from tests.space.mixer import Mixer

CONSTANT = 0.75
every_space = pytest.mark.parametrize("name", [*registry.names("space"), "mixer"])


@pytest.fixture
def space(name, mixer) -> Space:
    return mixer if name == "mixer" else registry.get("space", name)


def random_values(space: Space, seed: int = 0) -> dict[OpSpec, float]:
    """Any value per op, negative ones too: neither compiling nor minimising may rest on their order."""
    specs = distinct_specs(space)
    return dict(zip(specs, np.random.default_rng(seed).normal(0.2, 1.0, len(specs)), strict=True))


def compiled(space: Space, values: dict[OpSpec, float]) -> CompiledSum:
    def op_value(specs: Sequence[OpSpec]) -> np.ndarray:
        return np.array([values[spec] for spec in specs])

    return CompiledSum(space, op_value, CONSTANT)


def by_lowering(space: Space, values: dict[OpSpec, float], column: np.ndarray) -> float:
    return CONSTANT + sum(n * values[spec] for spec, n in lower(space, column).counts().items())


def everything(space: Space) -> np.ndarray:
    columns = itertools.product(*(range(len(g.choices)) for g in space.genes))
    return np.unique(canonical(space, np.array(list(columns), np.uint8).T), axis=1)


class Decoding(Mixer):
    """The mixer, run three times for one answer, as a decoder is for each word."""

    name = "decoding"

    def lower(self, arch: Lowering) -> Workload:
        return Workload((replace(super().lower(arch).phases[0], repeat=3),))


def test_ops_of_a_phase_that_is_run_several_times_count_as_often():
    space = Decoding()
    values = random_values(space)
    cost, population = compiled(space, values), everything(space)
    expected = [by_lowering(space, values, column) for column in population.T]
    assert cost(population) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert cost.minimum()[0] == pytest.approx(min(expected), rel=1e-12, abs=1e-12)
    by_node = np.nansum(list(cost.by_node(population).values()), axis=0)
    assert CONSTANT + by_node == pytest.approx(expected, rel=1e-12, abs=1e-12)
    largest = CompiledMaximum(space, lambda specs: np.array([values[spec] for spec in specs]))
    assert largest(population).max() == max(values.values())


@every_space
def test_compiled_equals_lowered_on_1000_samples(space):
    values = random_values(space)
    population = sample(space, 1000, np.random.default_rng(1))
    found = compiled(space, values)(population)
    assert found == pytest.approx([by_lowering(space, values, column) for column in population.T], rel=1e-12, abs=1e-12)


@every_space
def test_the_minimum_is_below_100000_samples_and_reached(space):
    for seed in range(3):
        values = random_values(space, seed)
        cost = compiled(space, values)
        least, column = cost.minimum()
        assert least == pytest.approx(by_lowering(space, values, column), rel=1e-12, abs=1e-12)
        drawn = sample(space, 100_000, np.random.default_rng(seed))
        assert least <= cost(drawn[:, valid(space, drawn)]).min() + 1e-12
        assert valid(space, column[:, None]).all()
        assert (column == canonical(space, column[:, None])[:, 0]).all()


def test_the_minimum_equals_brute_force(mixer):
    population = everything(mixer)
    assert population.shape[1] == size(mixer) == 2 * (3 + 9 + 27) * 2
    for seed in range(20):
        values = random_values(mixer, seed)
        least, column = compiled(mixer, values).minimum()
        every = [by_lowering(mixer, values, c) for c in population.T]
        assert least == pytest.approx(min(every), rel=1e-12, abs=1e-12)
        assert (population[:, int(np.argmin(every))] == column).all()


@pytest.mark.parametrize("n", [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_chunks_join_without_a_seam(mixer, n):
    cost = compiled(mixer, random_values(mixer))
    population = sample(mixer, 50, np.random.default_rng(0))
    many = population[:, np.arange(n) % 50]
    expected = cost(population)[np.arange(n) % 50]
    assert cost(many).shape == (n,)
    assert (cost(many) == expected).all()
    assert (cost(np.asfortranarray(many)) == expected).all()


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((6, 3), np.int64), np.zeros((6, 3), np.int8), np.zeros((6, 3), float), np.zeros((5, 3), np.uint8)],
)
def test_what_is_no_population_is_refused(mixer, wrong):
    with pytest.raises(UsageError, match=r"A population of mixer is uint8\[6, n\]"):
        compiled(mixer, random_values(mixer))(wrong)


def test_a_population_is_not_changed_by_being_scored(mixer):
    population = sample(mixer, 20, np.random.default_rng(0))
    before = population.copy()
    compiled(mixer, random_values(mixer))(population)
    assert (population == before).all()


class Wide:
    """Many choices per gene: indices that do not fit a byte, and tables too large to be merged."""

    name = "wide"
    genes = (Gene("a", tuple(range(1, 102))), Gene("b", tuple(range(1, 51))), *per_layer("c", tuple(range(1, 9)), 3))

    def lower(self, arch: Lowering) -> Workload:
        arch.input(Tensor("x", (1, 4)))
        x = arch.add("both", "linear", "x", tokens=1, **{"in": arch["a"]}, out=arch["b"])
        x = arch.add("one", "linear", x, tokens=1, **{"in": 3}, out=arch["a"])
        for i in range(3):
            x = arch.add(f"c{i}", "linear", x, tokens=1, **{"in": arch["c", i]}, out=7 * arch["c", (i + 1) % 3])
        return arch.workload(x)


def test_indices_beyond_a_byte_and_cycles_of_genes(monkeypatch):
    space = Wide()
    values = random_values(space)
    cost = compiled(space, values)
    population = sample(space, 400, np.random.default_rng(0))
    population[:, 0] = [len(g.choices) - 1 for g in space.genes]
    expected = np.array([by_lowering(space, values, column) for column in population.T])
    assert cost(population) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    least, column = cost.minimum()
    tail = [by_lowering(space, values, [*column[:2], *c]) for c in itertools.product(range(8), repeat=3)]
    head = [by_lowering(space, values, [a, b, *column[2:]]) for a in range(101) for b in range(50)]
    assert least == pytest.approx(min(tail), rel=1e-12)
    assert least == pytest.approx(min(head), rel=1e-12)
    monkeypatch.setattr(elimination, "MAX_ELIMINATION", 511)
    with pytest.raises(UsageError, match="The minimum over wide is too entangled to compute exactly"):
        cost.minimum()


def test_merging_tables_changes_look_ups_and_nothing_else(mixer, monkeypatch):
    population = sample(mixer, 200, np.random.default_rng(0))
    merged = compiled(mixer, random_values(mixer))
    monkeypatch.setattr(costs, "MERGED_ENTRIES", 0)
    alone = compiled(mixer, random_values(mixer))
    assert merged.lookups == 1
    assert alone.lookups > 3
    assert merged(population) == pytest.approx(alone(population), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_least_of_several_sums_together_is_that_of_every_architecture(mixer, seed):
    rng = np.random.default_rng(seed)
    specs = distinct_specs(mixer)
    sums = [compiled(mixer, dict(zip(specs, rng.random(len(specs)), strict=True))) for _ in range(3)]
    weights = rng.random(3)
    every = np.unique(sample(mixer, 5000, rng), axis=1)
    expected = sum(w * each(every) for w, each in zip(weights, sums, strict=True))
    least, column = least_together(mixer, list(zip(weights, sums, strict=True)))
    assert least == pytest.approx(expected.min())
    assert sum(w * each(column[:, None])[0] for w, each in zip(weights, sums, strict=True)) == pytest.approx(least)


@every_space
def test_a_compiled_maximum_is_the_largest_op_and_its_minimum_the_least_such(space):
    """By lowering; where an op is run several times it counts once."""
    values = random_values(space, seed=3)
    found = CompiledMaximum(space, lambda specs: np.array([values[spec] for spec in specs]))
    population = sample(space, 300, np.random.default_rng(2))
    largest = [max(values[spec] for spec in lower(space, column).counts()) for column in population.T]
    assert found(population).tolist() == largest
    least, column = found.minimum()
    assert found(column[:, None])[0] == least <= min(largest)
    assert valid(space, column[:, None]).all()
    if size(space) <= 1000:
        every = everything(space)
        assert least == found(every[:, valid(space, every)]).min()
