"""One suite over every registered table: rows match genes, answers are the rows, the front is exact."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from cells import DEVICES, SOME, write

import hwbench
from hwbench.accuracy.benchmark.base import Rows, folder_of, grid_size
from hwbench.accuracy.benchmark.nasbench201 import EDGES, OPS
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.genes import keys

TABLES = Path(os.environ.get("HWBENCH_TABLES", Path(hwbench.__file__).parents[2] / "shared" / "tables"))
NAMES = registry.names("benchmark")


@pytest.fixture(scope="module", params=NAMES)
def named(request) -> tuple[str, Rows]:
    if not TABLES.is_dir():
        pytest.skip(f"no public tables at {TABLES}; set HWBENCH_TABLES")
    return request.param, registry.get("benchmark", request.param).read(TABLES)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("tables"))


def test_rows_are_architectures_of_the_genes_each_once(named):
    name, rows = named
    table = registry.get("benchmark", name)
    assert rows.genes.dtype == np.uint8
    assert rows.genes.shape == (len(rows), len(table.genes))
    assert (rows.genes < [size for _, size in table.genes]).all()
    assert len(set(keys(rows.genes))) == len(rows) <= grid_size(table.genes)


def test_every_device_has_positive_latencies_of_networks(named):
    _, rows = named
    assert len(rows.latency_ms) >= 3
    for device, latency in rows.latency_ms.items():
        mine = rows.usable(device)
        assert latency.shape == rows.accuracy.shape == (len(rows),)
        assert len(mine) >= 1000
        assert (latency[mine] > 0).all()
        assert ((rows.accuracy[mine] > 0) & (rows.accuracy[mine] <= 100)).all()


def test_a_query_answers_with_the_rows_whatever_their_order(named):
    _, rows = named
    at = np.random.default_rng(0).permutation(len(rows))[:500]
    for device in list(rows.latency_ms)[:: max(1, len(rows.latency_ms) // 4)]:
        found = rows.query(rows.genes[at], device)
        np.testing.assert_array_equal(found["accuracy"], rows.accuracy[at])
        latency = np.where(np.isnan(rows.accuracy), np.nan, rows.latency_ms[device])
        np.testing.assert_array_equal(found["latency_ms"], latency[at])


def test_what_the_table_does_not_hold_is_nan(named):
    name, rows = named
    table = registry.get("benchmark", name)
    if len(rows) == grid_size(table.genes):
        return  # it holds everything
    drawn = np.random.default_rng(0).integers(0, [size for _, size in table.genes], (200, len(table.genes)), dtype=np.uint8)
    drawn = drawn[rows.find(drawn) < 0]
    assert len(drawn) > 100
    found = rows.query(drawn, next(iter(rows.latency_ms)))
    assert np.isnan(found["accuracy"]).all()
    assert np.isnan(found["latency_ms"]).all()


def test_the_front_is_exact(named):
    """No member is beaten by any network, and every other network is beaten by, or equal to, a member."""
    _, rows = named
    for device in list(rows.latency_ms)[:: max(1, len(rows.latency_ms) // 4)]:
        mine, front = rows.usable(device), rows.front(device)
        points = np.stack([rows.latency_ms[device], -rows.accuracy], axis=1)
        no_worse = (points[front][:, None] <= points[mine][None]).all(axis=2)
        same = (points[front][:, None] == points[mine][None]).all(axis=2)
        assert no_worse.any(axis=0).all()
        beaten = (points[mine][:, None] <= points[front][None]).all(axis=2).T & ~same
        assert not beaten.any()
        assert (np.diff(rows.latency_ms[device][front]) > 0).all(), "fastest first"


def test_an_unknown_device_is_named_with_those_there_are(named):
    _, rows = named
    with pytest.raises(UsageError, match=r"Unknown device 'toaster'\..*Available: "):
        rows.query(rows.genes[:1], "toaster")


def _reaches(cell: np.ndarray) -> bool:
    """Whether node 3 is reached from node 0, by walking the edges that are there."""
    there = {0}
    for node in (1, 2, 3):
        ways = [(int(edge[3]), op) for edge, op in zip(EDGES, cell, strict=True) if int(edge[5]) == node]
        if any(start in there and OPS[op] != "none" for start, op in ways):
            there.add(node)
    return 3 in there


def test_disconnected_cells_never_score(made_up):
    rows = registry.get("benchmark", "nasbench201-cifar10").read(made_up)
    reached = np.array([_reaches(cell) for cell in rows.genes])
    assert (~reached).sum() == 341
    assert (np.isnan(rows.accuracy) == ~reached).all()
    assert np.isnan(rows.query(rows.genes[~reached], "chip")["latency_ms"]).all()
    assert (np.isnan(rows.partial[12 / 200]) == ~reached).all()


def test_sources_are_joined_by_architecture_not_by_place(made_up):
    rows = registry.get("benchmark", "nasbench201-cifar100").read(made_up)
    assert set(rows.latency_ms) == {*DEVICES, "phone", "board_again"}
    measured = ~np.isnan(rows.latency_ms["board_again"])
    assert measured.sum() == SOME
    np.testing.assert_array_equal(rows.latency_ms["board_again"][measured], rows.latency_ms["board"][measured])
    assert not np.isnan(rows.latency_ms["board"]).any()
    convolutions = (rows.genes == OPS.index("nor_conv_3x3")).sum(axis=1)
    assert np.corrcoef(convolutions, rows.latency_ms["board"])[0, 1] > 0.5


def test_the_fingerprint_is_that_of_the_data(made_up):
    rows = registry.get("benchmark", "nasbench201-cifar10").read(made_up)
    other = registry.get("benchmark", "nasbench201-cifar100").read(made_up)
    prints = {rows.fingerprint(["board"]), rows.fingerprint(["chip"]), other.fingerprint(["board"])}
    assert len(prints) == 3
    assert rows.fingerprint(["board"]) in prints


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_without_the_table_is_named(name, tmp_path):
    with pytest.raises(UsageError, match=r"\.parquet is missing; give the folder of benchmark tables by --tables"):
        registry.get("benchmark", name).read(tmp_path)


def test_the_folder_of_tables_is_given_or_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HWBENCH_TABLES", str(tmp_path))
    assert folder_of(None) == tmp_path
    assert folder_of(tmp_path / "..") == tmp_path / ".."
    monkeypatch.delenv("HWBENCH_TABLES")
    with pytest.raises(UsageError, match="Give --tables DIR or set HWBENCH_TABLES"):
        folder_of(None)
    with pytest.raises(UsageError, match="There is no folder of benchmark tables at"):
        folder_of(tmp_path / "nowhere")
