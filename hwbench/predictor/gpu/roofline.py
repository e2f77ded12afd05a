"""Physics that turns a data sheet and an op into a latency.

Launch overhead + soft maximum of compute (tiles in waves over the SMs, split-K, a clock limited by power) and memory
traffic, with parameters that all GPUs share (`fit.py` fits them). Latencies in ms. After NeuSight (Lee et al., ASPLOS
2025: waves of tiles) and Williams et al. (2009: roofline).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwbench.predictor.gpu.datasheet import BINARY, BYTES, KIND_OF, Array, Gpu, Ops, Sheet, sheet_of

TFLOPS_PER_WATT = {"fp32": 0.058, "tf32": 0.35, "fp16": 0.8}
"""What sustained products get out of a watt: the middle of the prior."""
TILES = np.array([(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32)], float)
SPLITS = (1, 2, 4, 8, 16, 32)
PRIORS: dict[str, dict[str, tuple[float, float]]] = {
    "gemm": {
        "efficiency": (np.log(0.95), 0.05),
        "bmm_efficiency": (0.0, 0.2),
        "tile_half": (np.log(4.0), 0.5),  # tile intensity that reaches half the efficiency
        "k_extra": (np.log(40.0), 0.5),  # start and end of a tile's loop, in steps of K
        "quantised": (0.0, 1.0),  # logit of how much of the last wave's idle SMs is lost
        "overhead_linear": (np.log(0.045), 1.0),
        "overhead_bmm": (np.log(0.04), 1.0),
        "memory": (np.log(0.87), 0.1),
        "gddr": (np.log(0.87), 0.1),  # what error correction costs memory without spare bits
        "sharpness": (np.log(2.5), 0.3),  # of the soft maximum
        "per_watt": (0.0, 0.1),
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
        "reread": (np.log(1.3), 0.3),  # traffic of softmax rows too long to be kept in registers
    },
}
"""Physics in logarithms: (middle, spread), a weak opinion that ten thousand rows overrule and four GPUs need."""


@dataclass(frozen=True)
class Parts:
    """What the physics of some ops of one family add up to, in ms."""

    ms: Array
    compute: Array
    memory: Array
    overhead: Array


def roofline(gpu: Gpu, ops: Ops, precision: str = "fp32") -> Array:
    """The plain bound: the longer of operations at the peak and traffic at full bandwidth."""
    sheet = sheet_of(np.array([gpu.name] * len(ops)), {gpu.name: gpu}, precision)
    return np.maximum(ops.flops / sheet["flops_per_ms"], ops.bytes(precision) / sheet["bytes_per_ms"])


def physics(family: str, theta: Array, ops: Ops, sheet: Sheet, precision: str) -> Parts:
    """What physics says of some ops of one family; theta has one value per entry of its PRIORS."""
    value = dict(zip(PRIORS[family], theta, strict=True))
    memory = ops.bytes(precision) / sheet["bytes_per_ms"] * np.exp(-value["gddr"] * sheet["gddr"])
    kind = ops.kind
    if family == "rows":
        passes = np.where((kind == "softmax") & (ops.sizes["H"] > 1024), np.exp(value["reread"]), 1.0)
        efficiency, overhead = (_by_kind(kind, value, what) for what in ("memory", "overhead"))
        memory = memory * passes / efficiency
        return Parts(overhead + memory, np.zeros(len(ops)), memory, overhead)
    memory = memory * np.exp(-value["memory"])
    overhead = _by_kind(kind, value, "overhead")
    compute = _products(value, ops, sheet, precision)
    power = np.exp(value["sharpness"])
    return Parts(overhead + (compute**power + memory**power) ** (1 / power), compute, memory, overhead)


def _by_kind(kind: Array, value: Mapping[str, float], what: str) -> Array:
    names, at = np.unique(kind, return_inverse=True)
    return np.array([np.exp(value[f"{what}_{name}"]) for name in names])[at] if len(names) else np.zeros(0)


def _products(value: Mapping[str, float], ops: Ops, sheet: Sheet, precision: str) -> Array:
    """Time of the arithmetic: the best of tiles and K-splits, in waves over SMs whose clock power limits."""
    by_power = TFLOPS_PER_WATT[precision] * 1e9 * np.exp(value["per_watt"]) * sheet["tdp_w"]
    sustained = (sheet["flops_per_ms"] ** -4.0 + by_power**-4.0) ** -0.25
    per_sm = sustained / sheet["sms"] * np.exp(value["efficiency"] + value["bmm_efficiency"] * (ops.kind == "bmm"))
    lost = 1 / (1 + np.exp(-value["quantised"]))
    s = ops.sizes
    partial = 2 * BYTES[precision] * s["B"] * s["M"] * s["N"] / sheet["bytes_per_ms"]
    best = np.full(len(ops), np.inf)
    for rows, columns in TILES:
        intensity = rows * columns / (rows + columns)
        step = 2 * rows * columns * (1 + np.exp(value["tile_half"]) / intensity) / per_sm
        waves = _tiles(ops, rows, columns) / sheet["sms"]
        for split in SPLITS:
            w = waves * split
            w = np.where(w <= 1, 1.0, lost * np.ceil(w) + (1 - lost) * w)
            spent = w * step * (s["K"] / split + np.exp(value["k_extra"]))
            best = np.minimum(best, spent if split == 1 else spent + np.exp(value["split_ms"]) + split * partial)
    return best


def _tiles(ops: Ops, rows: float, columns: float) -> Array:
    return ops.sizes["B"] * np.ceil(ops.sizes["M"] / rows) * np.ceil(ops.sizes["N"] / columns)


def tree_features(family: str, ops: Ops, sheet: Sheet, parts: Parts) -> Array:
    """What the trees see: sizes and dimensionless numbers, none that names a GPU by itself."""
    s = {dim: np.log2(v) for dim, v in ops.sizes.items()}
    share = parts.overhead / parts.ms
    if family == "rows":
        names = list(KIND_OF)
        op = np.array([names.index(name) for name in ops.op], float)
        columns = [ops.kind == "softmax", ops.kind == "layernorm", np.isin(ops.op, BINARY), op, s["B"], s["H"]]
        columns += [ops.sizes["H"] > 1024, share, np.log2(ops.sizes["B"] / sheet["sms"])]
        columns += [np.log2(ops.sizes["B"] * ops.sizes["H"] * 4 / sheet["l2_bytes"])]
        return np.column_stack(columns).astype(float)
    columns = [ops.kind == "linear", s["B"], s["M"], s["N"], s["K"], s["M"] - s["N"], share]
    for side in (128, 64, 32):
        tiles = _tiles(ops, side, side)
        waves = tiles / sheet["sms"]
        padding = tiles * side**2 / (ops.sizes["B"] * ops.sizes["M"] * ops.sizes["N"])
        columns += [np.log2(waves), np.log2(np.maximum(np.ceil(waves), 1) / waves), np.log2(padding)]
    columns += [np.log2(parts.compute / parts.memory), np.log2(ops.bytes() / sheet["l2_bytes"])]
    columns += [np.log2(ops.sizes[dim] / 128 / sheet["sms"]) for dim in "NM"]
    return np.column_stack(columns).astype(float)


def places_of(family: str, ops: Ops, sheet: Sheet, parts: Parts) -> Array:
    """Where the Gaussian process sees an op: distance 1 is about as far as one measurement speaks."""
    s = {dim: np.log2(v) for dim, v in ops.sizes.items()}
    share = parts.overhead / parts.ms / 0.4
    if family == "rows":
        long = np.where(ops.kind == "softmax", ops.sizes["H"] > 1024, 0.0)
        return np.column_stack([s["H"] / 1.5, share, np.log2(ops.sizes["B"] / sheet["sms"]) / 4, np.isin(ops.op, BINARY), long])
    waves = np.log2(_tiles(ops, 128, 128) / sheet["sms"]) / 4
    bound = np.log2(parts.compute / parts.memory) / 3
    return np.column_stack([s["K"] / 3, s["M"] / 3, s["N"] / 3, waves, bound, share])
