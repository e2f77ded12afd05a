from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hwbench
from hwbench.core.errors import UsageError
from hwbench.predictor import card
from hwbench.predictor.tabular import op_costs

TABLES = Path(os.environ.get("HWBENCH_TABLES", Path(hwbench.__file__).parents[2] / "shared" / "tables"))
OPS = {"skip": 0.0, "conv1": 0.5, "conv3": 2.0}


def cost(found, column, level, place=None):
    (each,) = (c for c in found.costs if (c.column, c.place, c.level) == (column, place, level))
    return each.cost_ms


def test_exact_sums_are_recovered_exactly(tmp_path):
    cells = list(product(OPS, repeat=3))
    latency = [1.0 + sum((i + 1) * OPS[op] for i, op in enumerate(cell)) for cell in cells]
    columns = {name: [cell[i] for cell in cells] for i, name in enumerate("abc")}
    pq.write_table(pa.table({**columns, "latency_ms": latency}), tmp_path / "t.parquet")
    found = op_costs.recover(tmp_path / "t.parquet", ["a", "b", "c"], device="sum", out=tmp_path / "lut")
    assert found.exact
    assert found.constant_ms == pytest.approx(1.0)
    assert [found.errors[name] for name in ("residual_ms", "rmse_ms")] == pytest.approx([0, 0], abs=1e-9)
    assert found.confounded == []
    for i, name in enumerate("abc"):
        for op, ms in OPS.items():
            assert cost(found, name, op) == pytest.approx((i + 1) * ms, abs=1e-9)
    stored = card.read(tmp_path / "lut")
    assert (stored.kind, stored.device, stored.exact) == ("recovered-lut", "sum", True)
    assert pq.read_table(tmp_path / "lut" / op_costs.LUT).to_pylist() == [vars(each) for each in found.costs]
    np.testing.assert_allclose(card.read_arrays(tmp_path / "lut", stored)["constant"], [1.0])


def test_lists_of_any_length_by_place_or_shared(tmp_path):
    random = np.random.default_rng(0)
    nets = [random.choice(list(OPS), random.integers(1, 5)).tolist() for _ in range(200)]
    latency = [3.0 + sum(OPS[op] + 0.1 for op in net) for net in nets]
    pq.write_table(pa.table({"net": nets, "latency_ms": latency}), tmp_path / "t.parquet")
    shared = op_costs.recover(tmp_path / "t.parquet", ["net"], shared=True)
    assert shared.exact
    assert len(shared.costs) == 3
    assert cost(shared, "net", "conv3") == pytest.approx(2.1)
    placed = op_costs.recover(tmp_path / "t.parquet", ["net"])
    assert placed.exact
    assert cost(placed, "net", "conv3", 2) == pytest.approx(2.1)
    assert cost(placed, "net", "conv3", 0) == pytest.approx(2.0)  # every net has a first op: its cheapest is in the constant
    assert placed.constant_ms == pytest.approx(3.1)


def test_what_always_occurs_together_is_listed_not_guessed(tmp_path):
    a = ["x", "y", "z"] * 20
    b = ["p" if op == "x" else "q" for op in a]
    latency = [{"x": 1.0, "y": 2.0, "z": 3.0}[op] for op in a]
    pq.write_table(pa.table({"a": a, "b": b, "latency_ms": latency}), tmp_path / "t.parquet")
    (together,) = op_costs.recover(tmp_path / "t.parquet", ["a", "b"]).confounded
    assert {"a=y", "a=z", "b=q"} <= set(together)


def test_noise_leaves_an_error_beside_its_ceiling(tmp_path):
    random = np.random.default_rng(1)
    a = random.choice(list(OPS), 600)
    latency = [(1 + OPS[op]) * np.exp(random.normal(0, 0.05)) for op in a]
    pq.write_table(pa.table({"a": a, "latency_ms": latency}), tmp_path / "t.parquet")
    found = op_costs.recover(tmp_path / "t.parquet", ["a"])
    assert not found.exact
    assert found.errors["mean_abs_error"] == pytest.approx(found.noise_ceiling["mean_abs_error"], rel=0.05)
    assert found.noise_ceiling["mean_abs_error"] == pytest.approx(0.05 * np.sqrt(2 / np.pi), rel=0.1)


@pytest.mark.parametrize(
    ("columns", "features", "target", "where", "said"),
    [
        ({}, ["b"], "latency_ms", {}, "b"),
        ({}, ["a"], "ms", {}, "no column 'ms'"),
        ({"latency_ms": [0.0] * 100}, ["a"], "latency_ms", {}, "positive; 100"),
        ({}, ["a"], "latency_ms", {"device": "x"}, "no column 'device'"),
        ({}, ["a"], "latency_ms", {"a": "nope"}, "0 such rows"),
        ({"a": [f"n{i}" for i in range(100)]}, ["a"], "latency_ms", {}, "100 levels"),
    ],
)
def test_what_cannot_be_recovered_is_named(tmp_path, columns, features, target, where, said):
    data = {"a": ["x", "y"] * 50, "latency_ms": np.ones(100), **columns}
    pq.write_table(pa.table(data), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match=said):
        op_costs.recover(tmp_path / "t.parquet", features, target, where=where)


@pytest.mark.parametrize("device", ["fpga", "eyeriss"])
def test_the_analytical_devices_are_recovered_exactly(tmp_path, device):
    latency, archs = TABLES / "help" / "nasbench201_latency.parquet", TABLES / "nasbench201" / "accuracy.parquet"
    if not (latency.exists() and archs.exists()):
        pytest.skip(f"no public tables at {TABLES}; set HWBENCH_TABLES")
    edges = ["op_0_1", "op_0_2", "op_1_2", "op_0_3", "op_1_3", "op_2_3"]
    rows = pq.read_table(latency, filters=[("device_key", "==", device)])
    joined = rows.join(pq.read_table(archs, columns=["arch_index", *edges]), "arch_index")
    pq.write_table(joined, tmp_path / "t.parquet")
    found = op_costs.recover(tmp_path / "t.parquet", edges, device=device)
    assert found.exact
    assert found.errors["max_abs_error"] < 1e-6
    assert found.confounded == []
    assert {cost(found, edge, "none") for edge in edges} == {0.0}
