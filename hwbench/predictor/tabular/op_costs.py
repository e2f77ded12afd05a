"""Costs per operator of a device on which operators cannot be timed alone, from latencies of whole networks.

    hwbench lut recover --from FILE.parquet --features A,B --target latency_ms --device NAME --out DIR

A latency is taken as a constant plus one cost for each choice an architecture makes; no cost is negative. Only
differences within a choice can be seen from outside: where every architecture chooses something, the cheapest level is
set to 0 and its cost is part of the constant. Levels that always occur together cannot be told apart and are listed,
not guessed. The error is of rows left out in turn; on the exact-sum devices of the public tables it is 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import schema, stats
from hwbench.core.command import Value, command
from hwbench.core.errors import UsageError
from hwbench.core.typed_json import encode
from hwbench.predictor import card as cards
from hwbench.predictor.card_types import RECOVERED, RecoveredCard
from hwbench.predictor.tabular import positions

FOLDS = 5
LUT = "lut.parquet"
ROUNDING = 1e-9
"""Costs and differences below this, against a mean latency, are rounding."""


@dataclass(frozen=True)
class Cost:
    """What choosing a level adds."""

    column: str
    place: int | None
    """Place in a list; None for a plain column, or where a list's places share their costs."""
    level: str
    cost_ms: float
    rows: int
    """Networks that chose it."""


@dataclass(frozen=True)
class Recovered:
    """A device's costs and how far they explain it."""

    costs: list[Cost]
    constant_ms: float
    """Of every network; holds the cheapest level of each choice."""
    errors: dict[str, Any]
    """Relative errors of rows left out in turn."""
    exact: bool
    """Whether the sum is the latency, to rounding: the device is an analytical one."""
    noise_ceiling: dict[str, Any]
    """Error a perfect sum would have, from rows that chose alike; null where there are none."""
    confounded: list[list[str]]
    """Sets of levels whose costs cannot be told apart; each cost in a set is one possible answer of many."""
    card: dict[str, Any]


def recover(
    source: str | Path,
    features: Sequence[str],
    target: str = "latency_ms",
    device: str = "unknown",
    out: str | Path | None = None,
    shared: bool = False,
    where: Mapping[str, str] | None = None,
) -> Recovered:
    """Recovers costs per (column, level) by non-negative regression; stores them as a table with a card if `out` is given.

    Args:
        source: Parquet file with one row per measured network.
        features: Columns of choices: text, numbers, or lists (one choice per place).
        target: Column of latencies, ms.
        device: What was measured, for the card.
        out: Folder for lut.parquet and card.json.
        shared: Whether a level costs the same in every place of a list.
        where: Only rows whose columns have these values.

    Raises:
        UsageError: a column is missing, a latency not positive, or there are too few rows to judge the costs.
    """
    data = _selected(source, where or {})
    choices = positions.read(data, features)
    y = _target(data, target, source)
    names, design = _design(choices, shared)
    _, group = positions.distinct(choices)
    constant, costs = _settle(names, design, *_solve(design, y))
    costs[costs < ROUNDING * y.mean()] = 0.0
    errors = _errors(y, _left_out(design, y, group), _predict(design, constant, costs))
    counts = design.sum(axis=0)
    found = [
        Cost(column, place, str(level), float(cost), int(count))
        for (column, place, level), cost, count in zip(names, costs, counts, strict=True)
    ]
    card: dict[str, Any] = {
        "kind": RECOVERED,
        "device": device,
        "data": {**cards.data_of(source, len(y)), "where": dict(where or {})},
        "target": target,
        "features": list(features),
        "shared": shared,
        "constant_ms": float(constant),
        "exact": bool(errors["rmse_ms"] <= 1e-6 * y.mean()),
        "errors": {"left_out": errors},
        "coverage": None,
        "noise_ceiling": _ceiling(group, y),
        "confounded": _confounded(names, design),
        "rebuild": _command(source, features, target, device, shared, where or {}),
    }
    if out is not None:
        card = _store(Path(out), found, card, {"costs": costs, "constant": np.array([constant])})
    return Recovered(found, float(constant), errors, card["exact"], card["noise_ceiling"], card["confounded"], card)


def _selected(source: str | Path, where: Mapping[str, str]) -> Any:
    """The rows whose columns have these values."""
    data = schema.read_table(Path(source))
    for column, value in where.items():
        if column not in data.column_names:
            raise UsageError(f"{source} has no column '{column}' to select rows by.")
        data = data.filter(np.array([str(each) == value for each in data.column(column).to_pylist()], bool))
    if data.num_rows <= FOLDS:
        raise UsageError(f"{source} has {data.num_rows} such rows; recovering costs needs many more than {FOLDS}.")
    return data


def _left_out(design: np.ndarray, y: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Every row predicted by costs recovered without it."""
    # Networks are left out whole, unless they are so few that a level would go with them.
    parts = group if group.max() >= 2 * FOLDS else np.arange(len(y))
    folds = np.random.default_rng(0).permutation(parts.max() + 1)[parts] % FOLDS
    predicted = np.empty_like(y)
    for fold in range(FOLDS):
        left = folds == fold
        if left.any() and (~left).any():
            predicted[left] = _predict(design[left], *_solve(design[~left], y[~left]))
    return predicted


def _errors(y: np.ndarray, predicted: np.ndarray, fitted: np.ndarray) -> dict[str, Any]:
    """How wrong costs are on rows left out, and what the costs of all rows leave unexplained."""
    return {
        "rows": len(y),
        "mean_abs_error": float(np.mean(np.abs(predicted / y - 1))),
        "max_abs_error": float(np.max(np.abs(predicted / y - 1))),
        "rmse_ms": float(np.sqrt(np.mean((predicted - y) ** 2))),
        "residual_ms": float(np.sqrt(np.mean((y - fitted) ** 2))),
        "spearman": stats.spearman(*(np.round(each / y.mean() / ROUNDING) for each in (predicted, y))),
    }


def _store(out: Path, costs: Sequence[Cost], card: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Writes the costs as a table with a card; returns the card's document."""
    import pyarrow as pa

    rows = [vars(each) for each in costs]
    schema.write_table(out / LUT, pa.table({name: [row[name] for row in rows] for name in Cost.__dataclass_fields__}))
    known = {**card, "lut_sha256": hashlib.sha256((out / LUT).read_bytes()).hexdigest()}
    return dict(encode(cards.write(out, RecoveredCard, known, arrays)))


Name = tuple[str, int | None, Any]


def _design(choices: Sequence[positions.Position], shared: bool) -> tuple[list[Name], np.ndarray]:
    """One 0/1 column per level met (a count, where places share their costs); what is absent costs nothing."""
    columns: dict[Name, np.ndarray] = {}
    for position in choices:
        if len(position.levels) > positions.MANY_LEVELS:
            shown = f"Column '{position.name}' has {len(position.levels)} levels"
            raise UsageError(f"{shown}; more than {positions.MANY_LEVELS} have no cost each. Leave it out or bin it.")
        for code in np.unique(position.codes):
            level = position.levels[code]
            if level == positions.ABSENT:
                continue
            name = (position.column, None if shared else position.place, level)
            columns[name] = columns.get(name, 0.0) + (position.codes == code)
    return list(columns), np.stack(list(columns.values()), axis=1).astype(float)


def _solve(design: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """(constant, costs), none negative, least squares relative to the latency: on a QR triangle, rows are many."""
    from scipy.optimize import nnls

    whole = np.concatenate([np.ones((len(y), 1)), design], axis=1) / y[:, None]
    triangle = np.asarray(np.linalg.qr(np.concatenate([whole, np.ones((len(y), 1))], axis=1), mode="r"))
    found, _ = nnls(triangle[:, :-1], triangle[:, -1], maxiter=50 * whole.shape[1])
    return float(found[0]), found[1:]


def _predict(design: np.ndarray, constant: float, costs: np.ndarray) -> np.ndarray:
    return np.asarray(constant + design @ costs)


def _settle(names: Sequence[Name], design: np.ndarray, constant: float, costs: np.ndarray) -> tuple[float, np.ndarray]:
    """Moves into the constant what every network pays: the cheapest level of a choice that is always made."""
    costs = costs.copy()
    for choice in dict.fromkeys(name[:2] for name in names):
        mine = [i for i, name in enumerate(names) if name[:2] == choice]
        made = design[:, mine].sum(axis=1)
        if np.ptp(made) == 0:
            least = costs[mine].min()
            costs[mine] -= least
            constant += least * float(made[0])
    return constant, costs


def _confounded(names: Sequence[Name], design: np.ndarray) -> list[list[str]]:
    """Sets of levels that can trade cost among each other (or with the constant) without any network's sum changing.

    That the levels of one always-made choice trade with the constant is settled by convention and not listed.
    """
    choices = list(dict.fromkeys(name[:2] for name in names))
    kept = []
    for choice in choices:
        mine = [i for i, name in enumerate(names) if name[:2] == choice]
        made = design[:, mine].sum(axis=1)
        kept += mine[1:] if np.ptp(made) == 0 else mine
    reduced = np.concatenate([np.ones((len(design), 1)), design[:, kept]], axis=1)
    _, sizes, vectors = np.linalg.svd(np.linalg.qr(reduced, mode="r"))
    sizes = np.concatenate([sizes, np.zeros(len(vectors) - len(sizes))])
    null = vectors[sizes <= 1e-9 * sizes[0]]
    if not len(null):
        return []
    # Levels that share a direction of freedom belong to one set.
    linked = np.abs(null.T @ null) > 1e-9
    left, found = {int(i) for i in np.flatnonzero(np.diag(linked))}, []
    while left:
        reach: set[int] = set()
        new = {min(left)}
        while new:
            reach |= new
            new = {int(j) for i in new for j in np.flatnonzero(linked[i])} - reach
        left -= reach
        found.append(["constant" if i == 0 else _shown(names[kept[i - 1]]) for i in sorted(reach)])
    return found


def _shown(name: Name) -> str:
    column, place, level = name
    return f"{column}={level}" if place is None else f"{column}[{place}]={level}"


def _ceiling(group: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Mean relative error against the mean of rows that chose alike: no sum of costs can do better."""
    counts = np.bincount(group)
    twins = counts[group] > 1
    if not twins.any():
        return {"mean_abs_error": None, "reason": "no two networks chose alike"}
    means = np.bincount(group, y) / np.maximum(counts, 1)
    widened = np.sqrt(counts[group] / np.maximum(counts[group] - 1, 1))
    return {"mean_abs_error": float(np.mean((np.abs(y / means[group] - 1) * widened)[twins])), "rows": int(twins.sum())}


def _target(data: Any, target: str, source: str | Path) -> np.ndarray:
    import pyarrow as pa

    if target not in data.column_names:
        raise UsageError(f"{source} has no column '{target}'; it has {', '.join(data.column_names)}.")
    try:
        y = np.asarray(data.column(target).cast(pa.float64()).to_numpy(), float)
    except pa.ArrowException:
        raise UsageError(f"{source}: column '{target}' must hold numbers, it holds {data.schema.field(target).type}.") from None
    if not (y > 0).all():
        raise UsageError(f"{source}: '{target}' must be positive; {int((~(y > 0)).sum())} rows are not.")
    return y


def _command(
    source: str | Path, features: Sequence[str], target: str, device: str, shared: bool, where: Mapping[str, str]
) -> str:
    table: dict[str, Value] = {"from": Path(source).name, "features": ",".join(features), "target": target}
    return command("lut recover", **table, device=device, where=where, shared=shared, out="DIR")
