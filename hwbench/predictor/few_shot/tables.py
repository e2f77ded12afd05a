"""Tables of known devices and of a new one, as the arrays a transfer learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.predictor.few_shot.prior import scaled
from hwbench.predictor.tabular import positions

if TYPE_CHECKING:
    import pyarrow as pa

DEVICE, LATENCY = "device", "latency_ms"
ROW = "__row"
"""Column that numbers the rows of a table while it is read."""
LEAST_DEVICES, LEAST_ARCHITECTURES = 3, 20
"""Known devices that are needed, and architectures each must have measured."""


@dataclass(frozen=True)
class Tables:
    """Known devices and the new one as arrays; architectures have an order of their own: that of the rows cannot matter."""

    devices: list[str]
    logs: np.ndarray
    """[architectures, devices]; architectures measured on the new device only are all NaN."""
    blocks: list[np.ndarray]
    rows: np.ndarray
    new_logs: np.ndarray
    order: np.ndarray
    """Known architectures as they first appear."""
    choices: list[positions.Position]
    """Of known architectures, in that order."""
    first: np.ndarray
    """Row of `known` each of them first appears in."""
    kept: list[str]
    """Columns that describe an architecture."""
    warnings: list[str]

    @classmethod
    def of(cls, table: pa.Table, new: pa.Table | None, features: Sequence[str], known: str, measured: str) -> Tables:
        """Reads both tables; `known` and `measured` name them in messages.

        Raises:
            UsageError: a column is missing or foreign, or there are too few devices.
        """
        features = list(dict.fromkeys(features))
        usable, warnings = _usable(table, features, known)
        n, y = usable.num_rows, _latencies(usable, known)
        names, device = np.unique(np.array(usable[DEVICE].cast("string").to_pylist(), object).astype(str), return_inverse=True)
        if len(names) < LEAST_DEVICES:
            raise UsageError(f"{known} has {len(names)} devices; at least {LEAST_DEVICES} are needed to learn from.")
        choices = positions.read(_stacked(usable, new, features, known, measured), features)
        _refuse_foreign(choices, n, known, measured)
        representative, group = positions.distinct(choices)
        logs, enough = _means(group[:n], device, np.log(y), (len(representative), len(names)))
        if enough.sum() < LEAST_DEVICES:
            few = f"{known} has fewer than {LEAST_DEVICES} devices"
            raise UsageError(f"{few} with {LEAST_ARCHITECTURES} architectures or more.")
        if not enough.all():
            warnings.append(f"too few rows, left out: {', '.join(names[~enough])}")
        met, first = np.unique(group[:n], return_index=True)
        appearance = np.argsort(first, kind="stable")
        rows, means = np.empty(0, int), np.empty(0)
        if new is not None:
            rows, inverse = np.unique(group[n:], return_inverse=True)
            means = np.bincount(inverse, np.log(_latencies(new, measured))) / np.bincount(inverse)
        return cls(
            devices=[str(name) for name in names[enough]],
            logs=logs[:, enough],
            blocks=columns_of(choices, representative),
            rows=rows,
            new_logs=means,
            order=met[appearance],
            choices=[replace(each, codes=each.codes[representative[met[appearance]]]) for each in choices],
            first=np.asarray(usable[ROW].to_numpy())[first[appearance]],
            kept=_describing(usable, features, group[:n], first, met),
            warnings=warnings,
        )

    def architectures(self, table: pa.Table) -> pa.Table:
        """The known architectures, one row each."""
        return table.select(self.kept).take(self.first)


def _usable(table: pa.Table, features: Sequence[str], known: str) -> tuple[pa.Table, list[str]]:
    """The rows that have a latency, each with its number in a column ROW; and what a reader is to know."""
    import pyarrow.compute as pc

    for name in (DEVICE, LATENCY):
        if name in features:
            raise UsageError(f"'{name}' is no architecture column; leave it out of --features.")
        _need(table, name, known)
    table = table.append_column(ROW, [np.arange(table.num_rows)])
    usable = table.filter(pc.is_valid(table[LATENCY]))
    dropped = table.num_rows - usable.num_rows
    return usable, [f"{dropped} rows of {known} have no latency and were left out"] if dropped else []


def _refuse_foreign(choices: Sequence[positions.Position], n: int, known: str, measured: str) -> None:
    """Raises if the new device measured a level that no known architecture (the first n) has."""
    for position in choices:
        foreign = np.setdiff1d(position.codes[n:], position.codes[:n])
        if len(foreign) and not position.quantity:
            level = position.levels[foreign[0]]
            raise UsageError(f"{measured} has {position.name} = {level!r}, which no architecture of {known} has.")


def _means(group: np.ndarray, device: np.ndarray, logs: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(mean of each architecture on each device, NaN where there is none; which devices have enough of them)."""
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (group, device), logs)
    np.add.at(counts, (group, device), 1)
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, sums / counts, np.nan)
    return means, counts.astype(bool).sum(axis=0) >= LEAST_ARCHITECTURES


def _describing(usable: pa.Table, features: Sequence[str], group: np.ndarray, first: np.ndarray, met: np.ndarray) -> list[str]:
    """The architecture columns, and others whose values the architecture decides."""
    others = [c for c in usable.column_names if c not in {*features, DEVICE, LATENCY, ROW}]
    return [c for c in usable.column_names if c in features or (c in others and _follows(usable[c], group, first, met))]


def columns_of(choices: Sequence[positions.Position], rows: np.ndarray) -> list[np.ndarray]:
    """Standardised columns of each choice: one per level but the first; a quantity and its square."""
    found = []
    for position in choices:
        codes = position.codes[rows]
        if position.quantity:
            values = scaled(np.array(position.levels, float)[codes][:, None])
            columns = np.concatenate([values, values**2], axis=1)
        elif len(position.levels) <= positions.MANY_LEVELS:
            columns = (codes[:, None] == np.unique(codes)[None, 1:]).astype(float)
        else:
            continue  # a name tells architectures apart, nothing more
        if columns.shape[1]:
            found.append(scaled(columns))
    return found


def _follows(column: Any, group: np.ndarray, first: np.ndarray, met: np.ndarray) -> bool:
    """Whether the architecture decides the column's value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    except pa.ArrowException:  # a type Arrow cannot tell equal values of
        return False
    codes = np.asarray(encoded.indices.to_numpy())
    return bool((codes == codes[first][np.searchsorted(met, group)]).all())


def _stacked(table: pa.Table, new: pa.Table | None, features: Sequence[str], known: str, measured: str) -> pa.Table:
    """The architecture columns of both tables, one below the other."""
    import pyarrow as pa

    for name in features:
        _need(table, name, known)
        if new is not None:
            _need(new, name, measured)
    if new is None:
        return table.select(features)
    columns = []
    for name in features:
        try:
            both = [part.select([name]) for part in (table, new)]
            columns.append(pa.concat_tables(both, promote_options="permissive").column(name))
        except pa.ArrowException:
            kinds = f"{table.schema.field(name).type} in {known}, {new.schema.field(name).type} in {measured}"
            raise UsageError(f"Column '{name}' is {kinds}; give both the same type.") from None
    return pa.table(columns, names=list(features))


def _need(table: pa.Table, name: str, path: str) -> None:
    if name not in table.column_names:
        raise UsageError(f"{path}: {registry.unknown('column', name, table.column_names)}")


def _latencies(table: pa.Table, path: str) -> np.ndarray:
    import pyarrow as pa

    _need(table, LATENCY, path)
    try:
        values = np.asarray(table[LATENCY].cast(pa.float64()).to_numpy(), float)
    except pa.ArrowException:
        kind = table.schema.field(LATENCY).type
        raise UsageError(f"{path}: column '{LATENCY}' must hold numbers, it holds {kind}.") from None
    bad = int((~(values > 0) | ~np.isfinite(values)).sum())
    if bad:
        raise UsageError(f"{path}: '{LATENCY}' must be positive; {bad} rows are not.")
    return values
