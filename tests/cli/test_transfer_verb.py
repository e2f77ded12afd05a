"""hwbench transfer and lut recover: what is printed and the one JSON document."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hwbench.cli.main import build
from hwbench.core.errors import UsageError

CELLS = list(product(("none", "conv1", "conv3"), repeat=4))


def table(seed, rows=range(81), **more):
    cost = dict(zip(("none", "conv1", "conv3"), np.random.default_rng(seed).uniform(0.1, 3, 3).cumsum(), strict=True))
    latency = [1 + sum(cost[op] for op in CELLS[i]) for i in rows]
    columns = {name: [CELLS[i][j] for i in rows] for j, name in enumerate("abcd")}
    return pa.table({**columns, **{k: [v] * len(latency) for k, v in more.items()}, "latency_ms": latency})


@pytest.fixture
def folder(tmp_path):
    pq.write_table(pa.concat_tables([table(i, device=f"d{i}") for i in range(6)]), tmp_path / "known.parquet")
    pq.write_table(table(7, range(0, 80, 8)), tmp_path / "measured.parquet")
    return tmp_path


def run(*arguments):
    done = CliRunner(env={"COLUMNS": "220"}).invoke(build(), [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_transfer_says_what_to_expect_and_whether_to_trust_it(folder):
    asked = (
        "transfer",
        "--known",
        folder / "known.parquet",
        "--measured",
        folder / "measured.parquet",
        "--features",
        "a,b,c,d",
    )
    shown = run(*asked, "--output", folder / "out.parquet")
    assert "81 architectures predicted from 10 measurements" in shown
    assert "\ntrust: " in shown
    document = json.loads(run(*asked, "--output", folder / "out.parquet", "--json").splitlines()[-1])
    assert document["trust"] is True
    assert pq.read_table(folder / "out.parquet").column_names == ["a", "b", "c", "d", "prediction", "low", "high"]


def test_choose_lists_what_to_measure(folder):
    asked = ("transfer", "--known", folder / "known.parquet", "--features", "a,b,c,d", "--choose", 5)
    assert "Measure these 5" in run(*asked)
    document = json.loads(run(*asked, "--output", folder / "todo.parquet", "--json").splitlines()[-1])
    assert document["choose"] == pq.read_table(folder / "todo.parquet").to_pylist()


@pytest.mark.parametrize("more", [[], ["--choose", 5, "--measured", "m.parquet"], ["--measured", "m.parquet"]])
def test_transfer_needs_one_task(folder, more):
    with pytest.raises(UsageError, match=r"^transfer "):
        run("transfer", "--known", folder / "known.parquet", "--features", "a", *more)


def test_recover_prints_costs_and_stores_them(folder):
    asked = ("lut", "recover", "--from", folder / "known.parquet", "--features", "a,b,c,d", "--where", "device=d2")
    shown = run(*asked, "--device", "d2", "--out", folder / "lut")
    assert "the sum is exact" in shown
    document = json.loads(run(*asked, "--out", folder / "lut", "--json").splitlines()[-1])
    assert len(document["costs"]) == 12
    assert (folder / "lut" / "card.json").exists()
    with pytest.raises(UsageError, match="--where 'd2' is not understood; write name=value"):
        run(*asked, "--where", "d2", "--out", folder / "lut")
