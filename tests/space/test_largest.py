"""The largest architecture of a space: the largest choice of everything, or most work where choices have no order."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.network.op.base import op_of
from hwbench.space import activity
from hwbench.space.largest import largest
from hwbench.space.lowering import lower
from hwbench.space.values import to_values

NAMES = ["autoformer-tiny", "autoformer-small", "autoformer-base", "bert", "nasvit", "nasbench201"]


def macs(space, column) -> float:
    return sum(count * op_of(spec).work(spec).macs for spec, count in lower(space, column).counts().items())


@pytest.mark.parametrize("name", NAMES)
def test_no_architecture_has_more_work(name):
    space = registry.get("space", name)
    most = macs(space, largest(space))
    drawn = activity.sample(space, 50, np.random.default_rng(0))
    assert all(macs(space, column) <= most for column in drawn.T)


def test_it_has_the_largest_choice_of_everything():
    space = registry.get("space", "autoformer-tiny")
    layers = 14
    assert to_values(space, largest(space)) == {
        "embed_dim": 240, "depth": layers, "heads": [4] * layers, "mlp_ratio": [4] * layers,
    }  # fmt: skip


def test_choices_that_add_no_work_count_too():
    space = registry.get("space", "bert")
    values = to_values(space, largest(space))
    for gene in space.genes:
        chosen = values[gene.name] if gene.layer is None else values[gene.name][gene.layer]
        assert chosen == max(gene.choices), gene.label


def test_where_choices_are_names_work_decides():
    space = registry.get("space", "nasbench201")
    assert set(to_values(space, largest(space)).values()) == {"nor_conv_3x3"}
