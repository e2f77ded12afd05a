"""The tables scores are judged on: networks of a space, their accuracies, and cells of equal depth and width.

ViT-Bench's AutoFormer and PiT subnets (columns of networks with a teacher judge; the others say little), NAS-Bench-BERT's
networks by their mean GLUE score, and our own table of CIFAR-10 by the test accuracy of inherited weights, where it is there.
NAS-Bench-201's cells are no Transformers: what our own score and the baselines say of networks of another kind.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from hwbench.accuracy.benchmark.base import ProxyTable, proxy_table
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.space.activity import canonical
from hwbench.space.base import Population, Space
from studies.harness import Run
from studies.own_benchmark import subnets
from studies.provenance import ROOT

OWN = ROOT / "reports" / "own-benchmark-2026-11-19"


@dataclass(frozen=True)
class Source:
    """Which table, and what of it judges."""

    benchmark: str
    judged: tuple[str, ...]
    ours: bool = False
    """It lies in this repository's reports."""
    drawn: int = 0
    """So many of its networks, drawn by a seed; all where 0."""
    only: tuple[str, ...] = ()
    """Scores that are judged on it; all where empty."""


TAUGHT = ("c100-kd", "flower-kd", "chaoyang-kd")
SOURCES = {
    "autoformer": Source("vitbench-autoformer", TAUGHT),
    "pit": Source("vitbench-pit", TAUGHT),
    "bert": Source("nasbench-bert", ("glue",)),
    "cifar10": Source("autoformer-cifar10-test", ("test",), ours=True),
    "cells": Source("nasbench201-cifar10", ("cifar10",), drawn=1000, only=("params", "flops", "depth", "width", "hwbench")),
}
TINY = 6
"""Networks of a trial run."""


@dataclass(frozen=True)
class Known:
    """A table."""

    name: str
    space: Space
    population: Population
    accuracies: Mapping[str, np.ndarray]
    """Column -> a number per network, higher is better; NaN where it has none."""
    judged: tuple[str, ...]
    """Columns that judge: agreement is the mean of the taus with them."""
    cells: np.ndarray
    """A number per network: those of one cell have equal depth and width."""
    bins: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Range of parameters -> indices of its networks, where the table is made of such."""

    def __len__(self) -> int:
        return int(self.population.shape[1])

    def part(self, chosen: np.ndarray) -> Known:
        """Some of its networks, by index."""
        accuracies = {name: each[chosen] for name, each in self.accuracies.items()}
        return Known(self.name, self.space, self.population[:, chosen], accuracies, self.judged, self.cells[chosen])


def there(options: argparse.Namespace, name: str) -> bool:
    """Whether a table can be read here: ours may not be made yet."""
    return not SOURCES[name].ours or (_ours(options) / "own-benchmark" / "networks.parquet").is_file()


def read(run: Run, name: str) -> Known:
    """A table by its short name; a few networks of it in a trial run."""
    source = SOURCES[name]
    if not there(run.options, name):
        raise UsageError("Our own table is not made yet: python -m studies.own_benchmark, or give its folder by --own DIR.")
    known = _read(name, _ours(run.options) if source.ours else run.tables)
    return known.part(np.arange(TINY)) if run.tiny else known


def _ours(options: argparse.Namespace) -> Path:
    return Path(options.own or OWN)


@lru_cache(maxsize=None)
def _read(name: str, folder: Path) -> Known:
    source = SOURCES[name]
    return of(name, _drawn(source, folder) if source.drawn else proxy_table(source.benchmark, folder), source)


def _drawn(source: Source, folder: Path) -> ProxyTable:
    """Some cells of NAS-Bench-201, a table whose reader does not build networks; those that are the same network count once."""
    rows = registry.get("benchmark", source.benchmark).read(folder)
    space = registry.get("space", source.benchmark.partition("-")[0])
    trained = np.flatnonzero(np.isfinite(rows.accuracy))
    chosen = np.random.default_rng(0).choice(trained, source.drawn, replace=False)
    population, first = np.unique(canonical(space, rows.genes[chosen].T), axis=1, return_index=True)
    population = np.ascontiguousarray(population)
    depth = registry.get("proxy", "depth").compile(space)(population)
    return ProxyTable(source.benchmark, space, population, {"cifar10": rows.accuracy[chosen[first]]}, {}, depth)


def of(name: str, table: ProxyTable, source: Source) -> Known:
    """A table as this study needs it."""
    lacking = [column for column in source.judged if column not in table.accuracies]
    if lacking:
        raise UsageError(f"{table.name} has no accuracy '{lacking[0]}'; it has {', '.join(table.accuracies)}.")
    cells = np.unique(table.cells, return_inverse=True)[1]
    places = subnets.bins(table.population) if source.ours else None
    bins = {} if places is None else {f"bin {at}": np.flatnonzero(places == at) for at in range(subnets.BINS)}
    return Known(name, table.space, table.population, table.accuracies, source.judged, cells, bins)
