"""Our own table: networks of the space `autoformer-cifar10` trained on CIFAR-10, made by studies/own_benchmark.

Its place is reports/own-benchmark-2026-11-19: give that as the folder of tables. Three accuracies, in percent, are
three variants: `validation` and `test` are those of subnets with weights inherited from one supernet, on images held out of
training, which a search may see, and on the test images; `scratch` is the mean over seeds of networks trained on their own, on
the test images, with the validation accuracy after every epoch as partial trainings. Images are re-encoded as JPEG: accuracies
are not comparable with published ones of CIFAR-10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import ProxyTable, Rows, cells_of, gene_sizes, require
from hwbench.core import registry, schema
from hwbench.core.errors import DataError
from hwbench.core.genes import Genes
from hwbench.core.schema import Column, Table
from hwbench.space.activity import canonical

FOLDER, SPACE, SCRATCH = "own-benchmark", "autoformer-cifar10", "scratch"
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
    genes = gene_sizes(SPACE)

    def __init__(self, accuracy: str) -> None:
        self._accuracy = accuracy

    def read(self, folder: Path) -> Rows:
        """The networks that have this accuracy, with the latencies measured so far."""
        known = _read(folder)
        accuracy = known.accuracies[self._accuracy]
        mine = np.flatnonzero(~np.isnan(accuracy))
        partial = known.partial if self._accuracy == SCRATCH else {}
        return Rows(
            known.genes[mine],
            accuracy[mine],
            {name: ms[mine] for name, ms in known.latency_ms.items()},
            {share: values[mine] for share, values in partial.items()},
            {name: known.sizes[name][mine] for name in known.sizes},
            SPACE,
        )

    def proxy_table(self, folder: Path) -> ProxyTable:
        """Every network with its three accuracies; beside them each seed's own, which tell the noise."""
        known, space = _read(folder), registry.get("space", SPACE)
        population = np.ascontiguousarray(known.genes.T)
        cells = cells_of(space, population, ("embed_dim", "depth"))
        return ProxyTable(SPACE, space, population, known.accuracies, known.sizes, cells)


@dataclass(frozen=True)
class _Known:
    """Everything the files say of every network; NaN where they say nothing."""

    genes: Genes
    accuracies: Mapping[str, np.ndarray]
    partial: Mapping[float, np.ndarray]
    latency_ms: Mapping[str, np.ndarray]
    sizes: Mapping[str, np.ndarray]


@lru_cache(maxsize=1)
def _read(folder: Path) -> _Known:
    inherited, trained, timed = (folder / FOLDER / f"{name}.parquet" for name in ("networks", "trainings", "latencies"))
    require(folder, *(str(path.relative_to(folder)) for path in (inherited, trained)))
    rows = {row["architecture"]: row for row in schema.read(inherited, NETWORKS)[0].to_pylist()}
    scratch, partial = _from_scratch(schema.read(trained, TRAININGS)[0])
    latency: dict[str, dict[str, float]] = defaultdict(dict)
    if timed.exists():
        for row in schema.read(timed, LATENCIES)[0].to_pylist():
            latency[row["device"]][row["architecture"]] = row["latency_min_ms"]
    names = list(dict.fromkeys([*rows, *scratch[SCRATCH]]))

    def column(values: Mapping[str, float]) -> np.ndarray:
        return np.array([values.get(name, np.nan) for name in names], float)

    def of_rows(name: str, scale: float = 1.0) -> np.ndarray:
        return column({architecture: row[name] * scale for architecture, row in rows.items()})

    return _Known(
        _genes(names),
        {
            **{name: of_rows(name) for name in ("validation", "test")},
            **{name: column(values) for name, values in scratch.items()},
        },
        {share: column(values) for share, values in partial.items()},
        {name: column(ms) for name, ms in latency.items()},
        {"params_m": of_rows("parameters", 1e-6), "macs_m": of_rows("macs", 1e-6)},
    )


def _genes(names: Sequence[str]) -> Genes:
    """Of architectures named in hexadecimal bytes.

    Raises:
        DataError: one is no network of the space, such as it is now.
    """
    space = registry.get("space", SPACE)
    sizes = [len(gene.choices) for gene in space.genes]
    rows = [list(bytes.fromhex(name)) for name in names]
    wrong = [name for name, row in zip(names, rows, strict=True) if len(row) != len(sizes) or any(map(int.__ge__, row, sizes))]
    genes = np.array([] if wrong else rows, np.uint8).reshape(-1, len(sizes))
    wrong = wrong or [names[int(i)] for i in np.flatnonzero((genes != canonical(space, genes.T).T).any(axis=1))]
    if wrong:
        raise DataError(
            f"{FOLDER}: {len(wrong)} of {len(names)} architectures are no networks of {SPACE}; the first is {wrong[0]}."
        )
    return genes


def _from_scratch(rows: Any) -> tuple[dict[str, dict[str, float]], dict[float, dict[str, float]]]:
    """Of the architectures that every seed trained to the end.

    Returns:
        (`scratch`, or `scratch-seed-N` -> architecture -> test accuracy, share of the training -> mean validation accuracy).
    """
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

    final = {SCRATCH: {name: mean(name, epochs, "test") for name in finished}}
    for seed in seeds:
        final[f"{SCRATCH}-seed-{seed}"] = {name: curves[name, seed][epochs]["test"] for name in finished}
    return final, {epoch / epochs: {name: mean(name, epoch, "validation") for name in finished} for epoch in range(1, epochs)}
