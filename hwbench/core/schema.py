"""Stored tables: columns declared once with type, unit and meaning. The only place that opens Parquet.

A table's footer holds `hwbench` = {schema, version, hwbench_version, checksum, ...facts}; reading checks all
of it. Every field's metadata has its `description` and `unit`, for whoever reads it without hwbench. Columns are only ever
added: an older version is read through the table's migrations, a newer one is an error that says "update hwbench". Who owns a
table declares it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench import __version__
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import MOST_BYTES, SEAL, atomic_write, parse, seal_of
from hwbench.core.typed_json import Record, decode

if TYPE_CHECKING:
    import pyarrow as pa

FOOTER_KEY = b"hwbench"
MOST_VALUES = 1 << 26
"""Of a table that is read, half a gigabyte of numbers: the largest public ones hold a tenth of it."""


@dataclass(frozen=True, kw_only=True)
class _Footer(Record):
    """What every footer states; whose table it is says what else."""

    schema: str
    version: int
    checksum: str


@dataclass(frozen=True)
class Column:
    """One stored column."""

    name: str
    type: str
    """string, int64, float64, bool, numbers (name -> float64) or shapes (lists of whole numbers)."""
    meaning: str
    nullable: bool = False

    @property
    def unit(self) -> str:
        """From the name, where units stand; a number without one is a count or a ratio."""
        known = {"_ms": "ms", "_ns": "ns", "_bytes": "bytes", "bytes_moved": "bytes", "flops": "FLOP"}
        without = {"string": "text", "numbers": "by name", "shapes": "sides"}.get(self.type, "1")
        return next((unit for ending, unit in known.items() if self.name.endswith(ending)), without)


@dataclass(frozen=True)
class Table:
    """One kind of stored table."""

    name: str
    version: int
    columns: tuple[Column, ...]
    identity: tuple[str, ...]
    """Columns that name a row; unique and sorted."""
    migrations: Mapping[int, Callable[[Any, Table], Any]] = field(default_factory=dict, hash=False)
    """Version -> step to the next one: (data, this table) -> data."""


def add_columns(data: pa.Table, table: Table) -> pa.Table:
    """The step that only adds columns: the data with every column of the newest version; those it lacks are null."""
    import pyarrow as pa

    here = set(data.schema.names)
    arrays = [data.column(c.name) if c.name in here else pa.nulls(len(data), _arrow_type(c.type)) for c in table.columns]
    return pa.table(arrays, schema=_arrow_schema(table))


def write(path: Path, table: Table, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> None:
    """Writes rows, sorted by identity, in one atomic step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ordered = sorted(rows, key=lambda row: tuple(row[c] for c in table.identity))
    identities = [tuple(row[c] for c in table.identity) for row in ordered]
    if len(set(identities)) != len(identities):
        raise DataError(f"{path}: two rows share the identity {table.identity}; a table holds each once.")
    foreign = {name for row in ordered for name in row} - {c.name for c in table.columns}
    if foreign:
        raise DataError(f"{path}: {table.name} has no columns {sorted(foreign)}.")
    arrays = [pa.array([_clean(row.get(c.name)) for row in ordered], _arrow_type(c.type)) for c in table.columns]
    data = pa.table(arrays, schema=_arrow_schema(table))
    footer = {
        "schema": table.name,
        "version": table.version,
        "hwbench_version": __version__,
        "checksum": _checksum(data),
        "units": {c.name: c.unit for c in table.columns},
        **facts,
    }
    footer[SEAL] = seal_of(parse(json.dumps(footer).encode()))
    data = data.replace_schema_metadata({FOOTER_KEY: json.dumps(footer, sort_keys=True).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, compression="zstd")
    atomic_write(path, sink.getvalue().to_pybytes())


def read(path: Path, table: Table) -> tuple[pa.Table, dict[str, Any]]:
    """The table and its footer, checked.

    Raises:
        DataError: truncated, edited, of another schema, or of a newer version.
    """
    import pyarrow as pa

    try:
        data = _whole(path)
        stored = (data.schema.metadata or {}).get(FOOTER_KEY)
        if stored is None:
            raise DataError(f"{path} is Parquet but not written by hwbench (no footer); make it with hwbench.")
        footer = parse(stored)
        stated = decode(_Footer, footer, f"{path} is damaged: its footer")
        if stated.version < 1:
            raise ValueError(f"its footer states version {stated.version}")
        checksum = _checksum(data)
    except FileNotFoundError:
        raise DataError(f"There is no {table.name} table at {path}.") from None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({_first(error)}); delete it and run the command that makes it again.") from None
    if stated.schema != table.name:
        raise DataError(f"{path} holds a '{stated.schema}' table, a '{table.name}' table was asked for.")
    if stated.version > table.version:
        raise DataError(f"{path} has version {stated.version}, this hwbench knows {table.version}: update hwbench.")
    if stated.checksum != checksum or footer.get(SEAL, seal_of(footer)) != seal_of(footer):
        raise DataError(f"{path} was edited after hwbench wrote it (checksum differs); restore it or make it again.")
    for step in range(stated.version, table.version):
        if step not in table.migrations:
            raise DataError(f"{path} has version {stated.version}, which this hwbench cannot read; make it again.")
        data = table.migrations[step](data, table)
    if data.schema.names != [c.name for c in table.columns]:
        raise DataError(f"{path} lacks columns of {table.name} version {table.version}; make it again.")
    for column in table.columns:
        if data.schema.field(column.name).type != _arrow_type(column.type):
            found = data.schema.field(column.name).type
            raise DataError(f"{path}: column {column.name} must hold {column.type}, it holds {found}; make it again.")
    _check_values(path, table, data)
    return data, footer


def _check_values(path: Path, table: Table, data: pa.Table) -> None:
    """Raises DataError for a number that is none, and for rows with the same identity: only one of them would count."""
    import pyarrow.compute as pc

    for column in table.columns:
        measured = column.type == "float64" and column.unit != "1"
        if measured and not pc.all(pc.is_finite(data.column(column.name)), min_count=0).as_py():
            raise DataError(f"{path}: column {column.name} holds what is no finite number of {column.unit}; make it again.")
    if len(data.group_by(list(table.identity)).aggregate([])) != len(data):
        raise DataError(f"{path}: rows share the identity {', '.join(table.identity)}; a table holds each once. Make it again.")


def read_table(path: Path) -> pa.Table:
    """Anyone's own Parquet table, as it is.

    Raises:
        UsageError: there is no such file.
        DataError: it is not Parquet.
    """
    import pyarrow as pa

    if not path.is_file():
        raise UsageError(f"There is no table at {path}; give a Parquet file.")
    try:
        return _distinct(_whole(path), path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet ({_first(error)}).") from None


def read_csv(path: Path) -> pa.Table:
    """Anyone's own CSV file with a line of column names; the types of its columns are inferred.

    Raises:
        UsageError: there is no such file.
        DataError: it is no CSV.
    """
    import pyarrow as pa
    from pyarrow import csv

    if not path.is_file():
        raise UsageError(f"There is no table at {path}; give a CSV file.")
    try:
        return _distinct(csv.read_csv(path), path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as CSV ({_first(error)}).") from None


def _whole(path: Path) -> pa.Table:
    """A Parquet file whose footer says that it fits into memory: a small one may hold many equal values.

    Raises:
        ValueError: it does not.
    """
    import pyarrow.parquet as pq

    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    with pq.ParquetFile(path) as file:
        about = file.metadata
        unpacked = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        if about.num_rows * max(about.num_columns, 1) > MOST_VALUES or unpacked > MOST_BYTES:
            raise ValueError(f"{about.num_rows} rows of {about.num_columns} columns, {unpacked} bytes once unpacked")
        return file.read()


def _distinct(data: pa.Table, path: Path) -> pa.Table:
    """The table, if no two of its columns have one name.

    Raises:
        DataError: two have.
    """
    if twice := [name for name, times in Counter(data.column_names).items() if times > 1]:
        raise DataError(f"{path} has several columns called '{twice[0]}'; give each a name of its own.")
    return data


def _first(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def write_table(path: Path, data: pa.Table) -> None:
    """Writes anyone's own table in one atomic step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, compression="zstd")
    atomic_write(path, sink.getvalue().to_pybytes())


def _clean(value: Any) -> Any:
    """NaN is stored as null: missing is missing, never a number."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, Mapping):
        return [(name, _clean(part)) for name, part in value.items()]
    return value.item() if isinstance(value, np.generic) else value


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    if name == "numbers":
        return pa.map_(pa.string(), pa.float64())
    if name == "shapes":
        return pa.list_(pa.list_(pa.int64()))
    return {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}[name]


def _arrow_schema(table: Table) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(c.name, _arrow_type(c.type), nullable=c.nullable, metadata={"description": c.meaning, "unit": c.unit})
            for c in table.columns
        ]
    )


def _checksum(data: pa.Table) -> str:
    digest = hashlib.sha256()
    for name in data.schema.names:
        digest.update(json.dumps([name, data.column(name).to_pylist()]).encode())
    return digest.hexdigest()
