"""Latencies of a benchmark table that a search only gets predicted: from ten measurements of the device and the other devices.

For the settings of `validate` in which latency is predicted. The prediction is the few-shot transfer of `hwbench transfer`;
its upper bound comes from treating each of the other devices as new.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import numpy as np

from hwbench.accuracy.benchmark.base import Benchmark, Rows
from hwbench.core import registry
from hwbench.core.conformal import Band
from hwbench.core.errors import UsageError
from hwbench.predictor.few_shot import transfer
from hwbench.predictor.few_shot.prior import Prior, learn, posterior, prior
from hwbench.predictor.few_shot.tables import LEAST_DEVICES, columns_of
from hwbench.predictor.tabular.positions import Position

MEASURED = 10
"""Measurements of the device a prediction rests on."""
COPY = 0.999
"""Devices whose latencies correlate above this are one device under two names."""


@lru_cache(maxsize=64)
def predicted(table: str, device: str, seed: int, tables: Path) -> tuple[np.ndarray, np.ndarray]:
    """(prediction, upper bound) of every row, from measurements drawn by the seed."""
    rows = registry.get("benchmark", table).read(tables)
    before, band = _prior(table, device, tables)
    # Not the strategy's own stream of numbers.
    measured = np.random.default_rng((seed, MEASURED)).choice(rows.usable(device), MEASURED, replace=False)
    new_device = posterior(before, measured, np.log(rows.latency_of(device)[measured]))
    prediction = np.exp(new_device.mean())
    return prediction, band.bounds(prediction, new_device.deviation())[1]


@lru_cache(maxsize=64)
def _prior(table: str, device: str, tables: Path) -> tuple[Prior, Band]:
    """What the other devices of a table teach about one, and the band of such predictions."""
    benchmark: Benchmark = registry.get("benchmark", table)
    rows = benchmark.read(tables)
    latencies = np.stack([rows.latency_ms[name] for name in other_devices(rows, device)], axis=1)
    logs = np.log(np.where(latencies > 0, latencies, np.nan))
    choices = [Position(name, None, tuple(range(n)), rows.genes[:, g]) for g, (name, n) in enumerate(benchmark.genes)]
    population = learn(logs, columns_of(choices, np.arange(len(rows))))
    measured = np.random.default_rng(0).choice(rows.usable(device), MEASURED, replace=False)
    return prior(population), transfer.rehearse(population, logs, measured).band


def other_devices(rows: Rows, device: str) -> list[str]:
    """Devices that can teach about one: not itself under another name.

    Where enough of them measured everything, only those are taken: that is quicker.

    Raises:
        UsageError: they are too few.
    """
    others = [name for name in rows.latency_ms if not _same(rows, device, name)]
    if len(others) < LEAST_DEVICES or len(rows.usable(device)) < MEASURED:
        raise UsageError(
            f"Predicting {device} needs {LEAST_DEVICES} other devices in the table (it has {len(others)}) "
            f"and {MEASURED} measurements ({len(rows.usable(device))})."
        )
    whole = [name for name in others if not np.isnan(rows.latency_ms[name]).any()]
    return whole if len(whole) >= LEAST_DEVICES else others


def _same(rows: Rows, device: str, other: str) -> bool:
    """Whether a device is the other one: by name, at another batch size (`_32`), or copied from it."""
    stem = re.compile(r"_\d+$")
    if stem.sub("", device) == stem.sub("", other):
        return True
    both = np.log(np.stack([rows.latency_ms[device], rows.latency_ms[other]])[:, ~np.isnan(rows.accuracy)])
    both = both[:, np.isfinite(both).all(axis=0)]
    return both.shape[1] > 2 and bool(np.corrcoef(both)[0, 1] > COPY)
