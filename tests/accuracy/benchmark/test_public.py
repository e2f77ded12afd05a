"""The public tables themselves: how many networks they hold, and their own parameters beside those hwbench counts.

What was found: NAS-Bench-BERT's column of parameters is right only for networks of width 256 whose feed-forwards are all 1,024
wide; it calls every other one larger than it is. NAS-Bench-NLP's follow from the graphs of its cells to the last parameter.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.accuracy import public_table
from hwbench.accuracy.benchmark.base import proxy_table
from hwbench.accuracy.benchmark.nasbench_nlp import FILE, GENES_OF_A_NODE, NODES, OPS, SOURCES, encoded
from hwbench.core import registry
from hwbench.network.work import parameter_count
from hwbench.space.compiled import CompiledSum

TABLES = Path(os.environ.get("HWBENCH_TABLES", Path(hwbench.__file__).parents[2] / "shared" / "tables"))
pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="the public tables are not here")
EMBEDDING, HIDDEN, LAYERS, WORDS = 400, 600, 3, 33_278
"""Of the language models NAS-Bench-NLP trained on WikiText-2; embeddings and decoder share their weights."""


@pytest.mark.parametrize(
    ("name", "networks"), [("vitbench-autoformer", 100), ("vitbench-pit", 60), ("nasbench-bert", 392), ("nasbench-nlp", 224)]
)
def test_every_row_is_a_network_and_those_that_are_the_same_count_once(name, networks):
    rows = registry.get("benchmark", name).read(TABLES)
    assert len(rows) == networks
    assert np.isnan(rows.accuracy).sum() == (3 if name == "nasbench-nlp" else 0)


def test_parameters_published_with_nasbench_bert_ignore_width():
    bert = proxy_table("nasbench-bert", TABLES)

    def encoder(specs):
        return np.array([0 if spec.op == "pooled_head" else parameter_count(spec) for spec in specs], float)

    counted, published = CompiledSum(bert.space, encoder)(bert.population), bert.published["number_of_parameters"]
    labels = [gene.label for gene in bert.space.genes]
    wide = bert.population[labels.index("hidden_size")] == 1
    depth = np.array([2, 4])[bert.population[labels.index("depth")]]
    for i in range(4):
        wide &= (bert.population[labels.index(f"ffn_dim[{i}]")] == 1) | (i >= depth)
    assert wide.sum() > 10
    np.testing.assert_array_equal(counted[wide], published[wide])
    assert (published[~wide] > counted[~wide]).all()


def test_parameters_published_with_nasbench_nlp_are_those_of_the_graphs():
    """Every linear node has a matrix per input and one bias, in three layers of 400 to 600, 600 to 600 and 600 to 400."""
    rows = registry.get("benchmark", "nasbench-nlp").read(TABLES)
    sizes = [(EMBEDDING, HIDDEN), *[(HIDDEN, HIDDEN)] * (LAYERS - 2), (HIDDEN, EMBEDDING)]
    counted = np.full(len(rows), WORDS * EMBEDDING + WORDS, float)
    for node in range(NODES):
        op, *inputs = (rows.genes[:, node * GENES_OF_A_NODE + i].astype(int) for i in range(GENES_OF_A_NODE))
        linear = op == 1 + OPS.index("linear")
        for given, made in sizes:
            matrices = sum(np.where(each == 1 + SOURCES.index("x"), given, made) * (each > 0) for each in inputs)
            counted += linear * (matrices * made + made)
    np.testing.assert_array_equal(counted, (rows.costs["params_m"] * 1e6).round())


def test_runs_of_one_cell_have_the_same_parameters_and_nearly_the_same_loss():
    table = public_table.read(TABLES / FILE, ("recipe", "status", "num_params", "val_losses"), ("recipe_id",))
    data = {name: table.values(name) for name in table.data.column_names}
    cells: dict[tuple[int, ...], list[int]] = {}
    for row, text in enumerate(data["recipe"]):
        cells.setdefault(tuple(encoded(json.loads(text))), []).append(row)
    twice = [rows for rows in cells.values() if len(rows) > 1 and data["status"][rows[0]] == "OK"]
    assert len(twice) > 20
    assert all(len({data["num_params"][row] for row in rows}) == 1 for rows in twice)
    spreads = [np.ptp([data["val_losses"][row][-1] for row in rows]) for rows in twice]
    assert np.median(spreads) < 0.02 < 0.5 < np.ptp([losses[-1] for losses in data["val_losses"] if len(losses) == 50])
