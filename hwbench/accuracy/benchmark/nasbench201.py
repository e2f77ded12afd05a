"""NAS-Bench-201 (Dong and Yang 2020): all 15,625 cells of four nodes, trained; with latencies on 22 + 13 devices.

Accuracy is CIFAR-10's after 200 epochs (mean over seeds), the data set the latencies belong to; `cifar100` and
`imagenet16` are variants. Cells whose output is not reached from the input never score. Devices of HELP cover all
cells, those of OneProxy 1,999 of them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from hwbench.accuracy import public_table
from hwbench.accuracy.benchmark.base import Rows, require

EDGES = ("op_0_1", "op_0_2", "op_1_2", "op_0_3", "op_1_3", "op_2_3")
OPS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
PATHS = ((3,), (0, 4), (1, 5), (0, 2, 5))
"""Edges of every way from input to output."""
VARIANTS = {
    "cifar10": {"accuracy": "cifar10"},
    "cifar100": {"accuracy": "cifar100"},
    "imagenet16": {"accuracy": "imagenet16_120"},
}


class Nasbench201:
    """Six edges, five operations each."""

    name: str
    genes = tuple((edge, len(OPS)) for edge in EDGES)

    def __init__(self, accuracy: str) -> None:
        self._accuracy = accuracy

    def read(self, folder: Path) -> Rows:
        """Accuracy joined with the latencies of both sources."""
        return _read(folder, self._accuracy)


def connected(genes: np.ndarray) -> np.ndarray:
    """Whether some way leads from input to output."""
    passing = genes != OPS.index("none")
    return np.asarray(np.any([passing[:, path].all(axis=1) for path in map(list, PATHS)], axis=0))


@lru_cache(maxsize=2)
def _read(folder: Path, accuracy: str) -> Rows:
    trained, everywhere, some = require(
        folder, "nasbench201/accuracy.parquet", "help/nasbench201_latency.parquet", "oneproxy/nasbench201_latency_18dev.parquet"
    )
    columns = {epochs: f"{accuracy}_test_acc_{epochs}ep" for epochs in (12, 200)}
    rows = public_table.read(trained, (*EDGES, *columns.values()), ("arch_index",))
    index = rows.whole("arch_index")
    order = np.argsort(index)
    genes = np.stack([rows.choices(edge, OPS) for edge in EDGES], axis=1)
    latency: dict[str, np.ndarray] = {}
    for path in (everywhere, some):
        measured = public_table.read(path, ("latency_ms",), ("arch_index", "device_key"))
        number, ms, names = measured.whole("arch_index"), measured.numbers("latency_ms", 0), measured.text("device_key")
        trained_too = np.isin(number, index)
        for name in sorted(set(names)):
            mine = (names == name) & trained_too
            latency[name] = np.full(len(index), np.nan)
            latency[name][order[np.searchsorted(index, number[mine], sorter=order)]] = ms[mine]
    valid = connected(genes)

    def score(epochs: int) -> np.ndarray:
        return np.where(valid, rows.numbers(columns[epochs]), np.nan)

    return Rows(genes, score(200), latency, {12 / 200: score(12)}, space="nasbench201")
