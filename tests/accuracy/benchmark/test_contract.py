"""One suite over every registered table: rows match genes, answers are the rows, the front is exact."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import own_table
import public_tables
import pytest
from cells import DEVICES, SOME, write

import hwbench
from hwbench.accuracy.benchmark.base import folder_of
from hwbench.accuracy.benchmark.nasbench201 import EDGES, OPS
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.testing.base import suites

TABLES = Path(os.environ.get("HWBENCH_TABLES", Path(hwbench.__file__).parents[2] / "shared" / "tables"))
NAMES = registry.names("benchmark")
PUBLIC = re.compile("accel_nasbench|nasbench201-")
"""Tables whose size is known; others may be as small as they like."""
MADE_UP = ("vitbench", "nasbench_bert", "nasbench_nlp")
"""Tables whose layout is written here; the public ones are looked at in test_public.py."""


def folder_of_name(name: str) -> Path:
    """Where a table is read from."""
    if name.startswith("autoformer_cifar10"):
        return own_table.folder()
    return public_tables.folder() if name.startswith(MADE_UP) else TABLES


globals().update(
    suites(
        "benchmark",
        folder=folder_of_name,
        least_devices=lambda name: 3 if PUBLIC.match(name) else 0 if name.startswith(MADE_UP) else 1,
        least_networks=lambda name: 1000 if PUBLIC.match(name) else 1,
        least_absent=lambda name: 101 if PUBLIC.match(name) else 0,
    )
)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("tables"))


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
