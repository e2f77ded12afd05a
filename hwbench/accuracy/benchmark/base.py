"""What a benchmark table is: architectures with their accuracy and what they cost, measured by others before.

Tables are not part of hwbench: they are read from `--tables DIR` or the folder named by HWBENCH_TABLES. A search is
validated by letting it ask the table; what the best answer is, the table tells too. A table of networks that hwbench can
build (`proxy_table`) also judges training-free scores.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from hwbench.core import pareto, registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.genes import ENUMERABLE, Genes, keys
from hwbench.space.base import Population, Space

PERCENT = "%"


class Benchmark(Protocol):
    """The contract of a benchmark table.

    One whose networks hwbench can build also has `proxy_table(folder) -> ProxyTable`.
    """

    name: str
    genes: tuple[tuple[str, int], ...]
    """(name, number of choices)."""

    def read(self, folder: Path) -> Rows:
        """The table from a folder of tables.

        Raises:
            UsageError: a file is missing.
        """


@dataclass(frozen=True)
class ProxyTable:
    """Networks of a space and what they were found to be worth by training: what training-free scores are judged by."""

    name: str
    """Of the file: the same for all its variants."""
    space: Space
    population: Population
    """uint8[genes, n]: canonical, each network once."""
    accuracies: Mapping[str, np.ndarray]
    """What was trained for -> one number per network, the higher the better; NaN where it was not trained."""
    published: Mapping[str, np.ndarray]
    """Training-free scores and sizes as their authors published them; NaN where there is none."""
    cells: np.ndarray
    """str[n]: networks of equal depth and width have the same; a score earns its place by its ranks within these."""

    def __len__(self) -> int:
        return int(self.population.shape[1])

    def rows(self, accuracy: str, unit: str = PERCENT) -> Rows:
        """The same as a table that searches ask, by one of its accuracies."""
        genes = np.ascontiguousarray(self.population.T)
        return Rows(genes, self.accuracies[accuracy], {}, space=self.space.name, unit=unit)


def proxy_table(name: str, tables: str | Path | None = None) -> ProxyTable:
    """The networks of a registered table, with every accuracy it has of them.

    Raises:
        UsageError: an unknown table, one whose networks no space of hwbench holds, or a missing file.
    """
    benchmark = registry.get("benchmark", name)
    if not hasattr(benchmark, "proxy_table"):
        known = [each for each in registry.names("benchmark") if hasattr(registry.get("benchmark", each), "proxy_table")]
        raise UsageError(
            f"hwbench cannot build the networks of {name}: no space holds them, so no proxy can score them. "
            f"Tables of networks: {', '.join(registry.shown('benchmark', each) for each in known)}."
        )
    table: ProxyTable = benchmark.proxy_table(folder_of(tables))
    return table


def cells_of(space: Space, population: Population, names: Sequence[str]) -> np.ndarray:
    """str[n]: what each architecture chose of the genes with these labels, such as `embed_dim 192, depth 12`."""
    labels = [gene.label for gene in space.genes]
    chosen = [[f"{name} {space.genes[at].choices[i]}" for i in population[at]] for name in names for at in [labels.index(name)]]
    return np.array([", ".join(parts) for parts in zip(*chosen, strict=True)])


@dataclass(frozen=True)
class Rows:
    """Every architecture of a table."""

    genes: Genes
    accuracy: np.ndarray
    """In `unit`, the higher the better; NaN for architectures that are no networks (disconnected) or were not trained."""
    latency_ms: Mapping[str, np.ndarray]
    """Device -> milliseconds; NaN where not measured."""
    partial: Mapping[float, np.ndarray] = field(default_factory=dict)
    """Share of the training -> accuracy after it."""
    costs: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What else the table states of every network, such as `params_m`."""
    space: str = ""
    """The space whose genes these are; nothing where hwbench cannot build the networks."""
    unit: str = PERCENT
    """Of accuracies."""

    def __len__(self) -> int:
        return len(self.genes)

    def latency_of(self, device: str) -> np.ndarray:
        """Milliseconds on one device."""
        if device not in self.latency_ms:
            raise UnknownName(f"{registry.unknown('device', device, self.latency_ms)} Those are the devices of the table.")
        return self.latency_ms[device]

    def cost_of(self, name: str) -> np.ndarray:
        """Latency on a device, or another cost of the table."""
        return self.costs[name] if name in self.costs else self.latency_of(name)

    def find(self, genes: Genes) -> np.ndarray:
        """Index of each architecture; -1 where the table does not hold it."""
        if self._place is None:
            return np.array([self._rows.get(key, -1) for key in keys(genes)], int)
        inside = (genes < self._sizes).all(axis=1)
        return np.where(inside, self._place[np.where(inside, genes @ self._steps, 0)], -1)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Choices of each gene that occur."""
        return np.asarray(self.genes.max(axis=0).astype(int) + 1)

    @cached_property
    def _steps(self) -> np.ndarray:
        """Genes times these are the number of a combination."""
        return np.ascontiguousarray(np.cumprod([1, *self._sizes[:0:-1]])[::-1])

    @cached_property
    def _place(self) -> np.ndarray | None:
        """Row of every combination, where there are few enough: a search with free costs looks up whole spaces."""
        if math.prod(self._sizes.tolist()) > ENUMERABLE:
            return None
        place = np.full(math.prod(self._sizes.tolist()), -1)
        place[self.genes @ self._steps] = np.arange(len(self.genes))
        return place

    @cached_property
    def _rows(self) -> dict[bytes, int]:
        return {key: row for row, key in enumerate(keys(self.genes))}

    def at(self, genes: Genes, column: np.ndarray) -> np.ndarray:
        """A column of the table (one number per row of it) for architectures; NaN where the table does not hold them."""
        rows = self.find(genes)
        return np.where(rows < 0, np.nan, column[rows])

    def query(self, genes: Genes, device: str) -> dict[str, np.ndarray]:
        """Accuracy and latency of architectures; NaN for those that are no networks or not in the table."""
        accuracy, latency = self.at(genes, self.accuracy), self.at(genes, self.latency_of(device))
        return {"accuracy": accuracy, "latency_ms": np.where(np.isnan(accuracy), np.nan, latency)}

    def usable(self, cost: str) -> np.ndarray:
        """Indices of the networks with an accuracy and that cost: a device they were measured on, or another one."""
        return np.flatnonzero(~np.isnan(self.accuracy) & ~np.isnan(self.cost_of(cost)))

    def fingerprint(self, costs: Sequence[str]) -> str:
        """SHA-256 of architectures, accuracies and these costs or latencies on devices: which data a result rests on."""
        columns = [self.accuracy, *(self.cost_of(cost) for cost in costs)]
        return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in (self.genes, *columns))).hexdigest()

    def front(self, cost: str) -> np.ndarray:
        """Indices of the exact front of accuracy and latency (or another cost), fastest first."""
        mine = self.usable(cost)
        front = pareto.front(np.stack([self.cost_of(cost)[mine], -self.accuracy[mine]], axis=1))
        return np.asarray(mine[front])


def folder_of(tables: str | Path | None) -> Path:
    """The folder of benchmark tables: the one given, or the one HWBENCH_TABLES names.

    Raises:
        UsageError: neither is given, or it is no folder.
    """
    given = tables or os.environ.get("HWBENCH_TABLES")
    if not given:
        raise UsageError("Where are the benchmark tables? Give --tables DIR or set HWBENCH_TABLES.")
    if not Path(given).is_dir():
        raise UsageError(f"There is no folder of benchmark tables at {given}; give another by --tables or HWBENCH_TABLES.")
    return Path(given)


def require(folder: Path, *names: str) -> list[Path]:
    """The files of a folder of tables, all of them there."""
    paths = [folder / name for name in names]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise UsageError(f"{missing[0]} is missing; give the folder of benchmark tables by --tables or HWBENCH_TABLES.")
    return paths


def grid_size(genes: tuple[tuple[str, int], ...]) -> int:
    """Number of combinations."""
    return math.prod(size for _, size in genes)


def gene_sizes(space: str) -> tuple[tuple[str, int], ...]:
    """The genes of a space as a table states them."""
    return tuple((gene.label, len(gene.choices)) for gene in registry.get("space", space).genes)
