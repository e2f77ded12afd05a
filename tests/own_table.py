"""Our own benchmark table with values made up by a formula, in the layout studies/own_benchmark writes."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from hwbench.accuracy.benchmark.autoformer_cifar10 import FOLDER, LATENCIES, NETWORKS, SPACE, TRAININGS
from hwbench.core import registry, schema
from hwbench.space.activity import sample

N, TRAINED, EPOCHS, SEEDS = 60, 12, 4, 2
_kept: list[tempfile.TemporaryDirectory[str]] = []


@lru_cache(maxsize=1)
def folder() -> Path:
    """Written once, and gone with the process."""
    _kept.append(tempfile.TemporaryDirectory())
    return write(Path(_kept[0].name))


def write(place: Path) -> Path:
    """Writes the three tables; the first networks are trained too, the last training is not finished."""
    drawn = sample(registry.get("space", SPACE), 4 * N, np.random.default_rng(1))
    names = list(dict.fromkeys(column.tobytes().hex() for column in np.ascontiguousarray(drawn.T)))[:N]
    inherited = [
        {
            "architecture": name,
            "bin": i % 3,
            "parameters": 1000 + i,
            "macs": 10 * (i + 1),
            "validation": 40 + i / 7,
            "test": 41 + i / 8,
            "machine": "box",
        }
        for i, name in enumerate(names)
    ]
    trained = [
        {"architecture": name, "seed": seed, "epoch": epoch, "loss": 2 / epoch, "validation": 30 + i + epoch + seed,
         "test": 50.0 + i + seed if epoch == EPOCHS else None, "machine": "box"}
        for i, name in enumerate(names[:TRAINED]) for seed in range(SEEDS) for epoch in range(1, EPOCHS + 1)
    ]  # fmt: skip
    timed = [
        {"architecture": name, "device": "board", "latency_min_ms": 1 + (i * 7 % N) / N, "latency_median_ms": 2.0}
        for i, name in enumerate(names)
    ]
    for table, rows in ((NETWORKS, inherited), (TRAININGS, trained[:-1]), (LATENCIES, timed)):
        schema.write(place / FOLDER / f"{table.name.rpartition('-')[2]}.parquet", table, rows, {})
    return place
