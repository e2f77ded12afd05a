"""What every benchmark table keeps: rows match genes, answers are the rows, the front is exact."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np

from hwbench.accuracy.benchmark.base import Benchmark, Rows, grid_size
from hwbench.core.errors import UsageError
from hwbench.core.genes import keys
from hwbench.testing.base import Contract


class BenchmarkContract(Contract):
    """Read from `folder`, or from where HWBENCH_TABLES says."""

    kind = "benchmark"
    folder: str | Path | None = None
    least_devices, least_networks, least_absent = 1, 1, 0
    """So many devices, networks measured on each, and of 200 random architectures so many it does not hold."""
    _read: ClassVar[dict[str, Rows]] = {}

    def table(self) -> tuple[Benchmark, Rows]:
        """The table and its rows, read once."""
        benchmark: Benchmark = self.make()
        folder = Path(self.folder or os.environ.get("HWBENCH_TABLES") or "")
        if not (self.folder or os.environ.get("HWBENCH_TABLES")) or not folder.is_dir():
            self.skip("no folder of benchmark tables; give one, or set HWBENCH_TABLES")
        if self.called not in self._read:
            self._read[self.called] = benchmark.read(folder)
        return benchmark, self._read[self.called]

    def some_devices(self, rows: Rows) -> list[str]:
        """About four of them."""
        return list(rows.latency_ms)[:: max(1, len(rows.latency_ms) // 4)]

    def test_rows_are_architectures_of_the_genes_each_once(self) -> None:
        """uint8[n, genes]."""
        benchmark, rows = self.table()
        self.expect(rows.genes.dtype == np.uint8, "read", f"expected genes as uint8, found {rows.genes.dtype}")
        wanted = (len(rows), len(benchmark.genes))
        self.expect(rows.genes.shape == wanted, "read", f"expected genes {wanted}, found {rows.genes.shape}")
        inside = (rows.genes < [size for _, size in benchmark.genes]).all()
        self.expect(inside, "genes", "expected every row's choices below the number of choices its gene has")
        different = len(set(keys(rows.genes)))
        once = different == len(rows) <= grid_size(benchmark.genes)
        self.expect(once, "read", f"expected every architecture once, found {different} different ones in {len(rows)} rows")

    def test_every_device_has_positive_latencies_of_networks(self) -> None:
        """And accuracies are per cent."""
        _, rows = self.table()
        devices = len(rows.latency_ms)
        self.expect(devices >= self.least_devices, "read", f"expected {self.least_devices} devices or more, found {devices}")
        for device, latency in rows.latency_ms.items():
            fits = latency.shape == rows.accuracy.shape == (len(rows),)
            self.expect(fits, "read", f"expected {len(rows)} latencies of {device}, found {latency.shape}")
            mine = rows.usable(device)
            enough = len(mine) >= self.least_networks
            self.expect(enough, "read", f"expected {self.least_networks} networks on {device} or more, found {len(mine)}")
            self.expect((latency[mine] > 0).all(), "read", f"expected positive latencies on {device}")
            percent = ((rows.accuracy[mine] > 0) & (rows.accuracy[mine] <= 100)).all()
            self.expect(percent, "read", "expected accuracies in per cent, above 0 and at most 100")

    def test_a_query_answers_with_the_rows_whatever_their_order(self) -> None:
        """NaN where an architecture is no network."""
        _, rows = self.table()
        at = np.random.default_rng(0).permutation(len(rows))[:500]
        for device in self.some_devices(rows):
            found = rows.query(rows.genes[at], device)
            same = np.array_equal(found["accuracy"], rows.accuracy[at], equal_nan=True)
            self.expect(same, "read", "expected the accuracies of the rows asked for")
            latency = np.where(np.isnan(rows.accuracy), np.nan, rows.latency_ms[device])
            same = np.array_equal(found["latency_ms"], latency[at], equal_nan=True)
            self.expect(same, "read", f"expected the latencies on {device} of the rows asked for")

    def test_what_the_table_does_not_hold_is_nan(self) -> None:
        """Where it does not hold everything."""
        benchmark, rows = self.table()
        if len(rows) == grid_size(benchmark.genes):
            return
        shape = (200, len(benchmark.genes))
        drawn = np.random.default_rng(0).integers(0, [size for _, size in benchmark.genes], shape, dtype=np.uint8)
        drawn = drawn[rows.find(drawn) < 0]
        n = len(drawn)
        self.expect(
            n >= self.least_absent, "read", f"expected {self.least_absent} of 200 architectures not to be there, found {n}"
        )
        found = rows.query(drawn, next(iter(rows.latency_ms)))
        absent = np.isnan(found["accuracy"]).all() and np.isnan(found["latency_ms"]).all()
        self.expect(absent, "read", "expected NaN for architectures the table does not hold")

    def test_the_front_is_exact(self) -> None:
        """No member is beaten by any network, and every other network is beaten by, or equal to, a member."""
        _, rows = self.table()
        for device in self.some_devices(rows):
            mine, front = rows.usable(device), rows.front(device)
            points = np.stack([rows.latency_ms[device], -rows.accuracy], axis=1)
            no_worse = (points[front][:, None] <= points[mine][None]).all(axis=2)
            same = (points[front][:, None] == points[mine][None]).all(axis=2)
            self.expect(no_worse.any(axis=0).all(), "read", f"expected every network on {device} behind a member of the front")
            beaten = (points[mine][:, None] <= points[front][None]).all(axis=2).T & ~same
            self.expect(not beaten.any(), "read", f"expected no member of the front on {device} to be beaten")
            self.expect((np.diff(rows.latency_ms[device][front]) > 0).all(), "read", "expected the front fastest first")

    def test_an_unknown_device_is_named_with_those_there_are(self) -> None:
        """`Rows.latency_of` says it."""
        _, rows = self.table()
        with self.refusal(UsageError, r"Unknown device 'toaster'\..*Available: ", "read"):
            rows.query(rows.genes[:1], "toaster")

    def test_a_folder_without_the_table_is_named(self) -> None:
        """`require` says it."""
        message = "is missing; give the folder of benchmark tables by --tables"
        with tempfile.TemporaryDirectory() as empty, self.refusal(UsageError, message, "read"):
            self.make().read(Path(empty))
