"""A table of known architectures: columns are choices, rows are networks, and what does not fit is one line."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hwbench.accuracy.known_table import KnownTable, TableScorer, is_table
from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.space.activity import sample
from hwbench.space.values import from_values, to_values

ROWS = [
    {"width": 4, "depth": 1, "ratio": [2], "last": "gelu", "accuracy": 61.0},
    {"width": 8, "depth": 2, "ratio": [3, 4], "last": "relu", "accuracy": 72.5},
    {"width": 8, "depth": 3, "ratio": [3, 4, 2], "last": "relu", "accuracy": None},
]


def write(folder, rows, name="t.parquet"):
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        lines = [",".join(rows[0])]
        lines += [",".join(_cell(value) for value in row.values()) for row in rows]
        path.write_text("\n".join(lines) + "\n")
    return str(path)


def _cell(value) -> str:
    return "" if value is None else f'"{json.dumps(value)}"' if isinstance(value, list) else str(value)


def flat(row):
    """One column per layer; layers that do not count are empty."""
    found = {name: value for name, value in row.items() if name != "ratio"}
    return found | {f"ratio[{i}]": row["ratio"][i] if i < len(row["ratio"]) else None for i in range(3)}


def refused(space, text, kind=UsageError) -> str:
    with pytest.raises(kind) as caught:
        KnownTable.read(space, text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"), [("a.csv", True), ("a.parquet:top1", True), ("nasbench201-cifar10", False), ("a.py:f", False)]
)
def test_a_file_is_told_from_a_name(text, meant):
    assert is_table(text) is meant


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize("shape", [dict, flat])
def test_lists_and_columns_per_layer_say_the_same(mixer, tmp_path, name, shape):
    table = KnownTable.read(mixer, write(tmp_path, [shape(row) for row in ROWS], name))
    assert table.name == f"{name}:accuracy"
    wanted = [from_values(mixer, {k: v for k, v in row.items() if k != "accuracy"}) for row in ROWS]
    assert (table.rows.genes == wanted).all()
    assert np.array_equal(table.rows.accuracy, [61.0, 72.5, np.nan], equal_nan=True)


@pytest.mark.parametrize(("name", "of_rows"), [("t.csv", ""), ("t.csv", "Unnamed: 0"), ("t.parquet", "__index_level_0__")])
def test_the_names_of_rows_that_pandas_writes_are_no_accuracy(mixer, tmp_path, name, of_rows):
    rows = [{of_rows: at} | {key: value for key, value in row.items() if key != "accuracy"} for at, row in enumerate(ROWS)]
    path = write(tmp_path, [row | {"top1": 60 + at} for at, row in enumerate(rows)], name)
    assert KnownTable.read(mixer, path).rows.accuracy.tolist() == [60, 61, 62]


def test_what_it_does_not_hold_has_no_accuracy_and_a_reason(mixer, tmp_path):
    with TableScorer(KnownTable.read(mixer, write(tmp_path, ROWS)), mixer) as score:
        asked = np.stack(
            [*score.candidates, from_values(mixer, {"width": 4, "depth": 1, "ratio": [3], "last": "gelu"})], axis=1
        )
        found = score(asked)
        assert not score.gives_up(1000, asked)
    assert np.array_equal(found.values, [61.0, 72.5, np.nan, np.nan], equal_nan=True)
    assert found.failed == {2: "t.parquet:accuracy has no accuracy for it", 3: "not in t.parquet:accuracy"}


@pytest.mark.parametrize("n", [1, 60])
def test_every_architecture_comes_back_through_values(mixer, tmp_path, n):
    population = np.unique(sample(mixer, n, np.random.default_rng(3)), axis=1)
    rows = [{**to_values(mixer, column), "top1": float(i)} for i, column in enumerate(population.T)]
    table = KnownTable.read(mixer, write(tmp_path, rows))
    assert (table.rows.genes == population.T).all()
    assert table.name == "t.parquet:top1"  # the only column that is no choice
    assert table.left_out == 0


def without(row, name):
    return {key: value for key, value in row.items() if key != name}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: [without(row, "ratio") for row in rows], "no column ratio[0] and 2 more"),
        (lambda rows: [{**row, "width": 5} for row in rows], "row 1: width is 5, which is not one of 4, 8"),
        (lambda rows: [rows[0], {**rows[1], "ratio": [3]}], "row 2: ratio[1] is missing"),
        (lambda rows: [rows[0], {**rows[1], "ratio": [3, 9]}], "row 2: ratio[1] is 9, which is not one of 2, 3, 4"),
        (
            lambda rows: [*rows, {**rows[0], "accuracy": 60.0}],
            "rows 1 and 4 are the same architecture with accuracies 61 and 60",
        ),
        (lambda rows: [without(row, "accuracy") for row in rows], "no column beside the choices"),
        (lambda rows: [{**row, "accuracy": "good"} for row in rows], "column accuracy must hold numbers"),
        (lambda rows: [{"a": 1.0, "b": 2.0, **without(row, "accuracy")} for row in rows], "(a, b): call it accuracy, or write"),
    ],
)
def test_what_does_not_fit_is_one_line_with_the_column_or_the_row(mixer, tmp_path, change, said):
    assert said in refused(mixer, write(tmp_path, change(ROWS)))


def test_the_column_can_be_named(mixer, tmp_path):
    path = write(tmp_path, [{**row, "top5": 90.0 + i} for i, row in enumerate(ROWS)])
    assert KnownTable.read(mixer, f"{path}:top5").rows.accuracy.tolist() == [90.0, 91.0, 92.0]
    assert "Did you mean top5?" in refused(mixer, f"{path}:top55")


def test_equal_rows_are_one_and_layers_that_do_not_count_may_hold_anything(mixer, tmp_path):
    spoilt = {**flat(ROWS[0]), "ratio[1]": 77}
    table = KnownTable.read(mixer, write(tmp_path, [flat(ROWS[0]), spoilt, flat(ROWS[1])]))
    assert (len(table.rows), table.left_out) == (2, 1)
    assert TableScorer(table, mixer).notes()[0].startswith("1 rows of t.parquet:accuracy were left out")


def test_of_a_network_written_in_several_ways_the_canonical_row_counts(mixer, tmp_path):
    others = [{**flat(ROWS[0]), "ratio[1]": ratio, "accuracy": 95.0 + ratio} for ratio in (3, 4)]  # as in NAS-Bench-201
    table = KnownTable.read(mixer, write(tmp_path, [*others, flat(ROWS[0]), flat(ROWS[1])]))
    assert table.rows.accuracy.tolist() == [61.0, 72.5]
    assert table.left_out == 2
    assert "rows 1 and 2 are the same architecture" in refused(mixer, write(tmp_path, [*others, flat(ROWS[1])]))


def test_files_that_cannot_be_read(mixer, tmp_path):
    assert "There is no table at" in refused(mixer, str(tmp_path / "none.csv"))
    (tmp_path / "empty.csv").write_text("width,depth,ratio,last,accuracy\n")
    assert "has no rows" in refused(mixer, str(tmp_path / "empty.csv"))
    (tmp_path / "broken.parquet").write_bytes(b"no")
    assert "cannot be read as Parquet" in refused(mixer, str(tmp_path / "broken.parquet"), DataError)
    (tmp_path / "broken.csv").write_text("a,b\n1\n1,2,3\n")
    assert "cannot be read as CSV" in refused(mixer, str(tmp_path / "broken.csv"), DataError)


def test_a_benchmark_table_is_read_by_its_name(tmp_path):
    from cells import write as write_cells

    space = registry.get("space", "nasbench201")
    write_cells(tmp_path)
    table = KnownTable.read(space, "nasbench201-cifar10", tmp_path)
    score = TableScorer(table, space)
    assert np.isfinite(score(score.candidates.T).values).all()
    assert table.identity["name"] == "nasbench201-cifar10"
    assert "is about other architectures than bert" in refused(registry.get("space", "bert"), "nasbench201-cifar10")
