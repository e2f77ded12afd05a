"""What every benchmark table keeps: rows match genes, answers are the rows, the front is exact."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hwbench.accuracy.benchmark.base import PERCENT, Benchmark, ProxyTable, Rows, grid_size
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.genes import keys
from hwbench.space.activity import canonical, valid
from hwbench.space.lowering import lower
from hwbench.testing.base import Contract


class BenchmarkContract(Contract):
    """Read from `folder`, or from where HWBENCH_TABLES says."""

    kind = "benchmark"
    folder: str | Path | None = None
    least_devices, least_networks, least_absent = 0, 1, 0
    """So many devices, networks with each cost, and of 200 random architectures so many it does not hold."""
    _read: ClassVar[dict[str, Rows]] = {}

    def table(self) -> tuple[Benchmark, Rows]:
        """The table and its rows, read once."""
        benchmark: Benchmark = self.make()
        if self.called not in self._read:
            self._read[self.called] = benchmark.read(self.place())
        return benchmark, self._read[self.called]

    def place(self) -> Path:
        """The folder of tables."""
        folder = Path(self.folder or os.environ.get("HWBENCH_TABLES") or "")
        if not (self.folder or os.environ.get("HWBENCH_TABLES")) or not folder.is_dir():
            self.skip("no folder of benchmark tables; give one, or set HWBENCH_TABLES")
        return folder

    def some_costs(self, rows: Rows) -> list[str]:
        """About four of its devices and other costs."""
        known = [*rows.latency_ms, *rows.costs]
        return known[:: max(1, len(known) // 4)]

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

    def test_accuracies_are_finite_and_per_cent_lie_above_0_and_at_most_at_100(self) -> None:
        """Of every training, brief ones too."""
        _, rows = self.table()
        known = int((~np.isnan(rows.accuracy)).sum())
        self.expect(known > 0, "read", "expected networks with an accuracy, found none")
        for share, accuracy in [(1.0, rows.accuracy), *rows.partial.items()]:
            self.expect(0 < share <= 1, "read", f"expected shares of a training above 0 and at most 1, found {share}")
            self.expect(accuracy.shape == (len(rows),), "read", f"expected {len(rows)} accuracies, found {accuracy.shape}")
            there = accuracy[~np.isnan(accuracy)]
            fits = np.isfinite(there).all() and (rows.unit != PERCENT or ((there > 0) & (there <= 100)).all())
            self.expect(fits, "read", f"expected finite accuracies, in {PERCENT} above 0 and at most 100")

    def test_every_network_has_a_cost(self) -> None:
        """A latency on devices, another cost, or a space whose costs hwbench tells."""
        _, rows = self.table()
        devices = len(rows.latency_ms)
        self.expect(devices >= self.least_devices, "read", f"expected {self.least_devices} devices or more, found {devices}")
        self.expect(devices or rows.costs or rows.space, "read", "expected devices, other costs or a space, found none")
        if rows.space:
            mine = tuple((gene.label, len(gene.choices)) for gene in registry.get("space", rows.space).genes)
            self.expect(self.make().genes == mine, "genes", f"expected those of the space {rows.space}")
        for name in (*rows.latency_ms, *rows.costs):
            cost = rows.cost_of(name)
            self.expect(cost.shape == (len(rows),), "read", f"expected {len(rows)} values of {name}, found {cost.shape}")
            mine_too = rows.usable(name)
            enough = len(mine_too) >= self.least_networks
            self.expect(enough, "read", f"expected {self.least_networks} networks with {name} or more, found {len(mine_too)}")
            self.expect((cost[mine_too] > 0).all(), "read", f"expected {name} above 0")

    def test_networks_are_those_of_the_space(self) -> None:
        """Where hwbench can build them: canonical, each once, with accuracies, published scores and cells of all."""
        benchmark, rows = self.table()
        if not hasattr(benchmark, "proxy_table"):
            return
        known: Any = benchmark
        table: ProxyTable = known.proxy_table(self.place())
        self.expect(table.space.name == rows.space, "proxy_table", f"expected space {rows.space}, found {table.space.name}")
        population = table.population
        same = np.array_equal(canonical(table.space, population), population) and valid(table.space, population).all()
        self.expect(same, "proxy_table", "expected canonical architectures that are networks")
        self.expect(len(set(keys(population.T))) == len(table), "proxy_table", "expected every network once")
        for name, values in {**table.accuracies, **table.published, "cells": table.cells}.items():
            self.expect(values.shape == (len(table),), "proxy_table", f"expected {len(table)} {name}, found {values.shape}")
        mine = rows.at(np.ascontiguousarray(population.T), rows.accuracy)
        held = any(np.array_equal(mine, values, equal_nan=True) for values in table.accuracies.values())
        self.expect(held, "proxy_table", "expected the accuracy of `read` among its accuracies")
        for column in population.T[:3]:
            lower(table.space, column)

    def test_a_query_answers_with_the_rows_whatever_their_order(self) -> None:
        """NaN where an architecture is no network."""
        _, rows = self.table()
        at = np.random.default_rng(0).permutation(len(rows))[:500]
        found = rows.at(rows.genes[at], rows.accuracy)
        same = np.array_equal(found, rows.accuracy[at], equal_nan=True)
        self.expect(same, "read", "expected the accuracies of the rows asked for")
        for name in (name for name in self.some_costs(rows) if name in rows.latency_ms):
            latency = np.where(np.isnan(rows.accuracy), np.nan, rows.latency_ms[name])
            same = np.array_equal(rows.query(rows.genes[at], name)["latency_ms"], latency[at], equal_nan=True)
            self.expect(same, "read", f"expected the latencies on {name} of the rows asked for")

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
        for column in (rows.accuracy, *map(rows.cost_of, self.some_costs(rows))):
            absent = np.isnan(rows.at(drawn, column)).all()
            self.expect(absent, "read", "expected NaN for architectures the table does not hold")

    def test_the_front_is_exact(self) -> None:
        """No member is beaten by any network, and every other network is beaten by, or equal to, a member."""
        _, rows = self.table()
        for name in self.some_costs(rows):
            mine, front, cost = rows.usable(name), rows.front(name), rows.cost_of(name)
            points = np.stack([cost, -rows.accuracy], axis=1)
            no_worse = (points[front][:, None] <= points[mine][None]).all(axis=2)
            same = (points[front][:, None] == points[mine][None]).all(axis=2)
            self.expect(no_worse.any(axis=0).all(), "read", f"expected every network with {name} behind a member of the front")
            beaten = (points[mine][:, None] <= points[front][None]).all(axis=2).T & ~same
            self.expect(not beaten.any(), "read", f"expected no member of the front of {name} to be beaten")
            self.expect((np.diff(cost[front]) > 0).all(), "read", "expected the front cheapest first")

    def test_an_unknown_device_is_named_with_those_there_are(self) -> None:
        """`Rows.latency_of` says it."""
        _, rows = self.table()
        with self.refusal(UsageError, r"Unknown device 'toaster'\..*Available: ", "read"):
            rows.cost_of("toaster")

    def test_a_folder_without_the_table_is_named(self) -> None:
        """`require` says it."""
        message = "is missing; give the folder of benchmark tables by --tables"
        with tempfile.TemporaryDirectory() as empty, self.refusal(UsageError, message, "read"):
            self.make().read(Path(empty))
