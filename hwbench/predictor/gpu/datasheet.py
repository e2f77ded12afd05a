"""GPUs by their data sheets, the ops asked of them, and tables of what was measured.

A sheet is a device file of kind gpu: peaks in TFLOP/s, bandwidth in GB/s, SMs, clock, power. Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files
from hwbench.predictor import card

Array = np.ndarray
BINARY = ("add", "mul", "div", "pow")
UNARY = ("addu", "mulu", "divu", "powu", "relu", "tanh", "gelu")
KINDS = ("linear", "bmm", "softmax", "layernorm", "elementwise")
KIND_OF = {
    **dict(zip(KINDS[:4], KINDS[:4], strict=True)),
    "ln": "layernorm",
    **dict.fromkeys((*BINARY, *UNARY), "elementwise"),
}
"""Kind of every op name; a trailing u is the form with a scalar."""
FAMILIES = {"gemm": ("linear", "bmm"), "rows": ("elementwise", "softmax", "layernorm")}
DIMS = {"linear": "BMNK", "bmm": "BMNK", "elementwise": "BH", "softmax": "BH", "layernorm": "BH"}
"""Sizes an op needs: B products of [M, K] x [K, N]; B rows of H numbers."""
BYTES = {"fp32": 4, "tf32": 4, "fp16": 2}
THROTTLED = 1.5
"""A campaign whose large products are this much slower than another's on the same GPU says nothing about the GPU."""


@dataclass(frozen=True)
class Gpu:
    """What a data sheet says."""

    name: str
    peaks: Mapping[str, float]
    """Dense TFLOP/s by precision: fp32, tf32, fp16."""
    bandwidth_gb_s: float
    sms: int
    cores_per_sm: int
    clock_mhz: float
    l2_bytes: int
    memory_bytes: int
    tdp_w: float
    memory_kind: str
    """hbm or gddr."""
    table_names: tuple[str, ...] = ()
    """What public tables call it."""

    @property
    def chip(self) -> str:
        """Boards with the same chip are near twins: they are left out together."""
        return f"{self.sms}x{self.cores_per_sm}-{self.clock_mhz:g}-{self.l2_bytes}"


def gpus(workspace: str | Path = ".") -> dict[str, Gpu]:
    """Every GPU with a device file, by name."""
    found = (files.read(path) for path in files.files(Workspace.at(workspace)))
    return {d.name: of_device(d) for d in found if d.kind == "gpu"}


def of_device(found: files.Device) -> Gpu:
    """The data sheet of a device file.

    Raises:
        UsageError: the device is no GPU.
        DataError: an entry is missing or no number; it is named.
    """
    if found.kind != "gpu":
        raise UsageError(f"Device {found.name} is a {found.kind}, not a GPU; give a device of kind gpu (hwbench device list).")
    peaks = {key.removeprefix("tflops_"): float(v) for key, v in found.peaks.items() if key.startswith("tflops_")}
    try:
        return Gpu(
            name=found.name,
            peaks=peaks,
            bandwidth_gb_s=float(found.peaks["bandwidth_gb_s"]),
            sms=int(found.gpu["sms"]),
            cores_per_sm=int(found.gpu["cores_per_sm"]),
            clock_mhz=float(found.gpu["clock_mhz"]),
            l2_bytes=int(found.caches_bytes["l2"]),
            memory_bytes=found.memory_bytes,
            tdp_w=float(found.gpu["tdp_w"]),
            memory_kind=str(found.gpu["memory_kind"]),
            table_names=tuple(found.gpu.get("table_names", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"Device file {found.path} lacks a usable GPU data-sheet entry: {error}.") from None


@dataclass(frozen=True)
class Ops:
    """Operators as columns; sizes an op does not have are NaN."""

    op: Array
    sizes: Mapping[str, Array]

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any] | Array]) -> Ops:
        """Checked columns: op and the sizes its kinds need.

        Raises:
            UnknownName: an op of no known kind.
            UsageError: a column is missing, or a size is missing or not positive; it is named.
        """
        if "op" not in columns:
            raise UsageError(f"Ops need a column 'op'; found: {', '.join(columns) or 'none'}.")
        op = np.asarray(columns["op"], str)
        for name in sorted(set(op) - set(KIND_OF)):
            raise UnknownName(registry.unknown("GPU op", name, KIND_OF))
        sizes = {}
        for dim in "BMNKH":
            given = columns.get(dim)
            values = np.full(len(op), np.nan) if given is None else np.array([np.nan if v is None else v for v in given], float)
            needed = np.array([dim in DIMS[KIND_OF[name]] for name in op], bool)
            if given is None and needed.any():
                raise UsageError(f"Ops of kind {KIND_OF[op[needed][0]]} need a column '{dim}'; found: {', '.join(columns)}.")
            bad = needed & ~(values > 0)
            if bad.any():
                row = int(np.argmax(bad))
                raise UsageError(f"Row {row} ({op[row]}): {dim} must be a positive number, found {values[row]:g}.")
            sizes[dim] = values
        return cls(op, sizes)

    def __len__(self) -> int:
        return len(self.op)

    def take(self, index: Array) -> Ops:
        """Some of the ops."""
        return Ops(self.op[index], {dim: values[index] for dim, values in self.sizes.items()})

    @cached_property
    def kind(self) -> Array:
        """Kind of every op."""
        return np.array([KIND_OF[name] for name in self.op], dtype="U16")

    @property
    def flops(self) -> Array:
        """Operations; a few per number for what is no product."""
        per_number = np.where(self.kind == "elementwise", 1.0, 5.0)
        s = self.sizes
        products = 2 * s["B"] * s["M"] * s["N"] * s["K"]
        return np.asarray(np.where(np.isin(self.kind, FAMILIES["gemm"]), products, per_number * s["B"] * s["H"]))

    def bytes(self, precision: str = "fp32") -> Array:
        """Least traffic: every operand read once, the result written once."""
        s = self.sizes
        products = s["B"] * (s["M"] * s["K"] + s["K"] * s["N"] + s["M"] * s["N"])
        numbers = np.where(np.isin(self.op, BINARY), 3.0, 2.0) * s["B"] * s["H"]
        return np.asarray(BYTES[precision] * np.where(np.isin(self.kind, FAMILIES["gemm"]), products, numbers))


@dataclass(frozen=True)
class Rows:
    """Measured ops of several GPUs."""

    ops: Ops
    gpu: Array
    ms: Array
    campaign: Array
    """Which measuring session a row comes from: levels of sessions differ."""

    def __len__(self) -> int:
        return len(self.ms)

    def take(self, index: Array) -> Rows:
        """Some of the rows."""
        return Rows(self.ops.take(index), self.gpu[index], self.ms[index], self.campaign[index])

    @cached_property
    def cells(self) -> Array:
        """GPU, campaign and kind of every row as one text: the unit that has a level of its own."""
        return np.array(["/".join(cell) for cell in zip(self.gpu, self.campaign, self.ops.kind, strict=True)])

    def sample(self, per_cell: int, seed: int = 0) -> Array:
        """Indices of at most that many rows per cell; their choice does not depend on the order of rows in the file."""
        _, cell = np.unique(self.cells, return_inverse=True)
        keys = (self.ms, *(np.nan_to_num(v) for v in self.ops.sizes.values()), self.ops.op, cell)
        order = np.lexsort(keys)
        shuffled = order[np.random.default_rng(seed).permutation(len(order))]
        by_cell = shuffled[np.argsort(cell[shuffled], kind="stable")]
        starts = np.searchsorted(cell[by_cell], np.arange(cell.max() + 1))
        rank = np.arange(len(by_cell)) - starts[cell[by_cell]]
        return np.sort(by_cell[rank < per_cell])


def read_neusight(tables: str | Path, known: Mapping[str, Gpu]) -> tuple[Rows, dict[str, Any], dict[str, float]]:
    """The fp32 ops of NeuSight's table, repeats of one shape as their median; what a card says of the file; how repeats differ.

    Raises:
        UnknownName: the table has a GPU without a device file.
    """
    path = Path(tables) / "neusight" / "gpu_ops.parquet"
    frame = schema.read_table(path).to_pandas()
    named = {alias: name for name, gpu in known.items() for alias in gpu.table_names}
    for alias in sorted(set(frame["device"].astype(str)) - set(named)):
        raise UnknownName(registry.unknown("GPU", alias, named))
    frame["device"] = frame["device"].astype(str).map(named)
    identity = ["split", "op", "device", *"BMNKH"]
    frame = frame.astype({"split": str, "op": str, **dict.fromkeys("BMNKH", float), "latency_ms": float})
    grouped = frame.groupby(identity, dropna=False)["latency_ms"]
    repeated = grouped.transform("size") > 1
    apart = (frame["latency_ms"] / grouped.transform("median") - 1).abs()[repeated]
    facts = {**card.data_of(path, len(frame)), "file": "neusight/gpu_ops.parquet"}
    noise = {
        "repeated_rows": int(repeated.sum()),
        "mean_abs_error": float(apart.mean()),
        "p95_abs_error": float(apart.quantile(0.95)),
    }
    frame = grouped.median().reset_index()
    ops = Ops.of({name: frame[name].to_numpy() for name in ("op", *"BMNKH")})
    rows = Rows(ops, frame["device"].to_numpy(str), frame["latency_ms"].to_numpy(float), frame["split"].to_numpy(str))
    return rows, facts, noise


def throttled(rows: Rows) -> dict[str, float]:
    """Cells whose large products ran THROTTLED times slower than in another campaign on the same GPU, and how many times."""
    large = (rows.ops.flops > 1e10) & (rows.ops.flops < 1e12) & np.isin(rows.ops.kind, FAMILIES["gemm"])
    part = rows.take(np.flatnonzero(large))
    speed = part.ops.flops / part.ms
    medians = {cell: float(np.median(speed[part.cells == cell])) for cell in np.unique(part.cells)}
    found = {}
    for cell, value in medians.items():
        gpu, _, kind = cell.split("/")
        best = max(v for other, v in medians.items() if (other.split("/")[0], other.split("/")[2]) == (gpu, kind))
        if best > THROTTLED * value:
            found[cell] = best / value
    return found


Sheet = Mapping[str, Array]


def sheet_of(names: Array, known: Mapping[str, Gpu], precision: str) -> Sheet:
    """The data sheets as one column per entry and one row per op."""
    unique, at = np.unique(names, return_inverse=True)
    rows = []
    for name in unique:
        gpu = known[str(name)]
        if precision not in gpu.peaks:
            raise UsageError(f"GPU {name} states no {precision} peak; it has {', '.join(gpu.peaks)}.")
        gddr = float(gpu.memory_kind == "gddr")
        rows.append((gpu.peaks[precision] * 1e9, gpu.bandwidth_gb_s * 1e6, gpu.sms, gpu.l2_bytes, gpu.tdp_w, gddr))
    columns = np.array(rows)[at].T
    return dict(zip(("flops_per_ms", "bytes_per_ms", "sms", "l2_bytes", "tdp_w", "gddr"), columns, strict=True))
