"""A file of a public benchmark table, held against what its reader declares of it before anything is computed.

Every column asked for is there, numbers are finite, choices are choices, and no row stands there twice: what is wrong
is named by file, row, column and value. Files are Parquet.

    read(path, ("arch_index", "cifar10"), identity=("arch_index",)).numbers("cifar10")
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import schema
from hwbench.core.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PublicTable:
    """Columns of a file."""

    file: str
    """Folder and name, for messages."""
    data: pa.Table

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def values(self, column: str) -> list[Any]:
        """A value per row; None where a row has none."""
        found: list[Any] = self.data.column(column).to_pylist()
        return found

    def numbers(self, column: str, above: float = -math.inf) -> np.ndarray:
        """A column of finite numbers; NaN where a row has none.

        Raises:
            DataError: a value is something else, or not above that; the message names its row.
        """
        import pyarrow.types as t

        kind = self.data.schema.field(column).type
        if not (t.is_integer(kind) or t.is_floating(kind) or t.is_null(kind)):
            row = next((row for row, value in enumerate(self.values(column)) if value is not None), 0)
            raise self._wrong(row, column, "which is no number")
        found = np.asarray(self.data.column(column).to_numpy(zero_copy_only=False), float)
        if (wrong := np.flatnonzero(np.isinf(found) | (found <= above))).size:
            raise self._wrong(int(wrong[0]), column, "which is no finite number" + (f" above {above:g}" * (above > -math.inf)))
        return found

    def whole(self, column: str) -> np.ndarray:
        """A column of whole numbers, one in every row.

        Raises:
            DataError: a value is something else; the message names its row.
        """
        import pyarrow.types as t

        if not t.is_integer(self.data.schema.field(column).type) or self.data.column(column).null_count:
            row = next((row for row, each in enumerate(self.values(column)) if not isinstance(each, int)), 0)
            raise self._wrong(row, column, "which is no whole number")
        return np.asarray(self.data.column(column).to_numpy(), np.int64)

    def text(self, column: str) -> np.ndarray:
        """A column of text, one in every row.

        Raises:
            DataError: a value is something else; the message names its row.
        """
        found = self.values(column)
        if (row := next((row for row, each in enumerate(found) if not isinstance(each, str)), None)) is not None:
            raise self._wrong(row, column, "which is no text")
        return np.array(found)

    def choices(self, column: str, known: Sequence[Any]) -> np.ndarray:
        """uint8[n]: the place of each value among those a column may have.

        Raises:
            DataError: a value is none of them; the message names its row.
        """
        places = {repr(value): at for at, value in enumerate(known)}  # True is no 1
        found = [places.get(repr(value), -1) for value in self.values(column)]
        if -1 in found:
            raise self._wrong(found.index(-1), column, f"which is not one of {', '.join(map(str, known))}")
        return np.array(found, np.uint8)

    def _wrong(self, row: int, column: str, why: str) -> DataError:
        value = self.values(column)[row] if len(self) else None
        return DataError(f"{self.file}, row {row + 1}: {column} is {value!r}, {why}.")


def read(path: Path, columns: Collection[str], identity: Sequence[str]) -> PublicTable:
    """A file with these columns.

    Args:
        path: Parquet.
        columns: That will be asked for.
        identity: Columns that name a row: no two rows may have the same.

    Raises:
        DataError: it lacks a column, has no rows, or two rows are the same.
    """
    data, file = schema.read_table(path), f"{path.parent.name}/{path.name}"
    wanted = dict.fromkeys((*identity, *columns))
    if lacking := next((name for name in wanted if name not in data.column_names), None):
        raise DataError(f"{file} has no column {lacking}; it has {', '.join(data.column_names)}.")
    if not data.num_rows:
        raise DataError(f"{file} has no rows.")
    if identity and (twice := _twice(data, identity)):
        before, row, which = twice
        said = ", ".join(f"{name} {value!r}" for name, value in which.items())
        raise DataError(
            f"{file}: rows {before + 1} and {row + 1} are both of {said}; a table holds each once. Restore the file."
        )
    return PublicTable(file, data.select(list(wanted)))


def _twice(data: pa.Table, identity: Sequence[str]) -> tuple[int, int, Mapping[str, Any]] | None:
    """(row, later row, what names both) of the first two rows that are the same."""
    codes = np.zeros(data.num_rows, np.int64)
    for name in identity:  # by their number among the different ones: fast, whatever the type
        column = data.column(name).combine_chunks()
        of = column if hasattr(column, "indices") else column.dictionary_encode()
        mine = np.asarray(of.indices.fill_null(len(of.dictionary)).to_numpy(zero_copy_only=False), np.int64)
        _, codes = np.unique(codes * (len(of.dictionary) + 1) + mine, return_inverse=True)
    _, first, again = np.unique(codes, return_index=True, return_inverse=True)
    if len(first) == data.num_rows:
        return None
    row = int(np.flatnonzero(first[again] != np.arange(data.num_rows))[0])
    before = int(first[again][row])
    return before, row, {name: data.column(name)[row].as_py() for name in identity}
