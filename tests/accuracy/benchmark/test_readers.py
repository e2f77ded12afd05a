"""Readers of public tables: rows become the networks they were written from, and what is wrong is named by row and column."""

from __future__ import annotations

import json

import numpy as np
import public_tables
import pyarrow.parquet as pq
import pytest

from hwbench.accuracy.benchmark.base import proxy_table
from hwbench.accuracy.benchmark.nasbench_nlp import GENES_OF_A_NODE, OPS, SOURCES, encoded
from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.space.values import from_values, to_values

SPACES = {"vitbench-autoformer": "autoformer-tiny", "vitbench-pit": "pit-ti", "nasbench-bert": "nasbench-bert"}
FILES = {
    "vitbench-autoformer": "vitbench_autoprox/autoformer.parquet",
    "vitbench-pit": "vitbench_autoprox/pit.parquet",
    "nasbench-bert": "nasbench_bert/architectures.parquet",
    "nasbench-nlp": "nasbench_nlp/wikitext2_runs.parquet",
}


@pytest.mark.parametrize("name", SPACES)
def test_rows_are_the_networks_they_were_written_from(name):
    table = proxy_table(name, public_tables.folder())
    written = public_tables.drawn(SPACES[name])
    assert (table.name, len(table)) == (name, public_tables.N)
    assert table.space is registry.get("space", SPACES[name])
    for column, values in zip(table.population.T, written, strict=True):
        np.testing.assert_array_equal(column, from_values(table.space, values))


@pytest.mark.parametrize("name", SPACES)
def test_cells_share_depth_and_width(name):
    table = proxy_table(name, public_tables.folder())
    values = [to_values(table.space, column) for column in table.population.T]
    if name == "vitbench-pit":
        expected = [(each["base_dim"], sum(each["depth"])) for each in values]
    else:
        expected = [(each.get("embed_dim", each.get("hidden_size")), each["depth"]) for each in values]
    groups = {cell: {e for c, e in zip(table.cells, expected, strict=True) if c == cell} for cell in table.cells}
    assert all(len(each) == 1 for each in groups.values())
    assert len(groups) == len(set(expected))


def test_variants_are_the_accuracies_and_without_one_the_mean_of_those_with_a_teacher():
    folder = public_tables.folder()
    for networks in ("autoformer", "pit"):
        table = proxy_table(f"vitbench-{networks}", folder)
        for name, values in table.accuracies.items():
            if name != "kd-mean":
                read = registry.get("benchmark", f"vitbench-{networks}-{name}").read(folder)
                np.testing.assert_array_equal(read.accuracy, values)
        mean = registry.get("benchmark", f"vitbench-{networks}").read(folder).accuracy
        parts = [table.accuracies[f"{data}-kd"] for data in ("c100", "flower", "chaoyang")]
        np.testing.assert_allclose(mean, sum(parts) / 3)
    assert "imagenet-super" in proxy_table("vitbench-autoformer-c100-base", folder).accuracies
    assert "imagenet-super" not in proxy_table("vitbench-pit", folder).accuracies


def test_published_scores_come_with_the_networks():
    table = proxy_table("nasbench-bert-cola", public_tables.folder())
    np.testing.assert_array_equal(table.published["lpzero"], np.arange(public_tables.N) * 7 % public_tables.N)
    assert set(table.accuracies) == {"glue", "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst", "sts"}


def test_our_own_table_has_every_accuracy_and_every_seed_of_all_its_networks():
    import own_table

    table = proxy_table("autoformer-cifar10-test", own_table.folder())
    assert set(table.accuracies) == {"validation", "test", "scratch", "scratch-seed-0", "scratch-seed-1"}
    trained = ~np.isnan(table.accuracies["scratch"])
    assert (len(table), trained.sum()) == (own_table.N, own_table.TRAINED - 1)
    both = (table.accuracies["scratch-seed-0"] + table.accuracies["scratch-seed-1"]) / 2
    np.testing.assert_allclose(both, table.accuracies["scratch"])


def test_a_table_of_what_hwbench_cannot_build_has_no_networks_to_score():
    with pytest.raises(UsageError, match=r"cannot build the networks of nasbench-nlp.*Tables of networks: .*nasbench-bert"):
        proxy_table("nasbench-nlp", public_tables.folder())


# What is wrong is named


def altered(tmp_path, name: str, change):
    """A folder with one table, its columns changed."""
    public_tables.write(tmp_path)
    columns = pq.read_table(tmp_path / FILES[name]).to_pydict()
    change(columns)
    public_tables.save(tmp_path / FILES[name], columns)
    return tmp_path


def setting(column: str, row: int, value):
    def change(columns):
        columns[column][row] = value

    return change


def entry(column: str, row: int, at: int, value):
    def change(columns):
        columns[column][row][at] = value

    return change


def twice(columns):
    for values in columns.values():
        values[5] = values[2]


def shallower(columns):
    row = columns["arch_depth"].index(14)
    assert row == 1
    columns["arch_depth"][row] = 13


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("vitbench-autoformer", entry("arch_num_heads", 6, 2, 9),
         r"autoformer.parquet: 1 of 40 rows are no network of autoformer-tiny; the first is row 7: arch_num_heads\[2\] is 9, "
         "which is not one of 3, 4"),
        ("vitbench-autoformer", setting("arch_hidden_dim", 0, 999), "the first is row 1: arch_hidden_dim is 999, which is not"),
        ("vitbench-autoformer", setting("arch_mlp_ratio", 1, [4.0]), r"row 2: arch_mlp_ratio\[1\] is missing"),
        ("vitbench-autoformer", shallower, r"row 2: arch_num_heads\[13\] is 3, where it has no effect"),
        ("vitbench-autoformer", twice, "rows 3 and 6 are the same network of autoformer-tiny"),
        ("vitbench-pit", setting("arch_num_heads", 9, [8, 2, 2]), r"row 10: arch_num_heads is '8-2-2', which is not one of"),
        ("nasbench-bert", setting("layer1_operation_type", 4, "RNN"), "row 5: layer1_operation_type is 'RNN', which is not"),
        ("nasbench-bert", setting("layer0_num_operation_heads", 4, 3), "row 5: layer0_num_operation_heads is 3, which is not"),
        ("nasbench-bert", setting("score_glue", 4, float("inf")), "row 5: score_glue is inf, which is no finite number"),
        ("nasbench-nlp", setting("recipe", 7, "{"), "row 8: recipe is no JSON"),
        ("nasbench-nlp", setting("recipe", 7, json.dumps({"h_new_0": {"op": "linear", "input": ["a"]}})),
         "row 8: recipe is no cell: h_new_0 waits for an input that never comes"),
        ("nasbench-nlp", setting("recipe", 7, json.dumps({"h_new_0": {"op": "gru", "input": ["x"]}})),
         "row 8: recipe is no cell: gru of 1"),
        ("nasbench-nlp", entry("val_losses", 7, 3, None), "row 8: val_losses lacks epoch 4"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named_with_its_column_and_value(name, change, message, tmp_path):
    with pytest.raises(DataError, match=message) as error:
        registry.get("benchmark", name).read(altered(tmp_path, name, change))
    assert "\n" not in str(error.value)


def test_a_network_that_was_trained_twice_counts_once_with_the_mean_of_its_scores(tmp_path):
    def change(columns):
        for name, values in columns.items():
            if name.startswith(("layer", "hidden", "depth")):
                values[5] = values[2]

    table = proxy_table("nasbench-bert", altered(tmp_path, "nasbench-bert", change))
    before = proxy_table("nasbench-bert", public_tables.folder())
    assert len(table) == public_tables.N - 1
    kept = np.delete(np.arange(public_tables.N), 5)
    np.testing.assert_array_equal(table.population, before.population[:, kept])
    expected = before.accuracies["sst"].copy()
    expected[2] = (expected[2] + expected[5]) / 2
    np.testing.assert_allclose(table.accuracies["sst"], expected[kept])


def test_all_wrong_rows_are_counted(tmp_path):
    def change(columns):
        for row in (8, 11, 30):
            columns["arch_base_dim"][row] = 17

    with pytest.raises(DataError, match="3 of 40 rows are no network of pit-ti; the first is row 9: arch_base_dim is 17"):
        registry.get("benchmark", "vitbench-pit").read(altered(tmp_path, "vitbench-pit", change))


def test_a_missing_column_is_named(tmp_path):
    folder = altered(tmp_path, "vitbench-pit", lambda columns: columns.pop("arch_depth"))
    with pytest.raises(DataError, match=r"vitbench_autoprox/pit.parquet has no column arch_depth; it has arch_base_dim"):
        registry.get("benchmark", "vitbench-pit").read(folder)


# Recurrent cells

GRU = {
    "r": {"op": "linear", "input": ["x", "h_prev_0"]},
    "r_act": {"op": "activation_sigm", "input": ["r"]},
    "z": {"op": "linear", "input": ["x", "h_prev_0"]},
    "z_act": {"op": "activation_sigm", "input": ["z"]},
    "rh": {"op": "elementwise_prod", "input": ["r_act", "h_prev_0"]},
    "h_tilde": {"op": "linear", "input": ["x", "rh"]},
    "h_tilde_act": {"op": "activation_tanh", "input": ["h_tilde"]},
    "h_new_0": {"op": "blend", "input": ["z_act", "h_prev_0", "h_tilde_act"]},
}


def test_a_cell_is_its_graph_whatever_its_nodes_are_called_and_wherever_they_stand():
    renamed = {name if name.startswith("h_new") else f"n{i}": node for i, (name, node) in enumerate(GRU.items())}
    calls = dict(zip(GRU, renamed, strict=True))
    renamed = {
        name: {"op": node["op"], "input": [calls.get(each, each) for each in node["input"]]} for name, node in renamed.items()
    }
    assert encoded(renamed) == encoded(GRU)
    turned = {**GRU, "r": {"op": "linear", "input": ["h_prev_0", "x"]}}
    assert encoded(turned) == encoded(GRU)
    assert encoded({**GRU, "h_new_0": {"op": "blend", "input": ["h_prev_0", "z_act", "h_tilde_act"]}}) != encoded(GRU)


def test_genes_are_the_graph():
    genes = encoded(GRU)
    nodes = [genes[at : at + GENES_OF_A_NODE] for at in range(0, len(GRU) * GENES_OF_A_NODE, GENES_OF_A_NODE)]
    assert [OPS[op - 1] for op, *_ in nodes].count("linear") == 3
    assert nodes[0] == [1 + OPS.index("linear"), 1 + SOURCES.index("x"), 1 + SOURCES.index("h_prev_0"), 0]
    last = next(i for i, node in enumerate(nodes) if OPS[node[0] - 1] == "blend")
    assert genes[-3:] == [last + 1, 0, 0]


def test_curves_are_partial_trainings_and_a_diverged_cell_has_no_accuracy():
    rows = registry.get("benchmark", "nasbench-nlp").read(public_tables.folder())
    columns = public_tables.cells()
    at = rows.find(np.array([encoded(json.loads(text)) for text in columns["recipe"]], np.uint8))
    assert sorted(at) == list(range(public_tables.N))
    assert sorted(rows.partial) == [epoch / public_tables.EPOCHS for epoch in range(1, public_tables.EPOCHS)]
    for share, epoch in ((0.3, 2), (1.0, -1)):
        accuracy = rows.accuracy if share == 1 else rows.partial[share]
        np.testing.assert_allclose(accuracy[at[:-1]], [1000 * np.exp(-losses[epoch]) for losses in columns["val_losses"][:-1]])
    assert np.isnan(rows.accuracy[at[-1]])
    np.testing.assert_allclose(rows.costs["params_m"][at], np.array(columns["num_params"]) / 1e6)


def test_runs_of_one_cell_under_other_names_count_once_with_their_mean_loss(tmp_path):
    def change(columns):
        cell = json.loads(columns["recipe"][3])
        renamed = {f"h_new_{name[6:]}" if name.startswith("h_new") else f"n_{name}": node for name, node in cell.items()}
        calls = dict(zip(cell, renamed, strict=True))
        inputs = {
            name: {"op": node["op"], "input": [calls.get(each, each) for each in node["input"]]}
            for name, node in renamed.items()
        }
        columns["recipe"][8] = json.dumps(inputs)

    rows = registry.get("benchmark", "nasbench-nlp").read(altered(tmp_path, "nasbench-nlp", change))
    columns = public_tables.cells()
    at = rows.find(np.array([encoded(json.loads(columns["recipe"][3]))], np.uint8))
    losses = [columns["val_losses"][row][-1] for row in (3, 8)]
    assert len(rows) == public_tables.N - 1
    np.testing.assert_allclose(rows.accuracy[at], 1000 * np.exp(-np.mean(losses)))
