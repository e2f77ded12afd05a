"""Somebody's table as numbers to fit: rows selected and joined, columns encoded, what cannot be learnt from refused.

The order of the rows in the file plays no part: they are sorted by what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.core.errors import UsageError
from hwbench.predictor.tabular import encode
from hwbench.predictor.tabular.encode import Encoding
from hwbench.space.base import Space

if TYPE_CHECKING:
    import pyarrow as pa

RARER, SURE = 2.0, 4.0
"""A choice this many times rarer in the rows than in the space, by more than so many standard deviations, is no accident."""
ROW_NUMBERS = ("row_id", "rowid", "row", "index", "id", "unnamed: 0", "__index_level_0__")


@dataclass(frozen=True)
class Rows:
    """What a regressor is fitted to: one entry per row."""

    x: np.ndarray
    """float[rows, features]"""
    y: np.ndarray
    kind: np.ndarray
    """The same number for rows that compute the same: they stay on one side of every split."""
    encodings: Sequence[Encoding]
    deviation: np.ndarray | None
    """Standard deviation of the target's repeats, where columns tell it."""
    warnings: Sequence[str]

    @classmethod
    def of(
        cls,
        data: pa.Table,
        features: Sequence[str],
        target: str,
        noise: Sequence[str] = (),
        twins: str | None = None,
        limit: int | None = None,
        seed: int = 0,
    ) -> Rows:
        """The rows of a table; for the arguments see `fit.fit_table`."""
        y = _target(data, target)
        encodings = encode.describe(data, features)
        x = encode.encode(data, encodings)
        warnings = _suspects(data, features, target, y)
        deviation = np.sqrt(sum(np.square(encode.numbers(data, name)) for name in noise)) if noise else None
        order = np.lexsort((*x.T, y))
        if limit is not None:
            order = order[np.sort(np.random.default_rng(seed).permutation(len(order))[:limit])]
        x, y = x[order], y[order]
        labels = None if twins is None else [str(each) for each in encode.values(data.take(order), twins).to_pylist()]
        known = None if deviation is None else deviation[order]
        return cls(x, y, _kinds(x, labels), encodings, known, warnings)

    def rising(self, columns: Sequence[str]) -> list[bool]:
        """Of every feature: whether the target can only rise with it; empty where no column is named.

        Raises:
            UsageError: a column holds no numbers.
        """
        unknown = [name for name in columns if not any(e.column == name and e.kind == "number" for e in self.encodings)]
        if unknown:
            raise UsageError(f"Only number features can be rising; {', '.join(unknown)} is none.")
        return [e.column in columns for e in self.encodings for _ in e.names] if columns else []


def read(path: Path, where: Mapping[str, str], others: Sequence[Path]) -> pa.Table:
    """The rows of a table whose columns have these values, with the columns of other tables joined to them."""
    data = _selected(schema.read_table(path), where, path)
    for other in others:
        data = _joined(data, schema.read_table(other), other)
    return data


def require_sample(space: Space, data: pa.Table, features: Sequence[str]) -> None:
    """Refuses rows that are no sample of a space: its interval would be called certified for networks it never met.

    A choice that is far rarer (or more frequent) in the rows than in the space shows it: a table of the most accurate cells
    of NAS-Bench-201 hardly has a pooling, and its 90 % interval covers 34 % of the other cells.

    Raises:
        UsageError: a choice of a gene stands out; the message has both shares.
    """
    for gene in space.genes:
        if gene.label not in features:
            continue
        found = [str(each) for each in encode.values(data, gene.label).to_pylist()]
        usual = 1 / len(gene.choices)
        for choice in gene.choices:
            seen = found.count(str(choice))
            share, chance = seen / len(found), (usual * (1 - usual) / len(found)) ** 0.5
            if not usual / RARER <= share <= 1 - (1 - usual) / RARER and abs(share - usual) > SURE * chance:
                raise UsageError(
                    f"The rows are no sample of {space.name}: {gene.label}={choice} is {share:.1%} of them and {usual:.1%} of "
                    "the space. Leave out --space; answers for the space are then uncertified."
                )


def _kinds(x: np.ndarray, labels: Sequence[str] | None) -> np.ndarray:
    """A number per row, the same for rows that compute the same: those with the same features, or with the same label."""
    _, by_features = np.unique(x, axis=0, return_inverse=True)
    if labels is None:
        return np.asarray(by_features.ravel())
    _, by_label = np.unique(np.array(labels), return_inverse=True)
    pairs = np.unique(np.column_stack([by_features.ravel(), by_label]), axis=0)
    if len(pairs) > len(np.unique(by_features)):
        raise UsageError("--twins tells rows with the same features apart: they would be on both sides of a split.")
    return np.asarray(by_label)


def _selected(data: pa.Table, where: Mapping[str, str], path: Path) -> pa.Table:
    for column, value in where.items():
        keep = np.array([str(each) == value for each in encode.values(data, column).to_pylist()], bool)
        if not keep.any():
            raise UsageError(f"{path} has no row with {column}={value}.")
        data = data.filter(keep)
    return data


def _joined(data: pa.Table, other: pa.Table, path: Path) -> pa.Table:
    """The rows with the other table's columns: each row must find exactly one partner."""
    shared = [name for name in other.column_names if name in data.column_names]
    if not shared:
        raise UsageError(f"{path} shares no column with the table, so its rows cannot be found.")
    partners: dict[tuple[Any, ...], int] = {}
    for at, key in enumerate(zip(*(other.column(name).to_pylist() for name in shared), strict=True)):
        if partners.setdefault(key, at) != at:
            raise UsageError(f"{path} has several rows with {dict(zip(shared, key, strict=True))}; they cannot be told apart.")
    wanted = list(zip(*(data.column(name).to_pylist() for name in shared), strict=True))
    lost = [key for key in wanted if key not in partners]
    if lost:
        raise UsageError(
            f"{path} has no row with {dict(zip(shared, lost[0], strict=True))}, and {len(lost) - 1} more are missing."
        )
    found = other.take([partners[key] for key in wanted])
    for name in other.column_names:
        if name not in shared:
            data = data.append_column(name, found.column(name))
    return data


def _target(data: pa.Table, target: str) -> np.ndarray:
    if target not in data.column_names:
        raise UsageError(f"{registry.unknown('column', target, data.column_names)} Give the one to predict as --target COLUMN.")
    y = encode.numbers(data, target)
    if not (y > 0).all():
        raise UsageError(f"The target '{target}' must be positive; {int((y <= 0).sum())} rows are not.")
    return y


def _suspects(data: pa.Table, features: Sequence[str], target: str, y: np.ndarray) -> list[str]:
    """Warnings for the card; refuses the target itself and row numbers as features."""
    warnings = []
    for column in features:
        if column == target:
            raise UsageError(f"'{column}' is the target; it cannot be a feature as well.")
        if column.lower() in ROW_NUMBERS:
            raise UsageError(f"'{column}' is a row number, not a feature: tables drift in time and it would tell when.")
        if encode.describe(data, [column])[0].kind != "number":
            continue
        values = encode.numbers(data, column)
        if values.any() and np.ptp(values / y) <= 1e-9 * np.abs(values / y).max():
            raise UsageError(f"Feature '{column}' is the target '{target}' times a constant; leave it out.")
        if len(values) > 2 and (np.diff(values) == 1).all():
            warnings.append(f"'{column}' counts the rows of the file: make sure that it is no row number")
    return warnings
