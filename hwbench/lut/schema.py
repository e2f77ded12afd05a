"""Columns of latency tables, of operators and of whole networks.

Version history
    lut 1, networks 1: first.
    lut 2, networks 2: status says whether there is a latency, verdict whether to trust it; latency_fastest_ms,
        the interval of the median, other_cores; lut also overhead_ms. In version 1 a minimum was the smallest single
        reading, which is latency_fastest_ms now; its latency_min_ms is kept as it was.
    lut 3, networks 3: instructions (counted where nothing is timed) and executes_on; lut also overhead_instructions. Before,
        everything ran on a CPU and was timed: the new columns are null.
    lut 4, networks 4: device, runtime, measured_at; lut also sizes and shapes, and a kernel's `op` is its own type (MatMul),
        where it was "kernel" for all. What an older file did not say is null, and its `op` as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.core.schema import Column, Table, add_columns

if TYPE_CHECKING:
    import pyarrow as pa


def add_verdicts(data: pa.Table, table: Table) -> pa.Table:
    """The step of latencies from version 1 to 2: `status` held the verdict too."""
    import pyarrow as pa

    old = data.column("status").to_pylist()
    words = [{"ok": "stable", "noisy": "noisy"}.get(status) for status in old]
    statuses = pa.array(["ok" if status == "noisy" else status for status in old], pa.string())
    data = data.set_column(data.schema.names.index("status"), "status", statuses)
    return add_columns(data.append_column("verdict", pa.array(words, pa.string())), table)


SETTING_COLUMNS = (
    Column("dtype", "string", "number format of weights and activations"),
    Column("batch", "int64", "samples per run"),
    Column("threads", "int64", "threads of the runtime"),
    Column("scenario", "string", "how runs follow each other"),
)
ORIGIN_COLUMNS = (
    Column("device", "string", "what it was measured on, by the name of its file in devices/", nullable=True),
    Column("runtime", "string", "inference runtime it was measured with; its version is in the footer", nullable=True),
    Column("measured_at", "string", "when its last sample was taken, ISO 8601, UTC", nullable=True),
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
    4,
    (
        Column("key", "string", "canonical op key"),
        Column("op", "string", "operator or fused block; of a kernel of an ONNX model its type"),
        Column("sizes", "numbers", "the op's own sizes, as in its key, of one sample", nullable=True),
        Column("input_shapes", "shapes", "of the activations it reads: of one sample, of a kernel as it runs", nullable=True),
        Column("weight_shapes", "shapes", "of the constants it reads", nullable=True),
        Column("output_shapes", "shapes", "of the activations it writes, as those it reads", nullable=True),
        *ORIGIN_COLUMNS,
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
    {1: add_verdicts, 2: add_columns, 3: add_columns},
)
NETWORKS = Table(
    "networks",
    4,
    (
        Column("space", "string", "search space"),
        Column("architecture", "string", "architecture as JSON values"),
        *ORIGIN_COLUMNS,
        *SETTING_COLUMNS,
        *LATENCY_COLUMNS,
        Column("key", "string", "identity in the journal"),
        *COUNTED_COLUMNS,
    ),
    ("key", "dtype", "batch", "threads", "scenario"),
    {1: add_verdicts, 2: add_columns, 3: add_columns},
)
