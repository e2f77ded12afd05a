"""Our own table: networks of the space `autoformer-cifar10` trained on CIFAR-10, made by studies/own_benchmark.

Its place is reports/own-benchmark-2026-11-18: give that as the folder of tables. Three accuracies, in percent, are
three variants: `validation` and `test` are those of subnets with weights inherited from one supernet, on images held out of
training, which a search may see, and on the test images; `scratch` is the mean over seeds of networks trained on their own, on
the test images, with the validation accuracy after every epoch as partial trainings. Images are re-encoded as JPEG: accuracies
are not comparable with published ones of CIFAR-10.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import Rows, require
from hwbench.core import registry, schema
from hwbench.core.schema import Column, Table

FOLDER, SPACE = "own-benchmark", "autoformer-cifar10"
VARIANTS = {"validation": {"accuracy": "validation"}, "test": {"accuracy": "test"}, "scratch": {"accuracy": "scratch"}}
_ARCHITECTURE = Column("architecture", "string", "the genes as hexadecimal bytes, canonical")
NETWORKS = Table(
    "own-benchmark-networks",
    1,
    (
        _ARCHITECTURE,
        Column("bin", "int64", "which third of the space's range of parameters: 0, 1 or 2"),
        Column("parameters", "int64", "learned values"),
        Column("macs", "int64", "multiply-accumulates of one image"),
        Column("validation", "float64", "percent right of the held-out training images, weights inherited from the supernet"),
        Column("test", "float64", "percent right of the test images, weights inherited from the supernet"),
        Column("machine", "string", "where it was judged"),
    ),
    ("architecture",),
)
TRAININGS = Table(
    "own-benchmark-trainings",
    1,
    (
        _ARCHITECTURE,
        Column("seed", "int64", "of initial weights, order and augmentation"),
        Column("epoch", "int64", "epochs trained so far"),
        Column("loss", "float64", "mean training loss of the epoch"),
        Column("validation", "float64", "percent right of the held-out training images"),
        Column("test", "float64", "percent right of the test images; after the last epoch only", nullable=True),
        Column("machine", "string", "where it was trained"),
    ),
    ("architecture", "seed", "epoch"),
)
LATENCIES = Table(
    "own-benchmark-latencies",
    1,
    (
        _ARCHITECTURE,
        Column("device", "string", "which machine, all its networks in one sitting"),
        Column("latency_min_ms", "float64", "level of interleaved processes"),
        Column("latency_median_ms", "float64", "median run"),
    ),
    ("architecture", "device"),
)


class AutoformerCifar10:
    """Width, depth, heads and ratio per layer."""

    name: str
    genes = tuple((gene.label, len(gene.choices)) for gene in registry.get("space", SPACE).genes)

    def __init__(self, accuracy: str) -> None:
        self._accuracy = accuracy

    def read(self, folder: Path) -> Rows:
        """The networks that have this accuracy, with the latencies measured so far."""
        return _read(folder, self._accuracy)


@lru_cache(maxsize=3)
def _read(folder: Path, accuracy: str) -> Rows:
    inherited, trained, timed = (folder / FOLDER / f"{name}.parquet" for name in ("networks", "trainings", "latencies"))
    require(folder, *(str(path.relative_to(folder)) for path in (inherited, trained)))
    partial: dict[float, dict[str, float]] = {}
    if accuracy == "scratch":
        known, partial = _from_scratch(schema.read(trained, TRAININGS)[0])
    else:
        rows = schema.read(inherited, NETWORKS)[0]
        known = dict(zip(rows["architecture"].to_pylist(), rows[accuracy].to_pylist(), strict=True))
    latency: dict[str, dict[str, float]] = defaultdict(dict)
    if timed.exists():
        for row in schema.read(timed, LATENCIES)[0].to_pylist():
            latency[row["device"]][row["architecture"]] = row["latency_min_ms"]

    def column(values: dict[str, float]) -> np.ndarray:
        return np.array([values.get(name, np.nan) for name in known])

    genes = np.array([list(bytes.fromhex(name)) for name in known], np.uint8).reshape(len(known), -1)
    return Rows(
        genes,
        column(known),
        {name: column(ms) for name, ms in latency.items()},
        {share: column(values) for share, values in partial.items()},
    )


def _from_scratch(rows: Any) -> tuple[dict[str, float], dict[float, dict[str, float]]]:
    """(architecture -> mean test accuracy, share of the training -> the same of validation); of those with every seed."""
    curves: dict[tuple[str, int], dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in rows.to_pylist():
        curves[row["architecture"], row["seed"]][row["epoch"]] = row
    seeds = sorted({seed for _, seed in curves})
    epochs = max((epoch for curve in curves.values() for epoch in curve), default=0)
    finished = [
        name
        for name in dict.fromkeys(name for name, _ in curves)
        if all(len(curves.get((name, seed), ())) == epochs for seed in seeds)
    ]

    def mean(name: str, epoch: int, column: str) -> float:
        return float(np.mean([curves[name, seed][epoch][column] for seed in seeds]))

    partial = {epoch / epochs: {name: mean(name, epoch, "validation") for name in finished} for epoch in range(1, epochs)}
    return {name: mean(name, epochs, "test") for name in finished}, partial
