"""NAS-Bench-201's cell: what is derived from some hundred recorded lowerings is true of all 15,625 combinations.

The expected side searches the cell's graph for ways on its own. A small space shows the same of optional parts in general.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.network.spec import OpSpec
from hwbench.space.activity import activity, canonical, sample, size, valid
from hwbench.space.base import Gene, per_layer
from hwbench.space.compiled import CompiledSum
from hwbench.space.lowering import Lowering, lower
from hwbench.space.slots import distinct_specs, slots
from hwbench.space.values import from_values, to_values
from hwbench.space.zoo.nasbench201 import Nasbench201

SPACE = registry.get("space", "nasbench201")
OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
STAGES = ((16, 32), (32, 16), (64, 8))
SKELETON = (
    "conv2d(groups=1,height=32,in=3,kernel=3,out=16,padding=1,stride=1,width=32)",
    "reduction_block(height=32,in=16,out=32,width=32)",
    "reduction_block(height=16,in=32,out=64,width=16)",
    "map_head(classes=10,height=8,in=64,width=8)",
)
ALL = np.array(list(itertools.product(range(5), repeat=6)), np.uint8).T
"""Every combination of genes, as a population."""


def reached(edges: set[tuple[int, int]], start: int) -> set[int]:
    """Nodes that can be reached along edges."""
    found = {start}
    for source, target in sorted(edges):
        if source in found:
            found.add(target)
    return found


def counts(column: tuple[int, ...]) -> list[bool]:
    """Which edges are walked by somebody who goes from the input and arrives at the output."""
    there = {edge for edge, op in zip(EDGES, column, strict=True) if OPS[op] != "none"}
    after = reached(there, 0)
    before = {3 - node for node in reached({(3 - target, 3 - source) for source, target in there}, 0)}
    return [edge in there and edge[0] in after and edge[1] in before for edge in EDGES]


@pytest.fixture(scope="module")
def counting() -> np.ndarray:
    """bool[6, 15625]."""
    return np.array([counts(tuple(map(int, column))) for column in ALL.T]).T


def additions(counting: np.ndarray) -> np.ndarray:
    """Additions of a cell: one less than what arrives at each node."""
    ends = np.array([target for _, target in EDGES])
    return sum(np.maximum(counting[ends == node].sum(axis=0) - 1, 0) for node in (1, 2, 3))


def stage_keys(channels: int, side: int) -> dict[str, str]:
    """What may run in a stage -> its op key; `skip_connect` and `none` are no ops."""
    sides = f"height={side},width={side}"
    conv = f"relu_conv_block(height={side},in={channels},kernel={{}},out={channels},stride=1,width={side})"
    return {
        "nor_conv_1x1": conv.format(1),
        "nor_conv_3x3": conv.format(3),
        "avg_pool_3x3": f"average_pool_same(channels={channels},height={side},kernel=3,width={side})",
        "sum": f"map_add(channels={channels},{sides})",
        "zero": f"map_zero(channels={channels},{sides})",
    }


def expected(column: np.ndarray, counting: np.ndarray) -> Counter[str]:
    """Every op key of a network and how often it runs."""
    found = Counter(SKELETON)
    for channels, side in STAGES:
        keys = stage_keys(channels, side)
        for op, on_a_way in zip(column, counting, strict=True):
            if on_a_way and OPS[op] in keys:
                found[keys[OPS[op]]] += 5
        found[keys["sum"]] += 5 * int(additions(counting))
        found[keys["zero"]] += int(not counting.any())
    return +found


def test_a_gene_is_an_edge_and_chooses_its_operation():
    assert tuple(gene.name for gene in SPACE.genes) == tuple(f"op_{i}_{j}" for i, j in EDGES)
    assert {gene.choices for gene in SPACE.genes} == {OPS}


def test_an_edge_that_lies_on_no_way_becomes_none(counting):
    assert (canonical(SPACE, ALL) == np.where(counting, ALL, 0)).all()


def test_9444_networks_and_the_cell_without_a_way(counting):
    different = np.unique(np.where(counting, ALL, 0), axis=1)
    assert size(SPACE) == different.shape[1] == 9445
    assert valid(SPACE, different).sum() == 9444
    assert not valid(SPACE, np.zeros((6, 1), np.uint8))[0]


def test_341_cells_are_no_networks(counting):
    found = valid(SPACE, ALL)
    assert (found == counting.any(axis=0)).all()
    assert (~found).sum() == 341


def test_only_networks_are_drawn():
    drawn = sample(SPACE, 2000, np.random.default_rng(5))
    assert drawn.shape == (6, 2000)
    assert valid(SPACE, drawn).all()
    assert (canonical(SPACE, drawn) == drawn).all()
    assert (drawn == sample(SPACE, 2000, np.random.default_rng(5))).all()
    shares = np.bincount(drawn[3], minlength=5) / 2000  # the edge from input to output always counts
    assert shares == pytest.approx([(1 / 5 - 341 / 15625) * 15625 / 15284, *[15625 / 15284 / 5] * 4], abs=0.03)


def test_architectures_of_a_space_that_refuses_none_are_networks():
    space = registry.get("space", "autoformer-tiny")
    assert valid(space, sample(space, 7, np.random.default_rng(0))).tolist() == [True] * 7


def test_a_network_holds_the_ops_on_ways_in_all_five_cells_of_a_stage(counting):
    for i in np.random.default_rng(2).choice(ALL.shape[1], 100, replace=False):
        found = {spec.key: n for spec, n in lower(SPACE, ALL[:, i]).counts().items()}
        assert found == expected(ALL[:, i], counting[:, i])


def test_cells_without_a_way_lower_to_zeros(counting):
    for i in np.flatnonzero(~counting.any(axis=0))[::20]:
        nodes = [node.name for node in lower(SPACE, ALL[:, i]).network.nodes]
        assert nodes == ["stem", "stage0.zero", "reduction1", "stage1.zero", "reduction2", "stage2.zero", "head"]


def test_the_compiled_cost_of_every_combination_is_the_sum_of_its_ops(counting):
    specs = distinct_specs(SPACE)
    value = dict(zip((s.key for s in specs), np.random.default_rng(0).normal(1.0, 0.5, len(specs)), strict=True))

    def op_value(asked: list[OpSpec]) -> np.ndarray:
        return np.array([value[s.key] for s in asked])

    total = np.full(ALL.shape[1], sum(value[key] for key in SKELETON))
    for channels, side in STAGES:
        keys = stage_keys(channels, side)
        of_op = np.array([value[keys[op]] if op in keys else 0.0 for op in OPS])
        total += 5 * (of_op[ALL] * counting).sum(axis=0) + 5 * value[keys["sum"]] * additions(counting)
        total += value[keys["zero"]] * ~counting.any(axis=0)
    assert CompiledSum(SPACE, op_value)(ALL) == pytest.approx(total, rel=1e-12)


def test_the_table_of_the_space_has_19_rows():
    found = {spec.key for spec in distinct_specs(SPACE)}
    assert found == {*SKELETON, *(key for stage in STAGES for key in stage_keys(*stage).values())}
    assert len(found) == 4 + 3 * 5


class Counted(Nasbench201):
    name = "counted"
    lowered = 0

    def lower(self, arch: Lowering) -> Workload:
        self.lowered += 1
        return super().lower(arch)


def test_what_cannot_be_told_apart_is_not_lowered_twice():
    space = Counted()
    activity(space)
    assert space.lowered <= 64 + 8 * 5 + 24 + 20  # which edges are there; what an edge is, among its companions; draws
    slots(space)
    assert space.lowered < 300


def test_an_architecture_states_all_six_edges():
    column = np.array([3, 0, 0, 1, 4, 0], np.uint8)
    stated = {
        "op_0_1": "nor_conv_3x3", "op_0_2": "none", "op_1_2": "none",
        "op_0_3": "skip_connect", "op_1_3": "avg_pool_3x3", "op_2_3": "none",
    }  # fmt: skip
    assert to_values(SPACE, column) == stated
    assert from_values(SPACE, stated).tolist() == column.tolist()
    with pytest.raises(UsageError, match=r"'op_2_3' is nor_conv_1x1, but only none is active"):
        from_values(SPACE, {**stated, "op_2_3": "nor_conv_1x1"})
    with pytest.raises(UsageError, match=r"'op_0_3' is missing"):
        from_values(SPACE, {name: op for name, op in stated.items() if name != "op_0_3"})


def test_other_images_and_classes():
    network = lower(registry.get("space", "nasbench201:image=16,classes=120"), [3] * 6).network
    assert network.inputs[0].shape == (3, 16, 16)
    assert network.nodes[-1].spec.key == "map_head(classes=120,height=4,in=64,width=4)"
    with pytest.raises(UsageError, match="image=30 cannot be halved twice"):
        registry.get("space", "nasbench201:image=30")


class Pairs:
    """Layers of two optional halves: a half alone does nothing; two of them act, and how wide depends on `width`."""

    name = "pairs"
    genes = (
        Gene("width", (4, 8)),
        Gene("depth", (0, 1, 2)),
        *per_layer("left", ("nothing", "gelu", "relu"), 2),
        *per_layer("right", ("nothing", "gelu", "relu", "silu"), 2),
    )

    def lower(self, arch: Lowering) -> Workload:
        arch.input(Tensor("x", (3, 4)))
        x = arch.add("stem", "linear", "x", tokens=3, **{"in": 4}, out=arch["width"])
        for i in arch.repeat("depth"):
            halves = (("left", i), ("right", i))
            there = [arch.present(half) for half in halves]
            if not any(there):
                arch.refuse()
            if all(there):
                for half in halves:
                    with arch.under(*halves), arch.choose(half) as op:
                        x = arch.add(f"{half[0]}{i}", op, x, tokens=3, dim=arch["width"])
        return arch.workload(x)


@pytest.fixture(scope="module")
def pairs() -> tuple[Pairs, np.ndarray]:
    space = Pairs()
    return space, np.array(list(itertools.product(*(range(len(g.choices)) for g in space.genes))), np.uint8).T


def test_optional_parts_count_where_somebody_asks_what_they_are(pairs):
    space, everything = pairs
    depth, left, right = everything[1], everything[2:4], everything[4:6]
    acts = (left > 0) & (right > 0) & (np.arange(2)[:, None] < depth)
    expected = np.concatenate([everything[:2], np.where(acts, left, 0), np.where(acts, right, 0)])
    assert (canonical(space, everything) == expected).all()
    assert size(space) == len({tuple(column) for column in expected.T}) == 2 * (1 + 7 + 7 * 7)
    refused = ((left == 0) & (right == 0) & (np.arange(2)[:, None] < depth)).any(axis=0)
    assert (valid(space, everything) == ~refused).all()


def test_a_slot_of_an_optional_part_answers_what_lowering_answers(pairs):
    space, everything = pairs
    labels = {slot.node: [space.genes[g].label for g in slot.genes] for slot in slots(space)}
    assert labels["stem"] == ["width"]
    assert labels["right1"] == ["width", "depth", "left[1]", "right[1]"]
    for column in everything.T:
        plain = {node.name: node.spec for node in lower(space, column).network.nodes}
        at = {slot.node: np.ravel_multi_index(tuple(column[list(slot.genes)]), slot.shape) for slot in slots(space)}
        found = {slot.node: slot.specs[at[slot.node]] for slot in slots(space)}
        assert {node: spec for node, spec in found.items() if spec is not None} == plain


class Nothing(Pairs):
    """Refuses everything."""

    name = "nothing"

    def lower(self, arch: Lowering) -> Workload:
        arch.refuse()
        return super().lower(arch)


def test_a_space_without_networks_is_told_so():
    with pytest.raises(UsageError, match="Space nothing: none of its architectures is a network"):
        sample(Nothing(), 1, np.random.default_rng(0))


def test_an_optional_part_the_space_does_not_list_is_refused(pairs):
    arch = Lowering(pairs[0], [0] * 6)
    with pytest.raises(UsageError, match="reads the gene middle, which it does not list"):
        arch.present("middle")
    with pytest.raises(UsageError, match="reads the gene middle, which it does not list"), arch.choose("middle"):
        pass
