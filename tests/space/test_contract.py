"""One suite over every registered space: what hwbench derives from recorded lowerings is what plain lowering says.

A small space with nested `repeat` is enumerated completely, so size, canonical form and op list are checked by brute force.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.space.activity import canonical, size
from hwbench.space.base import Gene, per_layer
from hwbench.space.lowering import Lowering, Traced, lower
from hwbench.space.slots import distinct_specs, slots
from hwbench.space.values import from_values
from hwbench.testing.base import suites
from hwbench.testing.space import SpaceContract, columns, plain_canonical, sizes


class Nested:
    """Stages that may be missing, and blocks in them that may be missing."""

    name = "nested"
    genes = (
        Gene("width", (4, 8)),
        Gene("stages", (0, 1, 2)),
        *per_layer("blocks", (1, 2), 2),
        *per_layer("hidden", (16, 24), 4),
        Gene("last", ("gelu", "relu")),
    )

    def lower(self, arch: Lowering) -> Workload:
        arch.input(Tensor("x", (3, 4)))
        width = arch["width"]
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=width)
        for stage in arch.repeat("stages"):
            for block in arch.repeat(("blocks", stage)):
                hidden = arch["hidden", 2 * stage + block] + width * (stage + 1)
                x = arch.add(
                    f"s{stage}b{block}", "ffn_block", x, tokens=3, dim=width, hidden=hidden, activation="gelu", norm="pre"
                )
        return arch.workload(
            arch.add("last", "ffn_block", x, tokens=3, dim=width, hidden=4, activation=arch["last"], norm="post")
        )


NESTED = Nested()


globals().update(suites("space"))


class TestNested(SpaceContract):
    part = NESTED


TINY = {"embed_dim": 216, "depth": 12, "heads": [3] * 11 + [4], "mlp_ratio": [3.5, *[4] * 11]}


def test_an_architecture_given_as_values_is_the_one_that_is_lowered():
    space = registry.get("space", "autoformer-tiny")
    counts = lower(space, from_values(space, TINY)).counts()
    attention = {spec["heads"]: n for spec, n in counts.items() if spec.op == "attention_block"}
    ffn = {spec["hidden"]: n for spec, n in counts.items() if spec.op == "ffn_block"}
    assert attention == {3: 11, 4: 1}
    assert ffn == {756: 1, 864: 11}
    assert {spec["dim"] for spec in counts} == {216}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 3}, "unknown entry 'width'; it has embed_dim, depth, heads, mlp_ratio"),
        ({"depth": ...}, "'depth' is missing"),
        ({"embed_dim": ...}, "'embed_dim' is missing"),
        ({"heads": ...}, "'heads' must be a list"),
        ({"heads": 3}, "'heads' must be a list"),
        ({"heads": [3] * 11}, "'heads' has 11 values, needs 12"),
        ({"heads": [3] * 13}, "'heads' has 13 values, needs 12"),
        ({"heads": [3] * 40}, "'heads' has 40 values, needs 12"),
        ({"depth": 13}, "'heads' has 12 values, needs 13"),
        ({"depth": 11}, "depth = 11 is not one of [12, 13, 14]"),
        ({"embed_dim": "192"}, "embed_dim = '192' is not one of"),
        ({"embed_dim": [192]}, "embed_dim = [192] is not one of"),
        ({"heads": [3] * 11 + [5]}, "heads[11] = 5 is not one of [3, 4]"),
        ({"depth": None}, "'depth' is missing"),
        ({"heads": [3] * 11 + [None]}, "'heads' is"),
    ],
)
def test_values_outside_the_space_are_refused_with_a_reason(change, message):
    values = {name: value for name, value in {**TINY, **change}.items() if value is not ...}
    with pytest.raises(UsageError) as error:
        from_values(registry.get("space", "autoformer-tiny"), values)
    assert message in str(error.value)
    assert "autoformer-tiny" in str(error.value)


@pytest.fixture(scope="module")
def everything() -> np.ndarray:
    return np.array(list(itertools.product(*(range(n) for n in sizes(NESTED)))), np.uint8).T


def test_brute_force_finds_the_same_size_and_the_same_ops(everything):
    assert columns(canonical(NESTED, everything)) == [plain_canonical(NESTED, column) for column in everything.T]
    different = {plain_canonical(NESTED, column) for column in everything.T}
    assert size(NESTED) == len(different)
    # width and last: 2 * 2; a stage has one block (2 ways) or two (4 ways); no, one or two stages.
    assert size(NESTED) == 2 * 2 * (1 + 6 + 6 * 6)
    assert set(distinct_specs(NESTED)) == {spec for column in different for spec in lower(NESTED, column).network.specs}


def test_an_op_depends_on_the_genes_it_read_and_those_that_let_it_exist():
    labels = {slot.node: {NESTED.genes[g].label for g in slot.genes} for slot in slots(NESTED)}
    assert labels == {
        "stem": {"width"},
        "s0b0": {"width", "stages", "hidden[0]"},
        "s0b1": {"width", "stages", "blocks[0]", "hidden[1]"},
        "s1b0": {"width", "stages", "hidden[2]"},
        "s1b1": {"width", "stages", "blocks[1]", "hidden[3]"},
        "last": {"width", "last"},
    }


def test_arithmetic_remembers_every_gene():
    a, b = Traced(7, frozenset({1})), Traced(3, frozenset({2}))
    for result, value in [(a + b, 10), (a - b, 4), (a * b, 21), (a // b, 2)]:
        assert (result.value, result.genes) == (value, {1, 2})
    for result, value in [(a + 1, 8), (1 + a, 8), (a - 1, 6), (a * 0.5, 3.5), (2 * a, 14), (a // 2, 3), (15 // a, 2)]:
        assert (result.value, result.genes) == (value, {1})


@pytest.mark.parametrize(
    "hide",
    [
        bool, int, float, range, list(range(9)).__getitem__, lambda t: not t, lambda t: max(t, 8),
        lambda t: t < 8, lambda t: t <= 8, lambda t: t > 8, lambda t: t >= 8,
        lambda t: t == 7, lambda t: t != 7,
    ],
)  # fmt: skip
def test_what_would_hide_a_dependency_is_refused(hide):
    with pytest.raises(UsageError, match="compared or looped over"):
        hide(Traced(7, frozenset({1})))


class Small:
    """A space made of whatever a test needs."""

    name = "small"

    def __init__(self, genes: tuple[Gene, ...], body) -> None:
        self.genes, self.body = genes, body

    def lower(self, arch: Lowering) -> Workload:
        return self.body(arch)


def test_a_space_that_is_written_wrongly_is_told_so():
    gene = (Gene("width", (4, 8)),)
    with pytest.raises(UsageError, match="reads the gene depth, which it does not list"):
        lower(Small(gene, lambda arch: arch["depth"]), [0])
    with pytest.raises(UsageError, match=r"must call arch.input\(...\) before"):
        lower(Small(gene, lambda arch: arch.add("a", "gelu", "x", tokens=1, dim=arch["width"])), [0])
    for choices in ((), tuple(range(256))):
        with pytest.raises(UsageError, match="1 to 255 choices"):
            size(Small((Gene("width", choices),), None))


def entangled(parts: int, *, control: bool) -> Small:
    """Each of many two-valued genes decides whether all that follows exists (control), or all of them size one op."""

    def body(arch: Lowering) -> Workload:
        arch.input(Tensor("x", (1, 4)))
        width = 4
        with ExitStack() as nested:
            for i in range(parts):
                width = width + (nested.enter_context(arch.choose(("g", i))) if control else arch["g", i])
            return arch.workload(arch.add("last", "linear", "x", tokens=1, **{"in": 4}, out=width))

    return Small(per_layer("g", (0, 1), parts), body)


@pytest.mark.parametrize("parts", [20, 64])
def test_a_space_too_entangled_to_compile_is_refused(parts):
    with pytest.raises(UsageError, match="states decide which genes are active"):
        size(entangled(parts, control=True))
    with pytest.raises(UsageError, match=r"node last depends on .* too many combinations"):
        slots(entangled(parts, control=False))
