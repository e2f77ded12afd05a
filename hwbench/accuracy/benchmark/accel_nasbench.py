"""Accel-NASBench (Ahmad et al. 2024): 5,138 MnasNet-like networks trained on ImageNet, timed on A100, 3090, TPUv2, ZCU102.

Seven blocks, each with expansion, kernel, layers and squeeze-and-excitation. Only a sample of the space: what lies outside
of it is NaN, so no search can be validated on it, but winners of devices can be compared. Throughputs are turned into
milliseconds per image. Of the 13 networks trained and timed twice, the first time counts.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from hwbench.accuracy import public_table
from hwbench.accuracy.benchmark.base import Rows, require

BLOCKS = 7
CHOICES = {
    f"block{i}_{part}": values
    for i in range(BLOCKS)
    # The sixth block alone may have four layers.
    for part, values in {"e": (1, 4, 6), "k": (3, 5), "l": (1, 2, 3, 4) if i == 5 else (1, 2, 3), "se": (False, True)}.items()
}
ACCURACY = "val_top1"
DEVICES = {
    "a100": "a100_throughput_img_per_s_mean",
    "3090": "3090_throughput_img_per_s_mean",
    "tpuv2": "tpuv2_throughput_img_per_s_mean",
    "zcu102": "zcu102_throughput_img_per_s_mean",
}


class AccelNasbench:
    """28 genes."""

    name: str
    genes = tuple((name, len(values)) for name, values in CHOICES.items())

    def read(self, folder: Path) -> Rows:
        """ImageNet top-1 with milliseconds per image."""
        return _read(folder)


@lru_cache(maxsize=1)
def _read(folder: Path) -> Rows:
    (path,) = require(folder, "accel_nasbench/arch_accuracy_throughput.parquet")
    rows = public_table.read(path, (*CHOICES, *DEVICES.values(), ACCURACY), ("arch_index",))
    genes = np.stack([rows.choices(name, values) for name, values in CHOICES.items()], axis=1)
    kept = np.sort(np.unique(genes, axis=0, return_index=True)[1])
    latency = {name: 1e3 / rows.numbers(column, 0)[kept] for name, column in DEVICES.items()}
    return Rows(genes[kept], rows.numbers(ACCURACY)[kept], latency)
