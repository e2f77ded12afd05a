"""Active profiling: measure next what the model of ops is least sure of and the space's networks use most.

    hwbench profile --space nasvit --until 'p95 error < 3 %'

A table of hundreds of rows is mostly redundant: neighbours in size predict each other. Starting from a few rows that
span every group of ops, the loop fits an `OpModel`, works out how wrong sums of its rows may be for networks drawn from
the space, and measures the batch that lowers the variance of those sums most (greedy, by the model's covariance: a row
whose neighbour is in the batch already gains little). It stops when the estimate meets the goal.

The error meant here is that of a sum of rows against the sum of a full table. It rests on the model's own doubts,
scaled so that they explain the errors of measured rows left out. What separates a sum of rows from a measured network
is the business of `hwbench fit`. The table holds measured rows only; `fit` fills the gaps and says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.core.progress import Tick, no_tick
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.op_latency import OpModel, known
from hwbench.predictor.row_order import first_rows, random_order, space_filling
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import ProfileResult, doubts, needed_specs, profile_specs
from hwbench.space import activity, slots
from hwbench.space.base import Space

GOAL = re.compile(r"(p95|mean) error < ([0-9]+(?:\.[0-9]+)?) ?%")
ORDERS = ("active", "random", "space-filling")
NETWORKS = 256
"""Networks drawn from each space: they say how often rows are used and how their errors add."""
DRAWS, CONFIDENCE = 200, 0.95
"""Draws of the model's doubt behind an estimate; share of them that stay below it."""
LEAST_BATCH, BATCHES = 8, 24
"""A batch is this many rows at least, and this part of the table: every batch starts worker processes of its own."""


@dataclass(frozen=True)
class Goal:
    """Measure until an error of the space's networks is estimated below a limit."""

    statistic: str
    """p95 or mean."""
    limit: float
    """Relative."""

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Reads 'p95 error < 3 %' or 'mean error < 1.5 %'."""
        match = GOAL.fullmatch(" ".join(text.split()))
        if match is None or float(match[2]) <= 0:
            raise UsageError(f"Goal '{text}' is not understood; write 'p95 error < 3 %' or 'mean error < 1.5 %'.")
        return cls(match[1], float(match[2]) / 100)

    def __str__(self) -> str:
        return f"{self.statistic} error < {100 * self.limit:g} %"


@dataclass(frozen=True)
class Step:
    """The state of a table after a batch."""

    rows: int
    """Rows measured so far."""
    expected: Mapping[str, float]
    """Estimated relative errors of network sums: mean, p95."""
    error: Mapping[str, float] | None = None
    """True ones, where a full table is at hand."""


@dataclass(frozen=True)
class ActiveResult:
    """What an active profile did."""

    path: Path
    device: str
    rows: int
    """Rows a full table of the spaces has."""
    usable_rows: int
    """Rows with a latency now."""
    measured_rows: int
    """Of these, measured by this call."""
    goal: str
    reached: bool
    steps: Sequence[Step]
    failed: Mapping[str, str]
    doubtful: Mapping[str, str]
    seconds: float


def usage(space_names: Sequence[str], specs: Sequence[OpSpec], seed: int = 0, n: int = NETWORKS) -> np.ndarray:
    """How often each op runs in each of n networks per space: counts[networks, ops]."""
    rng = np.random.default_rng(seed)
    found = []
    for name in space_names:
        space: Space = registry.get("space", name)
        found.append(slots.op_counts(space, activity.sample(space, n, rng), specs))
    return np.vstack(found)


def expected_error(model: OpModel, specs: Sequence[OpSpec], usable: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """Mean and 95th percentile over networks of the relative error of their sums, not exceeded with 95 % confidence.

    Networks share rows and so share errors: all may be wrong at once. The model's doubt is therefore drawn as a whole,
    many times, and the estimate is what 95 % of the draws stay below.

    Args:
        model: Fitted on the usable rows.
        specs: Every row of the full table.
        usable: Which of them are measured: their error is 0.
        counts: Of networks, see `usage`.
    """
    rng = np.random.default_rng(0)
    weights = _weights(model, specs, counts)
    errors = np.zeros((len(counts), DRAWS))
    for at, covariance in _open(model, specs, usable):
        values, vectors = np.linalg.eigh(covariance)
        errors += weights[:, at] @ (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((len(at), DRAWS))
    absolute = np.abs(errors)
    found = {"mean": absolute.mean(axis=0), "p95": np.quantile(absolute, 0.95, axis=0)}
    return {name: float(np.quantile(draws, CONFIDENCE)) for name, draws in found.items()}


def _weights(model: OpModel, specs: Sequence[OpSpec], counts: np.ndarray) -> np.ndarray:
    """Share of every op in every network's latency."""
    shares = counts * np.nan_to_num(model.predict(specs)[0])
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _open(model: OpModel, specs: Sequence[OpSpec], usable: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(positions, covariance) of rows not measured yet, by what they are learnt with."""
    places = np.flatnonzero(~usable)
    return [(places[at], covariance) for at, covariance in model.posterior([specs[i] for i in places.tolist()])]


def next_rows(
    model: OpModel, specs: Sequence[OpSpec], usable: np.ndarray, barred: np.ndarray, counts: np.ndarray, n: int
) -> list[int]:
    """The n rows whose measurement lowers the mean variance of network sums most, one after the other.

    Args:
        model: Fitted on the usable rows.
        specs: Every row of the full table.
        usable: Which of them are measured.
        barred: Which must not be chosen: measured, or failed.
        counts: Of networks, see `usage`.
        n: How many.
    """
    weights = _weights(model, specs, counts)
    parts = [(at, covariance, weights[:, at] @ covariance) for at, covariance in _open(model, specs, usable)]
    taken: list[int] = []
    while len(taken) < n:
        best: tuple[float, int, int] = (-1.0, -1, -1)
        for p, (at, covariance, reach) in enumerate(parts):
            gain = (reach**2).mean(axis=0) / np.maximum(np.diag(covariance), 1e-15)
            gain[barred[at] | np.isin(at, taken)] = -1.0
            if gain.size and gain.max() > best[0]:
                best = (float(gain.max()), p, int(gain.argmax()))
        if best[1] < 0:
            break
        at, covariance, reach = parts[best[1]]
        column = covariance[:, best[2]] / max(float(covariance[best[2], best[2]]), 1e-15)
        parts[best[1]] = (at, covariance - np.outer(column, covariance[best[2]]), reach - np.outer(reach[:, best[2]], column))
        taken.append(int(at[best[2]]))
    return taken


Judge = Callable[[Mapping[str, float]], Mapping[str, float]]
"""Latencies of all rows, measured or filled, by key -> errors of networks (mean, p95)."""


def replay(
    specs: Sequence[OpSpec],
    true_ms: np.ndarray,
    space: str | Sequence[str],
    order: str = "active",
    seed: int = 0,
    setting: Setting = Setting(),
    batch: int | None = None,
    judge: Judge | None = None,
) -> list[Step]:
    """Profiles a table that is known already, row by row in some order: how fast does the network error fall?

    Args:
        specs: Every row of the full table.
        true_ms: Their measured latencies.
        space: The space(s) the table is for.
        order: active, random or space-filling.
        seed: Draws networks, random orders and ties.
        setting: Of the table.
        batch: Rows between two steps; as `profile_until` takes them by default.
        judge: Says how wrong networks are; against sums of the full table by default.
    """
    if order not in ORDERS:
        raise UsageError(f"order '{order}' is unknown; available: {', '.join(ORDERS)}.")
    names = [space] if isinstance(space, str) else list(space)
    true_ms = np.asarray(true_ms, float)
    counts = usage(names, specs, seed)
    batch = batch or batch_size(len(specs))
    fixed = {"random": random_order, "space-filling": space_filling}
    queue = fixed[order](specs, setting, seed) if order in fixed else []
    start = first_rows(specs, setting, seed)
    taken = queue[: len(start)] if queue else start
    steps = []
    while True:
        usable = np.zeros(len(specs), bool)
        usable[taken] = True
        model = OpModel(reach=np.inf, trees=False)
        model.fit([specs[i] for i in taken], true_ms[taken], setting)
        filled = np.where(usable, true_ms, model.predict(specs)[0])
        errors = _true_errors(filled, true_ms, counts) if judge is None else judge(_by_key(specs, filled))
        steps.append(Step(len(taken), expected_error(model, specs, usable, counts), errors))
        if usable.all():
            return steps
        more = next_rows(model, specs, usable, usable, counts, batch) if not queue else queue[len(taken) : len(taken) + batch]
        taken = [*taken, *more]


def _true_errors(filled_ms: np.ndarray, true_ms: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """Errors of networks' sums against those of the full table."""
    errors = np.abs(counts @ filled_ms / (counts @ true_ms) - 1)
    return {"mean": float(errors.mean()), "p95": float(np.quantile(errors, 0.95))}


def _by_key(specs: Sequence[OpSpec], values: np.ndarray) -> dict[str, float]:
    return {spec.key: float(value) for spec, value in zip(specs, values, strict=True)}


def batch_size(rows: int) -> int:
    """Rows measured between two looks at the model."""
    return max(LEAST_BATCH, -(-rows // BATCHES))


@registry.takes(space="space")
def profile_until(
    goal: str | Goal,
    space: str | Sequence[str],
    target: Target,
    level: str = "blocks",
    policy: Policy = Policy(),
    tick: Tick = no_tick,
) -> ActiveResult:
    """Measures rows of a space's table, most useful first, until the goal is met or the table is full.

    Rows the workspace already has count as measured, so an interrupted call goes on where it was.

    Args:
        goal: 'p95 error < 3 %' or 'mean error < 1.5 %'.
        space: One space or several.
        target: Whose table it is.
        level: blocks, primitives or all; networks use blocks, so the others are only measured along.
        policy: How long each row is measured; its seed also draws the networks.
        tick: Progress: (rows measured, rows of the full table).
    """
    started = time.monotonic()
    asked = Goal.parse(goal) if isinstance(goal, str) else goal
    if level != "blocks":
        raise UsageError(f"--until judges sums of fused blocks, so --level must be blocks, not {level}.")
    names = [space] if isinstance(space, str) else list(space)
    specs = needed_specs(names, level)
    counts = usage(names, specs, policy.seed)
    table = _Table(specs, luts.lut_path(target), target.setting)

    def measure(rows: Sequence[int]) -> None:
        seeded = replace(policy, seed=policy.seed + len(steps))
        table.take(profile_specs([specs[i] for i in rows], target, seeded))

    steps: list[Step] = []
    more = first_rows(specs, target.setting, policy.seed)
    reached = False
    while more:
        measure(more)
        model = table.model()
        tick(int(table.barred.sum()), len(specs))
        steps.append(Step(int(table.usable.sum()), expected_error(model, specs, table.usable, counts)))
        reached = steps[-1].expected[asked.statistic] < asked.limit
        batch = batch_size(len(specs))
        more = [] if reached else next_rows(model, specs, table.usable, table.barred, counts, batch)
    return ActiveResult(
        path=table.path,
        device=table.device,
        rows=len(specs),
        usable_rows=int(table.usable.sum()),
        measured_rows=table.measured,
        goal=str(asked),
        reached=reached,
        steps=steps,
        failed=table.failed,
        doubtful=table.doubtful,
        seconds=time.monotonic() - started,
    )


@dataclass
class _Table:
    """A table of a space that is being filled: what is measured of it, and what could not be."""

    specs: Sequence[OpSpec]
    path: Path
    setting: Setting
    device: str = ""
    measured: int = 0
    """Rows measured by this call."""
    failed: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)
    """Of all its rows, worst first."""
    known_ms: np.ndarray = field(default_factory=lambda: np.empty(0))

    def take(self, done: ProfileResult) -> None:
        """Counts a batch that was measured."""
        self.device = done.device
        self.failed.update(done.failed)
        self.measured += done.measured_rows
        table = Lut.read(self.path)
        rows = table.rows_at(self.setting)
        self.doubtful = doubts([rows[spec.key] for spec in self.specs if spec.key in rows])
        self.known_ms = latencies(table, self.specs, self.setting)

    @property
    def usable(self) -> np.ndarray:
        """Which rows have a latency."""
        return np.asarray(~np.isnan(self.known_ms))

    @property
    def barred(self) -> np.ndarray:
        """Which rows need not be measured, or cannot be."""
        return np.asarray(self.usable | np.array([spec.key in self.failed for spec in self.specs]))

    def model(self) -> OpModel:
        """A model of the rows so far.

        Raises:
            MeasurementError: of some group of ops no row could be measured.
        """
        model = OpModel(reach=np.inf, trees=False)
        usable = self.usable
        model.fit([s for s, u in zip(self.specs, usable, strict=True) if u], self.known_ms[usable], self.setting)
        guess = model.predict(self.specs)[0]
        lost = {known(s, self.setting).group for s, ms in zip(self.specs, guess, strict=True) if np.isnan(ms)}
        if lost:
            groups = {key: known(OpSpec.parse(key), self.setting).group for key in self.failed}
            reason = next(why for key, why in self.failed.items() if groups[key] in lost)
            raise MeasurementError(
                f"No row of {', '.join(sorted(lost))} could be measured ({reason}); nothing can be estimated."
            )
        return model


def latencies(table: Lut, specs: Sequence[OpSpec], setting: Setting) -> np.ndarray:
    """`latency_min_ms` of each op; NaN where the table has none."""
    known_ms = table.of_nodes(specs, setting)
    return np.array([known_ms.get(spec.key, np.nan) for spec in specs], float)
