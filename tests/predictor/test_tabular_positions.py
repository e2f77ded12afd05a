from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hwbench.core.errors import UsageError
from hwbench.predictor.tabular import positions


def test_a_plain_column_is_one_choice_and_a_list_one_per_place():
    data = pa.table({"op": ["b", "a", "b"], "layers": [[1, 2], [1], [3, 2]]})
    op, first, second = positions.read(data, ["op", "layers"])
    assert (op.name, op.levels, op.codes.tolist()) == ("op", ("a", "b"), [1, 0, 1])
    assert (first.name, first.levels, first.codes.tolist()) == ("layers[0]", (1.0, 3.0), [0, 0, 1])
    assert (second.levels, second.codes.tolist()) == ((2.0, positions.ABSENT), [0, 1, 0])


def test_many_long_texts_are_lists_of_words():
    texts = [f"|conv_{i}~0|+|skip_{j}~1|" for i in range(9) for j in range(9)]
    found = positions.read(pa.table({"arch": texts}), ["arch"])
    assert [len(p.levels) for p in found] == [9, 1, 9, 1]
    assert [p.levels[p.codes[10]] for p in found] == ["conv_1", "0", "skip_1", "1"]


def test_many_numbers_are_a_quantity_and_many_plain_names_stay_whole():
    data = pa.table({"size": np.arange(100.0), "name": [f"net{i}" for i in range(100)]})
    size, name = positions.read(data, ["size", "name"])
    assert size.quantity
    assert not name.quantity
    assert len(name.levels) == 100


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_of_every_type_read_alike(kind):
    (found,) = positions.read(pa.table({"op": pa.array(["b", "a"]).cast(kind)}), ["op"])
    assert (found.levels, found.codes.tolist()) == (("a", "b"), [1, 0])


def test_rows_that_chose_alike_are_one_architecture_even_among_very_many_choices():
    codes = np.random.default_rng(0).integers(0, 4, (50, 80))
    codes[7] = codes[3]
    rows = positions.read(pa.table({"layers": codes.tolist()}), ["layers"])
    first, group = positions.distinct(rows)
    assert len(first) == 49
    assert group[7] == group[3]


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("opp", ["a"], "Did you mean"),
        ("op", pa.array([None], pa.string()), "missing values"),
        ("op", pa.array([[None]], pa.list_(pa.int64())), "missing entries"),
        ("op", [float("nan")], "finite"),
        ("op", [{"a": 1}], "describe an architecture"),
    ],
)
def test_a_column_that_holds_no_choices_is_named(column, values, said):
    with pytest.raises(UsageError, match=said):
        positions.read(pa.table({"op": values}), [column])
