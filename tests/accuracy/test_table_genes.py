"""Rows as architectures: lists or a column per layer, and what a table of networks may not leave open."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.accuracy.table_genes import genes_of, networks_of
from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.space.values import from_values

SPACE = registry.get("space", "autoformer-cifar10")
ROWS = [
    {"embed_dim": 48, "depth": 3, "heads": [2, 3, 4], "mlp_ratio": [2, 2.5, 3]},
    {"embed_dim": 80, "depth": 4, "heads": [4, 4, 4, 2], "mlp_ratio": [3, 3, 3, 2]},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
EXPECTED = np.stack([from_values(SPACE, row) for row in ROWS])


def test_lists_and_columns_per_layer_say_the_same():
    apart = {name: COLUMNS[name] for name in ("embed_dim", "depth")}
    for name in ("heads", "mlp_ratio"):
        for i in range(5):
            apart[f"{name}[{i}]"] = [row[name][i] if i < len(row[name]) else None for row in ROWS]
    for columns in (COLUMNS, apart):
        np.testing.assert_array_equal(genes_of(SPACE, columns, "mine.csv")[0], EXPECTED)
        np.testing.assert_array_equal(networks_of(SPACE, columns, "mine.csv").T, EXPECTED)


def test_what_does_not_count_may_stand_in_somebodys_table_but_not_in_a_table_of_networks():
    columns = {**COLUMNS, "heads": [[2, 3, 4, 4], COLUMNS["heads"][1]]}
    genes, rewritten = genes_of(SPACE, columns, "mine.csv")
    np.testing.assert_array_equal(genes, EXPECTED)
    assert rewritten.tolist() == [True, False]
    with pytest.raises(
        DataError, match=r"1 of 2 rows are no network of autoformer-cifar10; the first is row 1: heads\[3\] is 4"
    ):
        networks_of(SPACE, columns, "theirs.parquet")


def test_a_list_longer_than_any_network_is_named():
    columns = {**COLUMNS, "heads": [COLUMNS["heads"][0], [4, 4, 4, 2, None, 4]]}
    with pytest.raises(DataError, match="the first is row 2: heads has 6 entries, more than layers"):
        networks_of(SPACE, columns, "theirs.parquet")


def test_a_row_that_the_space_refuses_is_no_network():
    cells = registry.get("space", "nasbench201")
    columns = {gene.name: ["nor_conv_3x3", "none"] for gene in cells.genes}
    with pytest.raises(DataError, match="the first is row 2: nothing leads from its input to its output"):
        networks_of(cells, columns, "cells.parquet")


def test_the_columns_name_in_the_file_is_said():
    columns = {**COLUMNS, "mlp_ratio": [[2, 2.5, 7], COLUMNS["mlp_ratio"][1]]}
    with pytest.raises(DataError, match=r"row 1: ratio\[2\] is 7, which is not one of 2, 2.5, 3"):
        networks_of(SPACE, columns, "theirs.parquet", {"mlp_ratio": "ratio"})
    with pytest.raises(UsageError, match=r"mine.csv, row 1: mlp_ratio\[2\] is 7, which is not one of 2, 2.5, 3"):
        genes_of(SPACE, columns, "mine.csv")


def test_a_table_without_rows_or_with_a_column_missing_is_refused():
    with pytest.raises(UsageError, match="has no rows"):
        genes_of(SPACE, {name: [] for name in COLUMNS}, "mine.csv")
    with pytest.raises(UsageError, match=r"has no column heads\[0\] and 4 more"):
        genes_of(SPACE, {name: column for name, column in COLUMNS.items() if name != "heads"}, "mine.csv")
