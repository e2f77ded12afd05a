"""The benchmark table and the search space of NAS-Bench-201 mean the same cells."""

from __future__ import annotations

import itertools

import numpy as np

from hwbench.accuracy.benchmark import nasbench201 as table
from hwbench.core import registry
from hwbench.space.activity import valid

SPACE = registry.get("space", "nasbench201")


def test_genes_and_choices_are_those_of_the_table():
    assert tuple(gene.name for gene in SPACE.genes) == table.EDGES
    assert {gene.choices for gene in SPACE.genes} == {table.OPS}


def test_the_cells_that_are_no_networks_are_those_of_the_table():
    cells = np.array(list(itertools.product(range(5), repeat=6)), np.uint8)
    assert (valid(SPACE, cells.T) == table.connected(cells)).all()
