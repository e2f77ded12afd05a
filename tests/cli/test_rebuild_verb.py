"""Stored predictors are built again by the command their cards state."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hwbench
from hwbench.core.errors import UsageError
from hwbench.core.files import write_sealed
from hwbench.predictor import rebuild
from hwbench.predictor.tabular import fit


@pytest.fixture
def stored(tmp_path, nothing_packaged):
    rng = np.random.default_rng(0)
    depth, width = rng.integers(1, 12, 60), rng.integers(16, 256, 60)
    noisy = (1 + depth * width * 0.01) * rng.normal(1, 0.01, 60)
    (tmp_path / "tables").mkdir()
    pq.write_table(pa.table({"depth": depth, "width": width, "latency_ms": noisy}), tmp_path / "tables" / "mine.parquet")
    folder = tmp_path / "predictors" / "toy" / "mine"
    fit.fit_table(
        "mine.parquet", ["depth", "width"], out=folder, regressor="additive", device="toy", tables=tmp_path / "tables"
    )
    return folder


def test_a_predictor_comes_out_the_same(stored, tmp_path):
    (row,) = hwbench.rebuild([stored], tables=tmp_path / "tables")
    assert row["same"] is True, row
    assert row["name"] == "toy/mine"


def test_all_of_a_workspace_are_found(stored, tmp_path):
    assert [row["same"] for row in hwbench.rebuild(tables=tmp_path / "tables", workspace=tmp_path)] == [True]


def test_other_data_are_noticed(stored, tmp_path):
    path = tmp_path / "tables" / "mine.parquet"
    data = pq.read_table(path).to_pydict()
    data["latency_ms"] = [2 * ms if i % 7 == 0 else ms for i, ms in enumerate(data["latency_ms"])]
    pq.write_table(pa.table(data), path)
    (row,) = hwbench.rebuild([stored], tables=tmp_path / "tables")
    assert row["same"] is False
    assert "errors" in row["why"]


def test_what_is_missing_is_said(stored, tmp_path):
    (row,) = hwbench.rebuild([stored])
    assert row["same"] is None
    assert "--tables" in row["why"]
    (row,) = hwbench.rebuild([stored], tables=tmp_path / "elsewhere")
    assert row["same"] is False
    assert "mine.parquet" in row["why"]
    with pytest.raises(UsageError, match="no predictor"):
        hwbench.rebuild(workspace=tmp_path / "tables")
    card = json.loads((stored / "card.json").read_text())
    write_sealed(stored / "card.json", {**card, "rebuild": "rm -rf /"})
    with pytest.raises(hwbench.core.errors.DataError, match="none of hwbench's"):
        hwbench.rebuild([stored])


def test_numbers_are_compared_up_to_rounding():
    assert rebuild.same({"a": [1.0, None]}, {"a": [1.0 + 1e-9, None]})
    assert not rebuild.same({"a": 1.0}, {"a": 1.001})
    assert not rebuild.same({"a": 1.0}, {"b": 1.0})


def test_a_rank_that_the_last_bit_decides_is_no_difference():
    assert rebuild.same({"kendall_tau": 0.955, "n": 3}, {"kendall_tau": 0.9551, "n": 3})
    assert not rebuild.same({"kendall_tau": 0.955, "n": 3}, {"kendall_tau": 0.96, "n": 3})
    assert not rebuild.same({"n": 3, "kendall_tau": 0.9}, {"n": 3})
