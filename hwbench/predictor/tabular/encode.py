"""Columns of anyone's table as numbers: numbers as they are, text and lists by their levels, positions and sums.

How a column is encoded is learnt from the table that is fitted (`describe`), kept in the predictor's card, and applied
to every later table (`encode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

POSITIONS = 16
"""Lists of at most so many entries also give one feature per position."""
LEVELS = 64
"""A text column of more levels is refused: it would be a name, not a feature."""


@dataclass(frozen=True)
class Encoding:
    """How one column becomes numbers; plain JSON values, stored in the card."""

    column: str
    kind: str
    """number, text, numbers (a list per row) or texts."""
    levels: tuple[str, ...] = ()
    positions: int = 0
    """Entries of a list that have a feature of their own; 0: only their summary."""

    @property
    def names(self) -> list[str]:
        """The features it gives."""
        if self.kind == "number":
            return [self.column]
        if self.kind == "text":
            return [f"{self.column}={level}" for level in self.levels]
        if self.kind == "numbers":
            summary = [f"{self.column}.{part}" for part in ("length", "sum", "mean", "min", "max")]
            return summary + [f"{self.column}[{i}]" for i in range(self.positions)]
        names = [f"{self.column}.length", *(f"{self.column}.count={level}" for level in self.levels)]
        return names + [f"{self.column}[{i}]={level}" for i in range(self.positions) for level in self.levels]


def describe(data: pa.Table, columns: Sequence[str]) -> list[Encoding]:
    """How these columns are turned into numbers: learnt from the table that is fitted, applied to every later one.

    Raises:
        UsageError: a column is missing, has missing values, or is of a type that is no feature.
    """
    return [_describe(data, column) for column in columns]


def encode(data: pa.Table, encodings: Sequence[Encoding]) -> np.ndarray:
    """The features of every row.

    Raises:
        UsageError: a column is missing, of another kind than fitted, has missing values, or holds an unknown level.
    """
    return np.column_stack([_encode(data, each) for each in encodings])


def numbers(data: pa.Table, column: str) -> np.ndarray:
    """A column of plain numbers."""
    encoding = _describe(data, column)
    if encoding.kind != "number":
        raise UsageError(f"Column '{column}' must hold numbers; it holds {data.schema.field(column).type}.")
    return _encode(data, encoding)[:, 0]


def values(data: pa.Table, column: str) -> Any:
    """A column that is there and has no missing values."""
    if column not in data.column_names:
        raise UsageError(registry.unknown("column", column, data.column_names))
    found = data.column(column)
    if found.null_count:
        raise UsageError(f"Column '{column}' has {found.null_count} missing values; fill them or leave those rows out.")
    return found


def _describe(data: pa.Table, column: str) -> Encoding:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = values(data, column)
    kind = _kind(found.type)
    if not kind:
        raise UsageError(f"Column '{column}' is {found.type}; numbers, text and lists of them are features.")
    if kind == "number":
        return Encoding(column, kind)
    longest = pc.max(pc.list_value_length(found)).as_py() or 0 if kind in ("numbers", "texts") else 0
    positions = longest if longest <= POSITIONS else 0
    if kind == "numbers":
        return Encoding(column, kind, positions=positions)
    entries = found if kind == "text" else pc.list_flatten(found)
    levels = tuple(sorted(each for each in pc.unique(entries.cast(pa.string())).to_pylist() if each is not None))
    if len(levels) > LEVELS:
        raise UsageError(f"Column '{column}' has {len(levels)} different texts; more than {LEVELS} are names, not a feature.")
    return Encoding(column, kind, levels, positions)


def _kind(type_: Any) -> str:
    """What a column of this Arrow type is to us; empty where it is nothing."""
    import pyarrow.types as t

    if t.is_dictionary(type_):
        return _kind(type_.value_type)
    if t.is_boolean(type_) or t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_):
        return "number"
    if t.is_string(type_) or t.is_large_string(type_):
        return "text"
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return {"number": "numbers", "text": "texts"}.get(_kind(type_.value_type), "")
    return ""


def _encode(data: pa.Table, encoding: Encoding) -> np.ndarray:
    import pyarrow.compute as pc

    column = encoding.column
    found = values(data, column)
    if _kind(found.type) != encoding.kind:
        raise UsageError(f"Column '{column}' is {found.type}; the predictor was fitted to {encoding.kind}.")
    if encoding.kind == "number":
        return _finite(found, column)[:, None]
    if encoding.kind == "text":
        return _one_hot(found, encoding)
    lengths = pc.list_value_length(found).to_numpy()
    entries = pc.list_flatten(found)
    row = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    if encoding.positions and len(lengths) and lengths.max() > encoding.positions:
        raise UsageError(f"Column '{column}' has lists of up to {lengths.max()}; fitted were at most {encoding.positions}.")
    flat = _finite(entries, column)[:, None] if encoding.kind == "numbers" else _one_hot(entries, encoding)
    by_place = np.zeros((len(lengths), encoding.positions, flat.shape[1]))
    if encoding.positions:
        by_place[row, place] = flat
    places = by_place.reshape(len(lengths), encoding.positions * flat.shape[1])
    sums = np.zeros((len(lengths), flat.shape[1]))
    np.add.at(sums, row, flat)
    if encoding.kind == "texts":
        return np.column_stack([lengths, sums, places]).astype(float)
    low, high = np.full(len(lengths), np.inf), np.full(len(lengths), -np.inf)
    np.minimum.at(low, row, flat[:, 0])
    np.maximum.at(high, row, flat[:, 0])
    some = lengths > 0
    summary = [lengths, sums[:, 0], sums[:, 0] / np.maximum(lengths, 1), np.where(some, low, 0.0), np.where(some, high, 0.0)]
    return np.column_stack([*summary, places]).astype(float)


def _finite(values: Any, column: str) -> np.ndarray:
    import pyarrow as pa

    if values.null_count:
        raise UsageError(f"Column '{column}' has lists with {values.null_count} missing entries.")
    numbers = np.asarray(values.cast(pa.float64()).to_numpy(), float)
    if not np.isfinite(numbers).all():
        raise UsageError(f"Column '{column}' has {int((~np.isfinite(numbers)).sum())} values that are not finite numbers.")
    return numbers


def _one_hot(values: Any, encoding: Encoding) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pc.index_in(values.cast(pa.string()), value_set=pa.array(encoding.levels, pa.string()))
    if codes.null_count:
        foreign = next(each for each in values.to_pylist() if each not in encoding.levels)
        raise UsageError(f"Column '{encoding.column}' has the value {foreign!r}; fitted were {', '.join(encoding.levels)}.")
    return np.asarray(np.eye(len(encoding.levels))[np.asarray(codes.to_numpy(), int)])
