"""Physics that turns a data sheet and an op into a latency, shared by all GPUs and number formats.

Launch overhead + soft maximum of compute and memory traffic, with parameters that `fit.py` fits. All a GPU contributes are
ratios of its data sheet, each through a bounded, smooth, monotone function, so that a GPU outside the range seen is not
extrapolated by a polynomial or a tree:

compute   tiles in waves over the SMs. A tile costs its arithmetic at the rate one SM sustains, the loads of its operands from
          L2 that are not hidden behind it, and a start and an end. The rate is what kernels reach of the peak, less where the
          power limit binds: rate / (1 + demand^4)^(strain/4), demand being the watts that rate would need over those the
          board may draw. What an operation costs in energy goes with a power of the process.
memory    least traffic at the bandwidth of DRAM, as far as it does not stay in L2 between two runs; the rest at that of L2.

Latencies in ms. After NeuSight (Lee et al., ASPLOS 2025: waves of tiles) and Williams et al. (2009: roofline).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwbench.predictor.gpu.datasheet import BINARY, FORMAT, KIND_OF, Array, Gpu, Ops, Sheet, sheet_of

TILES = np.array([(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32)], float)
SPLITS = (1, 2, 4, 8, 16, 32)
MMA = 2048.0
"""Operations per cycle and SM in half precision that TFLOP/s per watt are stated for: those of an A100."""
L2_BYTES_PER_CYCLE = 64
"""An SM's port to L2, of every generation since Pascal."""
OLD_NM = 12.0
"""The process that TFLOP/s per watt are stated for. 12FFN is a shrink of 16FF in name: older ones are taken as the same."""
PRIORS: dict[str, dict[str, tuple[float, float]]] = {
    "gemm": {
        "efficiency": (np.log(0.95), 0.05),
        "half_efficiency": (np.log(0.85), 0.1),
        # Lanes that share register ports: published SGEMM reaches 0.75 to 0.85 of the peak on GA102, AD102, GH100.
        "wide_efficiency": (np.log(0.8), 0.07),
        "bmm_efficiency": (0.0, 0.2),
        "per_watt": (np.log(0.058), 0.15),  # sustained fp32 TFLOP/s per watt at OLD_NM
        "half_per_watt": (np.log(0.4), 0.3),
        "mma": (np.log(0.35), 0.4),  # exponent of how much an SM multiplies per cycle: large ones read operands less often
        "process": (np.log(0.9), 0.25),  # exponent of OLD_NM over the process
        "strain": (np.log(0.8), 0.2),  # exponent of how the clock gives in
        "bmm_pause": (np.log(0.5), 1.0),  # ms between two runs alone: short batched products never meet the power limit
        "load": (np.log(0.3), 0.5),  # share of a tile's loads that arithmetic does not hide
        "k_extra": (np.log(25.0), 0.5),  # start and end of a tile's loop, in steps of K
        "bmm_k_extra": (0.0, 0.7),
        "bmm_narrow": (np.log(0.3), 1.0),  # batched kernels have few tiles of few rows: how much longer those take
        "fill_cycles": (np.log(1500.0), 0.5),  # until a tile's first operands are there, in cycles
        "quantised": (0.0, 1.0),  # logit of how much of the last wave's idle SMs is lost
        "overhead_linear": (np.log(0.045), 1.0),
        "overhead_bmm": (np.log(0.04), 1.0),
        "overhead_half": (np.log(0.004), 0.7),
        "memory": (np.log(0.87), 0.1),
        "half_memory": (np.log(0.87), 0.1),
        "gddr": (np.log(0.87), 0.1),  # what error correction costs memory without spare bits
        "reach": (np.log(0.7), 0.4),  # footprint, in sizes of L2, half of which stays there between runs
        "half_reach": (np.log(0.2), 0.6),  # of weights: the campaign in half precision takes other ones at every run
        "l2_speed": (np.log(0.5), 0.3),  # share of an SM's port
        "sharpness": (np.log(2.5), 0.3),  # of the soft maximum
        "split_ms": (np.log(0.005), 0.7),
    },
    "rows": {
        "overhead_elementwise": (np.log(0.015), 1.0),
        "overhead_softmax": (np.log(0.015), 1.0),
        "overhead_layernorm": (np.log(0.02), 1.0),
        "memory_elementwise": (np.log(0.87), 0.1),
        "memory_softmax": (np.log(0.8), 0.2),
        "memory_layernorm": (np.log(0.8), 0.2),
        "gddr": (np.log(0.87), 0.1),
        "reach": (np.log(0.7), 0.4),
        "l2_speed": (np.log(0.5), 0.3),
        "reread": (np.log(1.3), 0.3),  # traffic of softmax rows too long to be kept in registers
    },
}
PRIORS["conv"] = {
    **{name: PRIORS["gemm"][name] for name in PRIORS["gemm"] if not name.startswith("overhead_")},
    "efficiency": (np.log(1.0), 0.4),  # of the product it equals: ways with fewer multiplications beat it
    "overhead_conv": (np.log(0.06), 1.0),
    "overhead_half": PRIORS["gemm"]["overhead_half"],
}
"""Physics in logarithms: (middle, spread), a weak opinion that ten thousand rows overrule and four GPUs need."""


@dataclass(frozen=True)
class Parts:
    """What the physics of some ops of one family add up to, in ms."""

    ms: Array
    compute: Array
    memory: Array
    overhead: Array

    @property
    def shares(self) -> Array:
        """Of overhead, compute and memory in each latency, as columns that add up to 1."""
        launch = self.overhead / self.ms
        bound = 1 / (1 + (self.memory / np.maximum(self.compute, 1e-12)) ** 2)
        return np.column_stack([launch, (1 - launch) * bound, (1 - launch) * (1 - bound)])


def roofline(gpu: Gpu, ops: Ops, precision: str = FORMAT) -> Array:
    """The plain bound: the longer of operations at the peak and traffic at full bandwidth."""
    sheet = sheet_of(np.array([gpu.name] * len(ops)), {gpu.name: gpu}, precision)
    return np.maximum(ops.flops / sheet["flops_per_ms"], ops.bytes(precision) / sheet["bytes_per_ms"])


def physics(family: str, theta: Array, ops: Ops, sheet: Sheet) -> Parts:
    """What physics says of some ops of one family; theta has one value per entry of its PRIORS."""
    value = dict(zip(PRIORS[family], theta, strict=True))
    kind, half = ops.kind, sheet["half"]
    if family == "rows":
        passes = np.where((kind == "softmax") & (ops.sizes["H"] > 1024), np.exp(value["reread"]), 1.0)
        efficiency, overhead = (_by_kind(kind, value, what) for what in ("memory", "overhead"))
        memory = passes * _traffic(value, ops, sheet, efficiency)
        return Parts(overhead + memory, np.zeros(len(ops)), memory, overhead)
    efficiency = np.exp(np.where(half > 0, value["half_memory"], value["memory"]))
    memory = _traffic(value, ops, sheet, efficiency)
    overhead = np.where(half > 0, np.exp(value["overhead_half"]), _by_kind(kind, value, "overhead"))
    compute = _products(value, ops, sheet)
    power = np.exp(value["sharpness"])
    return Parts(overhead + (compute**power + memory**power) ** (1 / power), compute, memory, overhead)


def _by_kind(kind: Array, value: Mapping[str, float], what: str) -> Array:
    names, at = np.unique(kind, return_inverse=True)
    return np.array([np.exp(value[f"{what}_{name}"]) for name in names])[at] if len(names) else np.zeros(0)


def _traffic(value: Mapping[str, float], ops: Ops, sheet: Sheet, efficiency: Array) -> Array:
    """Time of the least traffic: what stays in L2 between two runs comes from there."""
    moved = ops.numbers * sheet["number_bytes"]
    weights = np.where(sheet["half"] > 0, ops.sizes["B"] * ops.sizes["K"] * ops.sizes["N"] / ops.numbers, 0.0)
    missed = _missed(np.exp(value["reach"]), sheet, moved)
    if weights.any():
        missed = (1 - weights) * missed + weights * _missed(np.exp(value["half_reach"]), sheet, moved)
    dram = sheet["bytes_per_ms"] * efficiency * np.exp(value["gddr"] * sheet["gddr"])
    l2 = np.exp(value["l2_speed"]) * L2_BYTES_PER_CYCLE * sheet["sms"] * sheet["cycles_per_ms"]
    return np.asarray(moved * (missed / dram + (1 - missed) / np.maximum(l2, dram)))


def _missed(reach: float, sheet: Sheet, footprint: Array) -> Array:
    return np.asarray(1 / (1 + (reach * sheet["l2_bytes"] / footprint) ** 4))


def _rate(value: Mapping[str, float], ops: Ops, sheet: Sheet) -> Array:
    """Operations per ms that kernels reach where power allows it."""
    reached = np.where(sheet["half"] > 0, value["half_efficiency"], value["efficiency"])
    reached = reached + value["wide_efficiency"] * sheet["wide"] + value["bmm_efficiency"] * (ops.kind == "bmm")
    return np.asarray(sheet["flops_per_ms"] * np.exp(reached))


def _stretched(value: Mapping[str, float], compute: Array, rate: Array, ops: Ops, sheet: Sheet) -> Array:
    """How many times longer arithmetic takes for want of power."""
    half = sheet["half"] > 0
    per_watt = np.exp(np.where(half, value["half_per_watt"], value["per_watt"]))
    per_cycle = sheet["flops_per_ms"] / (sheet["sms"] * sheet["cycles_per_ms"])
    per_watt = per_watt * np.where(half, (per_cycle / MMA) ** np.exp(value["mma"]), 1.0)
    process = (OLD_NM / np.minimum(sheet["process_nm"], OLD_NM)) ** np.exp(value["process"])
    pause = np.exp(value["bmm_pause"]) * sheet["alone"] * (ops.kind == "bmm")
    demand = rate / 1e9 / (per_watt * process * sheet["tdp_w"]) * compute / (compute + pause)
    return np.asarray((1 + demand**4) ** (np.exp(value["strain"]) / 4))


def _products(value: Mapping[str, float], ops: Ops, sheet: Sheet) -> Array:
    """Time of the arithmetic: the best of tiles and K-splits, in waves over the SMs."""
    rate = _rate(value, ops, sheet)
    per_sm = rate / sheet["sms"]
    load = np.exp(value["load"]) * sheet["number_bytes"] / (L2_BYTES_PER_CYCLE * sheet["cycles_per_ms"])
    batched = ops.kind == "bmm"
    fill = np.exp(value["fill_cycles"]) / sheet["cycles_per_ms"]
    extra = np.exp(value["k_extra"] + value["bmm_k_extra"] * batched)
    lost = 1 / (1 + np.exp(-value["quantised"]))
    s = ops.sizes
    partial = 2 * 4 * s["B"] * s["M"] * s["N"] / sheet["bytes_per_ms"]  # partial sums are fp32 in every format
    best = np.full(len(ops), np.inf)
    for rows, columns in TILES:
        step = 2 * rows * columns / per_sm + (rows + columns) * load
        step = step * (1 + np.exp(value["bmm_narrow"]) * batched * (rows < 64))
        waves = _tiles(ops, rows, columns) / sheet["sms"]
        for split in SPLITS:
            w = waves * split
            w = np.where(w <= 1, 1.0, lost * np.ceil(w) + (1 - lost) * w)
            spent = w * (step * (s["K"] / split + extra) + fill)
            best = np.minimum(best, spent if split == 1 else spent + np.exp(value["split_ms"]) + split * partial)
    return np.asarray(best * _stretched(value, best, rate, ops, sheet))


def _tiles(ops: Ops, rows: float, columns: float) -> Array:
    return ops.sizes["B"] * np.ceil(ops.sizes["M"] / rows) * np.ceil(ops.sizes["N"] / columns)


def tree_features(family: str, ops: Ops, sheet: Sheet, parts: Parts) -> Array:
    """What the trees see: sizes and dimensionless numbers, none that names a GPU by itself."""
    s = {dim: np.log2(v) for dim, v in ops.sizes.items()}
    share = parts.overhead / parts.ms
    footprint = np.log2(ops.numbers * sheet["number_bytes"] / sheet["l2_bytes"])
    if family == "rows":
        names = list(KIND_OF)
        op = np.array([names.index(name) for name in ops.op], float)
        columns = [ops.kind == "softmax", ops.kind == "layernorm", np.isin(ops.op, BINARY), op, s["B"], s["H"]]
        columns += [ops.sizes["H"] > 1024, share, np.log2(ops.sizes["B"] / sheet["sms"]), footprint]
        return np.column_stack(columns).astype(float)
    windows = np.log2(np.where(ops.kind == "conv", ops.sizes["M"] * ops.sizes["K"] / ops.sizes["H"], 1.0))
    columns = [ops.kind == "linear", sheet["half"], s["B"], s["M"], s["N"], s["K"], s["M"] - s["N"], share]
    for side in (128, 64, 32):
        tiles = _tiles(ops, side, side)
        waves = tiles / sheet["sms"]
        padding = tiles * side**2 / (ops.sizes["B"] * ops.sizes["M"] * ops.sizes["N"])
        columns += [np.log2(waves), np.log2(np.maximum(np.ceil(waves), 1) / waves), np.log2(padding)]
    columns += [np.log2(parts.compute / parts.memory), footprint, *([windows] if family == "conv" else [])]
    columns += [np.log2(ops.sizes[dim] / 128 / sheet["sms"]) for dim in "NM"]
    return np.column_stack(columns).astype(float)


def places_of(family: str, ops: Ops, sheet: Sheet, parts: Parts) -> Array:
    """Where the Gaussian process sees an op: three shares (see Parts), then what it is near to.

    Distance 1 is about as far as one measurement speaks.
    """
    s = {dim: np.log2(v) for dim, v in ops.sizes.items()}
    shares = parts.shares
    if family == "rows":
        long = np.where(ops.kind == "softmax", ops.sizes["H"] > 1024, 0.0)
        footprint = np.log2(ops.numbers * sheet["number_bytes"] / sheet["l2_bytes"]) / 3
        near = [s["H"] / 1.5, shares[:, 0] / 0.4, footprint, np.isin(ops.op, BINARY), long]
    else:
        waves = np.log2(_tiles(ops, 128, 128) / sheet["sms"]) / 4
        bound = np.log2(parts.compute / parts.memory) / 3
        near = [s["K"] / 3, s["M"] / 3, s["N"] / 3, waves, bound, shares[:, 0] / 0.4]
    return np.column_stack([shares, *near])
