"""What the networks of a benchmark table cost: latencies and sizes the table states, or costs hwbench tells of its space.

    rows = read("vitbench-autoformer", tables, ["flops_m", "latency_ms@raspberry-pi-4"])

The names are those a search limits (optimize/cost_kind.py). A latency is then a prediction, which stands for the truth here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hwbench.accuracy.benchmark.base import Rows
from hwbench.core import registry
from hwbench.core.errors import UnknownName
from hwbench.device.target import Target
from hwbench.optimize import cost_kind
from hwbench.optimize.space_problem import as_population


def read(table: str, tables: Path, costs: Sequence[str]) -> Rows:
    """The table, with these costs of every network among its own.

    Raises:
        UnknownName: a cost is neither a device nor another cost of the table, nor one hwbench can tell of its space.
    """
    return _read(table, tables, tuple(costs))


@lru_cache(maxsize=16)
def _read(table: str, tables: Path, costs: tuple[str, ...]) -> Rows:
    rows: Rows = registry.get("benchmark", table).read(tables)
    stated = {**rows.latency_ms, **rows.costs}
    told = {name: _told(rows, name) for name in costs if name not in stated}
    return replace(rows, costs={**rows.costs, **told}) if told else rows


def _told(rows: Rows, name: str) -> np.ndarray:
    """A cost of every network, by its name; NaN for what is no network."""
    if not rows.space or not any(kind.matches(name) for kind in cost_kind.KINDS.values()):
        sizes = [kind for kind in cost_kind.KINDS if not kind.startswith(cost_kind.LATENCY)] if rows.space else []
        known = [*rows.latency_ms, *rows.costs, *sizes]
        more = f", and {cost_kind.LATENCY}@DEVICE by a predictor" if rows.space else ""
        raise UnknownName(f"{registry.unknown('device', name, known)} Those are devices and costs of the table{more}.")
    space, question = registry.get("space", rows.space), cost_kind.Question(Target.of())
    cost, _ = cost_kind.kind_of(name, space, question).compile(space, name, question)
    networks = np.flatnonzero(~np.isnan(rows.accuracy))
    values = np.full(len(rows), np.nan)
    values[networks] = cost.value(as_population(rows.genes[networks]))
    return values
