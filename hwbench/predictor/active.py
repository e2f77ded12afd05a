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
from dataclasses import dataclass, replace
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
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import ProfileResult, needed_specs, profile_specs
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


def first_rows(specs: Sequence[OpSpec], setting: Setting, seed: int = 0) -> list[int]:
    """Rows that span every group: least and most work, then the farthest from those taken, two more than its sizes."""
    taken = []
    for at, places in _groups(specs, setting):
        varied = int((np.ptp(places, axis=0) > 0).sum())
        taken += [at[i] for i in _farthest(places, min(len(at), 2 + varied), [0, len(at) - 1], seed)]
    return taken


def _groups(specs: Sequence[OpSpec], setting: Setting) -> list[tuple[list[int], np.ndarray]]:
    """(positions by rising work, log sizes scaled to 0..1) of every group."""
    found: dict[str, list[int]] = {}
    for i, spec in enumerate(specs):
        found.setdefault(known(spec, setting).group, []).append(i)
    groups = []
    for at in found.values():
        at.sort(key=lambda i: known(specs[i], setting).features["flops"])
        sizes = np.log1p(np.array([list(known(specs[i], setting).numbers.values()) for i in at]))
        span = np.ptp(sizes, axis=0)
        groups.append((at, (sizes - sizes.min(axis=0)) / np.where(span > 0, span, 1.0)))
    return groups


def _farthest(places: np.ndarray, n: int, start: Sequence[int], seed: int) -> list[int]:
    """Each next one lies farthest from all before; ties by chance."""
    rng = np.random.default_rng(seed)
    chosen = list(dict.fromkeys(start))[:n]
    distance = np.min([np.linalg.norm(places - places[i], axis=1) for i in chosen], axis=0)
    while len(chosen) < n:
        distance[chosen] = -1.0
        best = np.flatnonzero(distance >= distance.max() - 1e-12)
        chosen.append(int(rng.choice(best)))
        distance = np.minimum(distance, np.linalg.norm(places - places[chosen[-1]], axis=1))
    return chosen


def space_filling(specs: Sequence[OpSpec], setting: Setting, seed: int) -> list[int]:
    """All rows in the order of a design that knows sizes only: the row farthest from those taken of its group is next."""
    rng = np.random.default_rng(seed)
    ranked: list[tuple[float, int]] = []
    for at, places in _groups(specs, setting):
        order = _farthest(places, len(at), [int(rng.integers(len(at)))], seed)
        gaps = [np.inf]
        for k in range(1, len(order)):
            gaps.append(float(np.linalg.norm(places[order[:k]] - places[order[k]], axis=1).min()))
        ranked += [(-gap, at[i]) for gap, i in zip(gaps, order, strict=True)]
    return [i for _, i in sorted(ranked, key=lambda pair: pair[0])]


def random_order(specs: Sequence[OpSpec], setting: Setting, seed: int) -> list[int]:
    """All rows in random order, but one of every group first: without it nothing can be said of its networks."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(specs)).tolist()
    first = {known(specs[i], setting).group: i for i in reversed(order)}.values()
    return [*first, *(i for i in order if i not in set(first))]


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
        if judge is None:
            errors = np.abs(counts @ filled / (counts @ true_ms) - 1)
            found: Mapping[str, float] = {"mean": float(errors.mean()), "p95": float(np.quantile(errors, 0.95))}
        else:
            found = judge({spec.key: float(ms) for spec, ms in zip(specs, filled, strict=True)})
        steps.append(Step(len(taken), expected_error(model, specs, usable, counts), found))
        if usable.all():
            return steps
        more = next_rows(model, specs, usable, usable, counts, batch) if not queue else queue[len(taken) : len(taken) + batch]
        taken = [*taken, *more]


def batch_size(rows: int) -> int:
    """Rows measured between two looks at the model."""
    return max(LEAST_BATCH, -(-rows // BATCHES))


@registry.takes(space="space", runtime="runtime")
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
    setting, path = target.setting, luts.lut_path(target)
    failed: dict[str, str] = {}
    doubtful: dict[str, str] = {}
    measured = 0
    steps: list[Step] = []

    def measure(rows: Sequence[int]) -> ProfileResult:
        nonlocal measured
        seeded = replace(policy, seed=policy.seed + len(steps))
        done = profile_specs([specs[i] for i in rows], target, seeded)
        failed.update(done.failed)
        doubtful.update(done.doubtful)
        measured += done.measured_rows
        return done

    done = measure(first_rows(specs, setting, policy.seed))
    while True:
        known_ms = latencies(Lut.read(path), specs, setting)
        usable = ~np.isnan(known_ms)
        barred = usable | np.array([spec.key in failed for spec in specs])
        tick(int(barred.sum()), len(specs))
        model = OpModel(reach=np.inf, trees=False)
        model.fit([s for s, u in zip(specs, usable, strict=True) if u], known_ms[usable], setting)
        lost = {known(s, setting).group for s, ms in zip(specs, model.predict(specs)[0], strict=True) if np.isnan(ms)}
        if lost:
            reason = next(why for key, why in failed.items() if known(OpSpec.parse(key), setting).group in lost)
            raise MeasurementError(
                f"No row of {', '.join(sorted(lost))} could be measured ({reason}); nothing can be estimated."
            )
        steps.append(Step(int(usable.sum()), expected_error(model, specs, usable, counts)))
        reached = steps[-1].expected[asked.statistic] < asked.limit
        more = [] if reached else next_rows(model, specs, usable, barred, counts, batch_size(len(specs)))
        if not more:
            break
        measure(more)
    return ActiveResult(
        path=path,
        device=done.device,
        rows=len(specs),
        usable_rows=int(usable.sum()),
        measured_rows=measured,
        goal=str(asked),
        reached=reached,
        steps=steps,
        failed=failed,
        doubtful=doubtful,
        seconds=time.monotonic() - started,
    )


def latencies(table: Lut, specs: Sequence[OpSpec], setting: Setting) -> np.ndarray:
    """`latency_min_ms` of each op; NaN where the table has none."""
    known_ms = table.values(setting)
    return np.array([known_ms.get(spec.key, np.nan) for spec in specs], float)
