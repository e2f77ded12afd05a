"""Every stored column once: type, unit, meaning. The only place that opens Parquet.

A table's footer holds `hwbench` = {schema, version, hwbench_version, checksum, ...facts}; reading checks all
of it. Columns are only ever added: an older version is read through the table's migrations, a newer one is an error that
says "update hwbench".

Version history
    lut 1, networks 1, trials 1, verification 1: first.
    lut 2, networks 2, verification 2: status says whether there is a latency, verdict whether to trust it; latency_fastest_ms,
        the interval of the median, other_cores; lut also overhead_ms. In version 1 a minimum was the smallest single
        reading, which is latency_fastest_ms now; its latency_min_ms is kept as it was.
    lut 3, networks 3: instructions (counted where nothing is timed) and executes_on; lut also overhead_instructions. Before,
        everything ran on a CPU and was timed: the new columns are null.
    trials 2: costs (further limited costs and their upper bounds); a trial without a score has a row too, its accuracy
        and fitness null. Version 1 left such trials out, and its costs are unknown: null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench import __version__
from hwbench.errors import DataError, UsageError
from hwbench.workspace import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa

FOOTER_KEY = b"hwbench"


@dataclass(frozen=True)
class Column:
    """One stored column."""

    name: str
    type: str
    """string, int64, float64, bool or numbers (name -> float64)."""
    meaning: str
    nullable: bool = False

    @property
    def unit(self) -> str:
        """From the name, where units stand; a number without one is a count or a ratio."""
        known = {"_ms": "ms", "_ns": "ns", "_bytes": "bytes", "bytes_moved": "bytes", "flops": "FLOP"}
        without = {"string": "text", "numbers": "by name"}.get(self.type, "1")
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


def add_verdicts(data: pa.Table, table: Table) -> pa.Table:
    """The step of latencies from version 1 to 2: `status` held the verdict too."""
    import pyarrow as pa

    old = data.column("status").to_pylist()
    words = [{"ok": "stable", "noisy": "noisy"}.get(status) for status in old]
    told = pa.array(["ok" if status == "noisy" else status for status in old], pa.string())
    data = data.set_column(data.schema.names.index("status"), "status", told)
    return add_columns(data.append_column("verdict", pa.array(words, pa.string())), table)


SETTING_COLUMNS = (
    Column("dtype", "string", "number format of weights and activations"),
    Column("batch", "int64", "samples per run"),
    Column("threads", "int64", "threads of the runtime"),
    Column("scenario", "string", "how runs follow each other"),
)
LATENCY_COLUMNS = (
    Column("latency_min_ms", "float64", "smallest level (the lowest speed met often) over all processes", nullable=True),
    Column("latency_median_ms", "float64", "median over processes of process medians", nullable=True),
    Column("min_spread", "float64", "spread of the three lowest processes, relative", nullable=True),
    Column("median_spread", "float64", "spread of the process medians, relative", nullable=True),
    Column("processes", "int64", "fresh worker processes that measured it"),
    Column("samples", "int64", "bursts in the journal"),
    Column("status", "string", "ok, refused, crashed or hung"),
    Column("reason", "string", "why the status or the verdict", nullable=True),
    Column("verdict", "string", "stable, noisy, shifted or throttled", nullable=True),
    Column("latency_fastest_ms", "float64", "smallest single reading", nullable=True),
    Column("median_low_ms", "float64", "95 % interval of the median, bootstrap over processes", nullable=True),
    Column("median_high_ms", "float64", "its upper end", nullable=True),
    Column("other_cores", "float64", "CPU cores other processes kept busy meanwhile", nullable=True),
)
COUNTED_COLUMNS = (
    Column("instructions", "float64", "instructions one run executes, counted under emulation", nullable=True),
    Column("executes_on", "string", "what computed: cpu, a GPU's name, or a software device", nullable=True),
)
LUT = Table(
    "lut",
    3,
    (
        Column("key", "string", "canonical op key"),
        Column("op", "string", "operator or fused block"),
        *SETTING_COLUMNS,
        *LATENCY_COLUMNS,
        Column("flops", "float64", "2 per multiply-accumulate plus element-wise, whole batch", nullable=True),
        Column("bytes_moved", "float64", "least traffic of one run, whole batch", nullable=True),
        Column("parameters", "float64", "learned values", nullable=True),
        Column("overhead_ms", "float64", "cost of an empty call, subtracted from the latencies of this row", nullable=True),
        *COUNTED_COLUMNS,
        Column("overhead_instructions", "float64", "those of an empty call, subtracted from this row's", nullable=True),
        Column(
            "latency_mean_ms", "float64", "mean over runs, of tables others published; nothing of ours is a mean", nullable=True
        ),
    ),
    ("key", "dtype", "batch", "threads", "scenario"),
    {1: add_verdicts, 2: add_columns},
)
NETWORKS = Table(
    "networks",
    3,
    (
        Column("space", "string", "search space"),
        Column("architecture", "string", "architecture as JSON values"),
        *SETTING_COLUMNS,
        *LATENCY_COLUMNS,
        Column("key", "string", "identity in the journal"),
        *COUNTED_COLUMNS,
    ),
    ("key", "dtype", "batch", "threads", "scenario"),
    {1: add_verdicts, 2: add_columns},
)
TRIALS = Table(
    "trials",
    2,
    (
        Column("trial", "int64", "order of evaluation"),
        Column("architecture", "string", "gene indices as hex"),
        Column(
            "accuracy",
            "float64",
            "the proxy's score; null where there is none (no network, or it could not be scored)",
            nullable=True,
        ),
        Column("latency_ms", "float64", "plain prediction"),
        Column("upper_ms", "float64", "prediction's upper bound, what the budget is held against"),
        Column("fitness", "float64", "the objective's score; of several objectives the first", nullable=True),
        Column(
            "feasible",
            "bool",
            "it has a score, and what is held against each limit (upper bounds, unless asked otherwise) keeps it",
        ),
        Column("costs", "numbers", "what else is limited, by name, and upper bounds of what is predicted", nullable=True),
    ),
    ("trial",),
    {1: add_columns},
)
VERIFICATION = Table(
    "verification",
    2,
    (
        Column("space", "string", "search space"),
        Column("architecture", "string", "architecture as JSON values"),
        Column("role", "string", "winner, finalist or random"),
        Column("predicted_ms", "float64", "plain prediction of the statistic"),
        Column("upper_ms", "float64", "its upper bound"),
        *LATENCY_COLUMNS,
        Column("measured_ms", "float64", "the budget's statistic, measured"),
        Column("plain_sum_ms", "float64", "sum of the table's rows, no calibration"),
        Column("flops_ms", "float64", "calibrated FLOPs, fitted on the same networks", nullable=True),
        Column("primitive_sum_ms", "float64", "sum of primitive rows, where the table has them", nullable=True),
        Column("primitive_calibrated_ms", "float64", "the same, calibrated on the same networks", nullable=True),
    ),
    ("space", "architecture"),
    {1: add_verdicts},
)


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
    import pyarrow.parquet as pq

    try:
        data = pq.read_table(path)
        stored = (data.schema.metadata or {}).get(FOOTER_KEY)
        if stored is None:
            raise DataError(f"{path} is Parquet but not written by hwbench (no footer); make it with hwbench.")
        footer = json.loads(stored)
        name, version, written, found = footer["schema"], footer["version"], footer["checksum"], _checksum(data)
    except FileNotFoundError:
        raise DataError(f"There is no {table.name} table at {path}.") from None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} is damaged ({detail}); delete it and run the command that makes it again.") from None
    if name != table.name:
        raise DataError(f"{path} holds a '{name}' table, a '{table.name}' table was asked for.")
    if version > table.version:
        raise DataError(f"{path} has version {version}, this hwbench knows {table.version}: update hwbench.")
    if written != found:
        raise DataError(f"{path} was edited after hwbench wrote it (checksum differs); restore it or make it again.")
    for step in range(version, table.version):
        if step not in table.migrations:
            raise DataError(f"{path} has version {version}, which this hwbench cannot read; make it again.")
        data = table.migrations[step](data, table)
    if data.schema.names != [c.name for c in table.columns]:
        raise DataError(f"{path} lacks columns of {table.name} version {table.version}; make it again.")
    return data, footer


def read_table(path: Path) -> pa.Table:
    """Anyone's own Parquet table, as it is.

    Raises:
        UsageError: there is no such file.
        DataError: it is not Parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise UsageError(f"There is no table at {path}; give a Parquet file.")
    try:
        return pq.ParquetFile(path).read()
    except (OSError, ValueError, pa.ArrowException) as error:
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} cannot be read as Parquet ({detail}).") from None


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

    plain = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    return pa.map_(pa.string(), pa.float64()) if name == "numbers" else plain[name]


def _arrow_schema(table: Table) -> Any:
    import pyarrow as pa

    return pa.schema([pa.field(c.name, _arrow_type(c.type), nullable=c.nullable) for c in table.columns])


def _checksum(data: pa.Table) -> str:
    digest = hashlib.sha256()
    for name in data.schema.names:
        digest.update(json.dumps([name, data.column(name).to_pylist()]).encode())
    return digest.hexdigest()
