"""Architectures as callers have them: values, rows of genes or one of either become the same canonical population."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.space.architectures import given
from hwbench.space.sample import sample
from tests.space.mixer import Mixer


def test_values_rows_and_single_ones_are_the_same_architectures(mixer):
    drawn = sample(mixer, 20, seed=3)
    rows = drawn.population.T
    for form in (drawn, drawn.values, tuple(drawn.values), rows, rows.astype(np.int64), rows.tolist()):
        found, one = given(mixer, form)
        assert not one
        assert (found.population == drawn.population).all()
        assert found.population.dtype == np.uint8
    for form in (drawn.values[0], rows[0], rows[0].tolist(), tuple(rows[0].tolist())):
        found, one = given(mixer, form)
        assert one
        assert (found.population == drawn.population[:, :1]).all()


def test_lists_of_values_may_be_tuples_or_arrays(mixer):
    plain = {"width": 4, "depth": 2, "ratio": [2, 4], "last": "relu"}
    for ratio in ((2, 4), np.array([2, 4])):
        assert (given(mixer, {**plain, "ratio": ratio})[0].population == given(mixer, plain)[0].population).all()


def test_genes_that_do_not_count_are_set_to_nothing(mixer):
    found, _ = given(mixer, [[1, 0, 2, 2, 2, 1]])
    assert found.population.T.tolist() == [[1, 0, 2, 0, 0, 1]]


def test_none_at_all_is_no_error(mixer):
    for nothing in ([], np.empty((0, 6), np.uint8)):
        found, one = given(mixer, nothing)
        assert (len(found), one) == (0, False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([0, 0], r"An architecture of mixer is 6 whole numbers, one per gene, or a mapping of values; got int64\[1, 2\]"),
        ([[0.0] * 6], r"got float64\[1, 6\]"),
        ([True] * 6, r"got bool\[1, 6\]"),
        ("abc", "got <U3"),
        (None, "got object"),
        (np.zeros((6, 2), int), r"got int64\[6, 2\]"),
        ([[0, 3, 0, 0, 0, 0]], "Architecture 0: gene 'depth' is 3, it has choices 0 to 2"),
        ([[0] * 6, [0, 0, 0, 0, 0, -1]], "Architecture 1: gene 'last' is -1, it has choices 0 to 1"),
        ({"width": 5}, r"width = 5 is not one of \[4, 8\]|must be a list"),
        ([{"wide": 4}], "unknown entry 'wide'"),
    ],
)
def test_what_is_no_architecture_is_refused_by_name(mixer, wrong, said):
    with pytest.raises(UsageError, match=said):
        given(mixer, wrong)


def test_architectures_of_another_space_are_refused(mixer):
    with pytest.raises(UsageError, match="Architectures of nasbench201 were given, those of mixer are asked for"):
        given(mixer, sample("nasbench201", 2))
    again = Mixer()  # another object of the same space
    assert given(again, sample(mixer, 2))[0].space is again


def test_they_show_themselves_in_a_line_and_as_a_table():
    drawn = sample("autoformer-tiny", 3)
    assert repr(drawn) == "3 architectures of autoformer-tiny"
    assert repr(sample("autoformer-tiny", 1)) == "1 architecture of autoformer-tiny"
    shown = drawn.to_pandas()
    assert list(shown.columns) == ["embed_dim", "depth", "heads", "mlp_ratio"]
    assert [dict(row) for _, row in shown.iterrows()] == drawn.values
    cells = sample("nasbench201", 50).to_pandas()  # a choice that does not count is missing
    assert list(cells.columns) == [gene.name for gene in registry.get("space", "nasbench201").genes]
