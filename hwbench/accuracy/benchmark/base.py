"""What a benchmark table is: architectures with their accuracy and their latency on several devices, all measured before.

Tables are not part of hwbench: they are read from `--tables DIR` or the folder named by HWBENCH_TABLES. A search is
validated by letting it ask the table; what the best answer is, the table tells too.
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


class Benchmark(Protocol):
    """The contract of a benchmark table."""

    name: str
    genes: tuple[tuple[str, int], ...]
    """(name, number of choices)."""

    def read(self, folder: Path) -> Rows:
        """The table from a folder of tables.

        Raises:
            UsageError: a file is missing.
        """


@dataclass(frozen=True)
class Rows:
    """Every architecture of a table."""

    genes: Genes
    accuracy: np.ndarray
    """Percent; NaN for architectures that are no networks (disconnected)."""
    latency_ms: Mapping[str, np.ndarray]
    """Device -> milliseconds; NaN where not measured."""
    partial: Mapping[float, np.ndarray] = field(default_factory=dict)
    """Share of the training -> accuracy after it."""

    def __len__(self) -> int:
        return len(self.genes)

    def latency_of(self, device: str) -> np.ndarray:
        """Milliseconds on one device."""
        if device not in self.latency_ms:
            raise UnknownName(f"{registry.unknown('device', device, self.latency_ms)} Those are the devices of the table.")
        return self.latency_ms[device]

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

    def usable(self, device: str) -> np.ndarray:
        """Indices of the networks measured on a device."""
        return np.flatnonzero(~np.isnan(self.accuracy) & ~np.isnan(self.latency_of(device)))

    def fingerprint(self, devices: Sequence[str]) -> str:
        """SHA-256 of architectures, accuracies and the latencies of these devices: which data a result rests on."""
        columns = [self.accuracy, *(self.latency_of(device) for device in devices)]
        return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in (self.genes, *columns))).hexdigest()

    def front(self, device: str) -> np.ndarray:
        """Indices of the exact front of accuracy and latency, fastest first."""
        mine = self.usable(device)
        front = pareto.front(np.stack([self.latency_of(device)[mine], -self.accuracy[mine]], axis=1))
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
