"""The choices an architecture makes, from anyone's own columns: a plain column is one choice, a list one per place.

Used where the levels of a choice matter one by one: costs recovered per operator, what known devices teach about a new
one. Long texts (`|conv_3x3~0|+|skip~0|...`) are read as the list of their words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

MANY_LEVELS = 64
"""A text with more levels is a list of words; a number with more is a quantity, not a choice."""
ABSENT = "(absent)"
"""Level of a place that a shorter list does not have."""


@dataclass(frozen=True)
class Position:
    """One choice: what can be chosen and what each row chose."""

    column: str
    place: int | None
    """Place in a list; None for a plain column."""
    levels: tuple[Any, ...]
    codes: np.ndarray
    """Index into `levels` of every row."""

    @property
    def name(self) -> str:
        """As shown: column, or column[place]."""
        return self.column if self.place is None else f"{self.column}[{self.place}]"

    @property
    def quantity(self) -> bool:
        """Whether its levels are points of a scale rather than choices."""
        return len(self.levels) > MANY_LEVELS and not isinstance(self.levels[0], str)


def read(data: pa.Table, columns: Sequence[str]) -> list[Position]:
    """The choices of these columns.

    Raises:
        UsageError: a column is missing, has missing values, or is of a type that holds no choices.
    """
    if not columns:
        raise UsageError("Give at least one architecture column with --features.")
    return [position for column in dict.fromkeys(columns) for position in _positions(data, column)]


def distinct(positions: Sequence[Position]) -> tuple[np.ndarray, np.ndarray]:
    """(first row, group of every row): rows that chose alike are one architecture."""
    key = np.zeros(len(positions[0].codes), np.int64)
    size = 1
    for position in positions:
        if size * len(position.levels) >= 2**62:
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max(initial=0)) + 1
        key = key * len(position.levels) + position.codes
        size *= len(position.levels)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return first, group


def _positions(data: pa.Table, column: str) -> list[Position]:
    import pyarrow.types as t

    if column not in data.column_names:
        raise UsageError(registry.unknown("column", column, data.column_names))
    values = data.column(column).combine_chunks()
    if values.null_count:
        raise UsageError(f"Column '{column}' has {values.null_count} missing values; fill them or leave those rows out.")
    if t.is_list(values.type) or t.is_large_list(values.type) or t.is_fixed_size_list(values.type):
        return _lists(values, column)
    levels, codes = _levels(values, column)
    words = [re.findall(r"[\w.]+", level) if isinstance(level, str) else [] for level in levels]
    if len(levels) <= MANY_LEVELS or max(map(len, words)) < 2:
        return [Position(column, None, levels, codes)]
    # Each different text is split once, then spread to the rows.
    spelt, entries = np.unique([word for each in words for word in each], return_inverse=True)
    places = _places(column, tuple(spelt.tolist()), entries, np.array([len(each) for each in words]))
    return [Position(column, p.place, p.levels, p.codes[codes]) for p in places]


def _levels(values: Any, column: str) -> tuple[tuple[Any, ...], np.ndarray]:
    """(sorted levels, code of each entry) of a plain array."""
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if t.is_string(values.type) or t.is_large_string(values.type):
        encoded = values.dictionary_encode()
        levels, order = np.unique(np.array(encoded.dictionary.to_pylist(), str), return_inverse=True)
        return tuple(levels.tolist()), order[np.asarray(encoded.indices.to_numpy(), int)]
    if t.is_floating(values.type) or t.is_integer(values.type) or t.is_boolean(values.type) or t.is_decimal(values.type):
        numbers = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), float)
        if not np.isfinite(numbers).all():
            raise UsageError(f"Column '{column}' has values that are not finite numbers.")
        found, codes = np.unique(numbers, return_inverse=True)
        return tuple(found.tolist()), codes
    raise UsageError(f"Column '{column}' is {values.type}; numbers, text and lists of them describe an architecture.")


def _lists(values: Any, column: str) -> list[Position]:
    import pyarrow.compute as pc

    entries = pc.list_flatten(values)
    if entries.null_count:
        raise UsageError(f"Column '{column}' has lists with {entries.null_count} missing entries.")
    lengths = np.asarray(pc.list_value_length(values).to_numpy(zero_copy_only=False), int)
    return _places(column, *_levels(entries, column), lengths)


def _places(column: str, levels: tuple[Any, ...], codes: np.ndarray, lengths: np.ndarray) -> list[Position]:
    """One position for every place of the longest list; each with the levels met there."""
    starts = np.cumsum(lengths) - lengths
    found = []
    for place in range(int(lengths.max(initial=0))):
        there = lengths > place
        met, inner = np.unique(codes[starts[there] + place], return_inverse=True)
        chosen = np.full(len(lengths), len(met))
        chosen[there] = inner
        own = tuple(levels[i] for i in met)
        found.append(Position(column, place, own if there.all() else (*own, ABSENT), chosen))
    return found
