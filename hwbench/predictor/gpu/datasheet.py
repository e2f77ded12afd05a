"""GPUs by their data sheets, and the ops asked of them.

A sheet is a device file of kind gpu: peaks in TFLOP/s, bandwidth in GB/s, SMs, clock, power. Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files

Array = np.ndarray
BINARY = ("add", "mul", "div", "pow")
UNARY = ("addu", "mulu", "divu", "powu", "relu", "tanh", "gelu")
KINDS = ("linear", "bmm", "softmax", "layernorm", "elementwise")
"""What every network is made of; convolutions stand beside."""
KIND_OF = {
    **dict(zip(KINDS[:4], KINDS[:4], strict=True)),
    "ln": "layernorm",
    **dict.fromkeys((*BINARY, *UNARY), "elementwise"),
    "conv": "conv",
}
"""Kind of every op name; a trailing u is the form with a scalar."""
FAMILIES = {"gemm": ("linear", "bmm"), "rows": ("elementwise", "softmax", "layernorm"), "conv": ("conv",)}
PRODUCTS = (*FAMILIES["gemm"], *FAMILIES["conv"])
DIMS = {"linear": "BMNK", "bmm": "BMNK", "elementwise": "BH", "softmax": "BH", "layernorm": "BH", "conv": "BMNKH"}
"""Sizes an op needs: B products of [M, K] x [K, N]; B rows of H numbers. A convolution is the product of its M windows of K
values with N filters, made of H values that are read: windows overlap."""
FORMAT = "fp32"
"""The number format that is meant where none is named."""
BYTES = {"fp32": 4, "tf32": 4, "fp16": 2}
"""Of a number. bf16 has the peak and the size of fp16."""
UNSTATED_NM = 7.0
"""Taken for a process that a device file does not state: the middle of those learnt from. `GpuModel.outside` says so."""


@dataclass(frozen=True)
class Gpu:
    """What a data sheet says."""

    name: str
    peaks: Mapping[str, float]
    """Dense TFLOP/s by number format: fp32, tf32, fp16."""
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
    architecture: str = ""
    """The maker's name of its generation."""
    process_nm: float | None = None
    """The maker's name of the process: what an operation costs in energy goes with it. None: not stated."""

    @property
    def generation(self) -> str:
        """What is left out together: siblings tell each other's secrets. A file that states none is one of its own."""
        return self.architecture or f"{self.sms}x{self.cores_per_sm}-{self.clock_mhz:g}-{self.l2_bytes}"


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
    process = found.gpu.get("process_nm")
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
            architecture=str(found.gpu.get("architecture", "")),
            process_nm=None if process is None else float(process),
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

    @classmethod
    def joined(cls, parts: Sequence[Ops]) -> Ops:
        """All of them, one after another."""
        return cls(np.concatenate([p.op for p in parts]), {d: np.concatenate([p.sizes[d] for p in parts]) for d in "BMNKH"})

    @cached_property
    def kind(self) -> Array:
        """Kind of every op."""
        return np.array([KIND_OF[name] for name in self.op], dtype="U16")

    @cached_property
    def flops(self) -> Array:
        """Operations; a few per number for what is no product."""
        per_number = np.where(self.kind == "elementwise", 1.0, 5.0)
        s = self.sizes
        products = 2 * s["B"] * s["M"] * s["N"] * s["K"]
        return np.asarray(np.where(np.isin(self.kind, PRODUCTS), products, per_number * s["B"] * s["H"]))

    @cached_property
    def numbers(self) -> Array:
        """Least traffic in numbers: every operand read once, the result written once."""
        s = self.sizes
        read = np.where(self.kind == "conv", s["H"], s["M"] * s["K"])
        products = s["B"] * (read + s["K"] * s["N"] + s["M"] * s["N"])
        rows = np.where(np.isin(self.op, BINARY), 3.0, 2.0) * s["B"] * s["H"]
        return np.asarray(np.where(np.isin(self.kind, PRODUCTS), products, rows))

    def bytes(self, precision: str = FORMAT) -> Array:
        """Least traffic in bytes."""
        return BYTES[precision] * self.numbers


def label_of(kind: str, precision: str) -> str:
    """A kind in a number format: what has a level, a doubt and a band of its own."""
    return kind if precision == FORMAT else f"{kind} {precision}"


@dataclass(frozen=True)
class Rows:
    """Measured ops of several GPUs."""

    ops: Ops
    gpu: Array
    ms: Array
    campaign: Array
    """Which measuring session a row comes from: levels of sessions differ."""
    precision: Array
    """Number format of each row."""

    def __len__(self) -> int:
        return len(self.ms)

    def take(self, index: Array) -> Rows:
        """Some of the rows."""
        return Rows(self.ops.take(index), self.gpu[index], self.ms[index], self.campaign[index], self.precision[index])

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All of them, one after another."""
        columns = (np.concatenate([getattr(p, name) for p in parts]) for name in ("gpu", "ms", "campaign", "precision"))
        return cls(Ops.joined([p.ops for p in parts]), *columns)

    @cached_property
    def label(self) -> Array:
        """Kind and number format of every row."""
        return labels(self.ops.kind, self.precision)

    @cached_property
    def cells(self) -> Array:
        """GPU, campaign and label of every row as one text: the unit that has a level of its own."""
        return np.array(["/".join(cell) for cell in zip(self.gpu, self.campaign, self.label, strict=True)])

    def sheet(self, known: Mapping[str, Gpu]) -> Sheet:
        """The data sheet of every row's GPU."""
        return sheet_of(self.gpu, known, self.precision)

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


def labels(kind: Array, precision: Array) -> Array:
    """`label_of` for arrays."""
    pairs, at = np.unique(np.char.add(np.char.add(kind, "/"), precision), return_inverse=True)
    return np.array([label_of(*pair.split("/")) for pair in pairs], dtype="U24")[at] if len(pairs) else np.zeros(0, "U24")


Sheet = Mapping[str, Array]
COLUMNS = ("flops_per_ms", "bytes_per_ms", "sms", "cycles_per_ms", "l2_bytes", "tdp_w", "process_nm", "gddr", "wide", "half")
"""Of a sheet; `number_bytes` and `alone` go with them. gddr, wide (128 lanes per SM share the ports of 64), half, and alone (an
op is run by itself, as tables do, not within a network) are 0 or 1."""


def sheet_of(names: Array, known: Mapping[str, Gpu], precision: Array | str, alone: bool = True) -> Sheet:
    """The data sheets as one column per entry and one row per op."""
    pairs = np.char.add(np.char.add(np.asarray(names, str), "|"), np.asarray(precision, str))
    unique, at = np.unique(pairs, return_inverse=True)
    rows = []
    for pair in unique:
        name, _, number = str(pair).rpartition("|")
        gpu = known[name]
        if number not in gpu.peaks:
            raise UsageError(f"GPU {name} states no {number} peak; it has {', '.join(gpu.peaks)}.")
        # Lanes were doubled after Ampere's first chip; such a chip also has tensor cores for TF32, which Pascal's had not.
        wide = float(gpu.cores_per_sm >= 128 and "tf32" in gpu.peaks and number == FORMAT)
        machine = (gpu.sms, gpu.clock_mhz * 1e3, gpu.l2_bytes, gpu.tdp_w, gpu.process_nm or UNSTATED_NM)
        flags = (float(gpu.memory_kind == "gddr"), wide, float(BYTES[number] == 2), BYTES[number])
        rows.append((gpu.peaks[number] * 1e9, gpu.bandwidth_gb_s * 1e6, *machine, *flags))
    columns = np.array(rows).reshape(len(rows), len(COLUMNS) + 1)[at].T
    return {**dict(zip((*COLUMNS, "number_bytes"), columns, strict=True)), "alone": np.full(len(at), float(alone))}
