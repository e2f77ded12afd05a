"""Choices that decide other choices: found exactly, whatever their number, and never silently left out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.space.activity import active, canonical, sample, size, valid
from hwbench.space.base import Gene, per_layer
from hwbench.space.compiled import CompiledSum
from hwbench.space.lowering import Lowering, lower, plain
from hwbench.space.record import record
from hwbench.space.slots import distinct_specs, slots
from hwbench.testing.space import SpaceContract, columns, plain_canonical
from hwbench.testing.space import read as seen

from .operations import OPERATIONS, Operations

LARGE = Operations()


class TestOperations(SpaceContract):
    part = LARGE


def test_24_layers_of_26_operations_take_few_lowerings():
    """Work grows with the states of one layer (3 depths x 26 operations), not with the product of layers."""
    assert len(OPERATIONS) == 26
    assert len(record(LARGE).lowered) < 3 * 26 * 2
    assert len(slots(LARGE)) == 1 + 3 * 24


def test_the_size_of_24_layers_of_26_operations_is_exact():
    shared, plain_ways = 4, 2 + 8 * 3 + 15 * 4  # ways of a layer that reads `shared`, and that does not
    ways = sum(plain_ways**d + 3 * ((plain_ways + shared) ** d - plain_ways**d) for d in (12, 23, 24))
    assert size(LARGE) == 2 * ways


def test_what_several_layers_may_read_counts_where_one_does():
    population = sample(LARGE, 2000, np.random.default_rng(0))
    labels = [gene.label for gene in LARGE.genes]
    there = np.arange(24)[:, None] < np.array([12, 23, 24])[population[labels.index("depth")]]
    first = labels.index("operation[0]")
    reads = ((population[first : first + 24] == OPERATIONS.index("ffn-7")) & there).any(axis=0)
    assert 0 < reads.sum() < 2000
    assert (active(LARGE, [labels.index("shared")], population)[0] == reads).all()


def test_the_compiled_cost_of_24_layers_of_26_operations_and_its_minimum():
    values = dict(zip(distinct_specs(LARGE), np.random.default_rng(1).normal(size=len(distinct_specs(LARGE))), strict=True))
    cost = CompiledSum(LARGE, lambda specs: np.array([values[spec] for spec in specs]))
    population = sample(LARGE, 200, np.random.default_rng(2))
    plainly = [sum(n * values[spec] for spec, n in lower(LARGE, column).counts().items()) for column in population.T]
    assert cost(population) == pytest.approx(plainly, abs=1e-12)
    least, column = cost.minimum()
    assert cost(column[:, None])[0] == pytest.approx(least)
    assert least < cost(sample(LARGE, 20_000, np.random.default_rng(3))).min()


@pytest.mark.parametrize("operations", [OPERATIONS[:4], ("skip", "attention-2", "ffn-7", "skip-too")])
def test_a_small_space_of_operations_is_what_brute_force_says(operations):
    space = Operations(2, operations)
    if not any(op.startswith("ffn") for op in operations):
        with pytest.raises(UsageError, match=r"nothing reads ratio\[0\], ratio\[1\], whatever is chosen"):
            size(space)
        return
    everything = np.array(list(itertools.product(*(range(len(g.choices)) for g in space.genes))), np.uint8).T
    forms = canonical(space, everything)
    seen: dict[bytes, Workload] = {}
    for column, form in zip(everything.T[::7], forms.T[::7], strict=True):
        assert lower(space, column) == seen.setdefault(form.tobytes(), lower(space, form))
    assert size(space) == len(np.unique(forms, axis=1).T)


def test_nine_layers_of_four_operations_are_counted():
    """All of them decide; their product was refused once."""
    space = Operations(9, ("skip", "attention-2", "ffn-3", "activation"))
    assert size(space) == 2 * sum((2 + 3 + 4) ** d for d in (4, 8, 9))


class Small:
    name = "small"

    def __init__(self, body, *genes: Gene) -> None:
        self.genes, self.body = genes, body

    def lower(self, arch: Lowering) -> Workload:
        arch.input(Tensor("x", (3, 4)))
        return arch.workload(self.body(arch))


WORDS = ("a", "b", "c", "d", "e", "f", "g")


def rare(arch: Lowering) -> str:
    x = arch.add("stem", "gelu", "x", tokens=3, dim=4)
    with arch.choose("kind") as kind:
        if kind == "b":
            x = arch.add("wide", "ffn_block", x, tokens=3, dim=4, hidden=arch["hidden"], activation="gelu", norm="pre")
    return x


def test_a_gene_read_under_one_choice_alone_is_found():
    """Neither the first, the middle nor the last; and no other node depends on it."""
    space = Small(rare, Gene("kind", WORDS), Gene("hidden", (4, 8, 12)))
    assert size(space) == 6 + 3
    assert {slot.node: slot.genes for slot in slots(space)} == {"stem": (), "wide": (0, 1)}
    assert len(distinct_specs(space)) == 1 + 3


def leaking(arch: Lowering) -> str:
    with arch.choose("kind") as kind:
        pass
    hidden = arch["hidden"] if kind == "b" else 4
    return arch.add("only", "ffn_block", "x", tokens=3, dim=4, hidden=hidden, activation="gelu", norm="pre")


def unwrapping(arch: Lowering) -> str:
    hidden = 4 * arch["hidden"] if plain(arch["kind"]) == "b" else 4
    return arch.add("only", "ffn_block", "x", tokens=3, dim=4, hidden=hidden, activation="gelu", norm="pre")


def hiding(arch: Lowering) -> str:
    """Both are always read, one of them through its plain value."""
    hidden = plain(arch["hidden"]) * (2 if plain(arch["kind"]) == "b" else 1)
    return arch.add("only", "ffn_block", "x", tokens=3, dim=4, hidden=hidden, activation="gelu", norm="pre")


def deaf(arch: Lowering) -> str:
    return arch.add("only", "ffn_block", "x", tokens=3, dim=4, hidden=4, activation=arch["kind"], norm="pre")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (leaking, "hidden is read in some architectures and not in others, and the record says that nothing decides it"),
        (unwrapping, "hidden is read in some architectures and not in others, and the record says that nothing decides it"),
        (hiding, "node only is .* and the record says that nothing decides it; branch inside arch.choose"),
        (deaf, "nothing reads hidden, whatever is chosen"),
    ],
)
def test_a_record_that_misses_a_gene_is_an_error(body, message):
    kinds = ("gelu", "relu", "silu") if body is deaf else WORDS
    with pytest.raises(UsageError, match=f"Space small: .*{message}"):
        slots(Small(body, Gene("kind", kinds), Gene("hidden", (4, 8, 12))))


def careless(arch: Lowering) -> str:
    """What both sides decide is added under neither."""
    left, right = arch.present("left"), arch.present("right")
    x = arch.add("stem", "gelu", "x", tokens=3, dim=4)
    if left and right:
        with arch.choose("left") as op:
            x = arch.add("left", op, x, tokens=3, dim=4)
        with arch.choose("right") as op:
            x = arch.add("right", op, x, tokens=3, dim=4)
    return x


def test_what_an_optional_part_decides_must_stand_under_it():
    sides = (Gene("left", ("none", "gelu", "relu")), Gene("right", ("none", "gelu", "relu")))
    with pytest.raises(UsageError, match="left is read in some architectures and not in others, and the record says that left"):
        canonical(Small(careless, *sides), np.zeros((2, 1), np.uint8))


def test_optional_parts_of_many_layers_are_local():
    """24 layers, each refused without any of its two sides: 4 ways less one each."""

    def body(arch: Lowering) -> str:
        x = arch.add("stem", "gelu", "x", tokens=3, dim=4)
        for i in arch.repeat("depth"):
            there = [side for side in ("left", "right") if arch.present((side, i))]
            if not there:
                arch.refuse()
            for side in there:
                with arch.under((side, i)), arch.choose((side, i)) as op:
                    x = arch.add(f"{side}{i}", op, x, tokens=3, dim=4)
        return x

    sides = ("none", "gelu", "relu")
    space = Small(body, Gene("depth", (12, 24)), *per_layer("left", sides, 24), *per_layer("right", sides, 24))
    assert size(space) == 9**12 + 9**24
    population = np.random.default_rng(0).integers(0, 3, (49, 5000)).astype(np.uint8)
    population[0] %= 2
    there = np.arange(24)[:, None] < np.array([12, 24])[population[0]]
    refused = ((population[1:25] == 0) & (population[25:] == 0) & there).any(axis=0)
    assert (valid(space, population) == ~refused).all()
    cost = CompiledSum(space, lambda specs: np.ones(len(specs)))
    assert cost.minimum()[0] == 1 + 12  # every layer that is there needs a side


class Drawn:
    """A space of random code: ops, branches on genes and loops inside each other, genes read at several places."""

    name = "drawn"

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.genes = tuple(Gene(f"g{i}", tuple(range(1, 2 + int(n)))) for i, n in enumerate(rng.integers(1, 4, 5)))
        self.program = self._block(rng, 3)

    def _block(self, rng: np.random.Generator, deep: int) -> list[tuple]:
        steps = []
        for _ in range(int(rng.integers(1, 4))):
            gene = self.genes[int(rng.integers(len(self.genes)))]
            kind = str(rng.choice(["add", "choose", "repeat"])) if deep else "add"
            if kind == "choose":
                branches = {choice: self._block(rng, deep - 1) for choice in gene.choices if rng.random() < 0.6}
                steps.append((kind, gene.name, branches))
            elif kind == "repeat":
                steps.append((kind, gene.name, self._block(rng, deep - 1)))
            else:
                steps.append((kind, gene.name, None))
        return steps

    def lower(self, arch: Lowering) -> Workload:
        arch.input(Tensor("x", (1, 4)))
        return arch.workload(self._run(arch, arch.add("stem", "gelu", "x", tokens=1, dim=4), "n", self.program))

    def _run(self, arch: Lowering, x: str, name: str, steps: list[tuple]) -> str:
        for number, (kind, gene, inner) in enumerate(steps):
            here = f"{name}.{number}"
            if kind == "add":
                x = arch.add(here, "ffn_block", x, tokens=1, dim=4, hidden=arch[gene], activation="gelu", norm="pre")
            elif kind == "choose":
                with arch.choose(gene) as value:
                    x = self._run(arch, x, f"{here}{value}", inner.get(value, []))
            else:
                for i in arch.repeat(gene):
                    x = self._run(arch, x, f"{here}x{i}", inner)
        return x


@pytest.mark.parametrize("seed", range(40))
def test_a_space_of_random_code_is_what_brute_force_says(seed):
    space = Drawn(seed)
    everything = np.array(list(itertools.product(*(range(len(g.choices)) for g in space.genes))), np.uint8).T
    forms = [plain_canonical(space, column) for column in everything.T]
    read = np.array([seen(space, column) for column in everything.T]).any(axis=0)
    if not read.all():
        with pytest.raises(UsageError, match="nothing reads "):
            canonical(space, everything)
        return
    assert columns(canonical(space, everything)) == forms
    assert size(space) == len(set(forms))
    for column in everything.T[:: max(1, everything.shape[1] // 60)]:
        plainly = {node.name: node.spec for node in lower(space, column).network.nodes}
        at = {
            slot.node: np.ravel_multi_index(tuple(column[list(slot.genes)]), slot.shape) if slot.genes else 0
            for slot in slots(space)
        }
        found = {slot.node: slot.specs[at[slot.node]] for slot in slots(space)}
        assert {name: spec for name, spec in found.items() if spec is not None} == plainly


def test_most_spaces_of_random_code_read_all_their_genes():
    """So that the test above tests something."""
    assert sum(all(seen(Drawn(s), [len(g.choices) - 1 for g in Drawn(s).genes])) for s in range(40)) >= 8
