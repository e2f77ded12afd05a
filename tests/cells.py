"""A folder of benchmark tables in the layout of the public ones: every NAS-Bench-201 cell, with values made up by a formula.

Tests of searches on tables need no download; those of the public numbers skip without them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hwbench.accuracy.benchmark.nasbench201 import EDGES, OPS

GAIN = np.array([0.0, 0.25, 0.6, 1.0, 0.1])
WEIGHT = np.array([1.0, 0.7, 0.8, 1.2, 0.6, 0.9])
DEVICES = ("box_1", "box_32", "board", "chip", "desk", "edge", "far")
"""`box` at two batch sizes; on all cells."""
SOME = 2000
"""Cells the phone, and the board under another name, measured."""


def write(folder: Path) -> Path:
    """Writes the tables; returns the folder."""
    rng = np.random.default_rng(0)
    cells = np.indices([len(OPS)] * len(EDGES)).reshape(len(EDGES), -1).T
    cells = cells[rng.permutation(len(cells))]
    index = rng.permutation(len(cells))
    score = GAIN[cells] @ WEIGHT
    columns = {edge: [OPS[op] for op in cells[:, i]] for i, edge in enumerate(EDGES)}
    for data, top in (("cifar10", 94.0), ("cifar100", 73.0), ("imagenet16_120", 47.0)):
        final = top * (1 - np.exp(-0.9 * score)) + rng.normal(0, 0.2, len(cells))
        columns[f"{data}_test_acc_200ep"] = final
        columns[f"{data}_test_acc_12ep"] = 0.9 * final + rng.normal(0, 1.0, len(cells))
    _write(folder / "nasbench201" / "accuracy.parquet", {"arch_index": index, **columns})
    latency = {name: _latency(cells, seed) for seed, name in enumerate(DEVICES)}
    latency["box_32"] = latency["box_1"] * 3 * np.exp(rng.normal(0, 0.01, len(cells)))
    _devices(folder / "help" / "nasbench201_latency.parquet", index, latency)
    phone = {"phone": _latency(cells, 99)[:SOME], "board_again": latency["board"][:SOME]}
    _devices(folder / "oneproxy" / "nasbench201_latency_18dev.parquet", index[:SOME], phone)
    return folder


def _latency(cells: np.ndarray, seed: int) -> np.ndarray:
    """Costs per operation and edge, a little noise."""
    rng = np.random.default_rng(seed)
    costs = np.array([0.02, 0.1, 0.6, 1.0, 0.5]) * rng.uniform(0.4, 2.5, (len(EDGES), len(OPS)))
    total = 1.0 + costs[np.arange(len(EDGES)), cells].sum(axis=1)
    return np.asarray(total * np.exp(rng.normal(0, 0.02, len(cells))))


def _devices(path: Path, index: np.ndarray, latency: dict[str, np.ndarray]) -> None:
    names = np.repeat(list(latency), len(index))
    columns = {"arch_index": np.tile(index, len(latency)), "device_key": pa.array(names).dictionary_encode()}
    _write(path, {**columns, "latency_ms": np.concatenate(list(latency.values()))})


def _write(path: Path, columns: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
