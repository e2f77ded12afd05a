"""Public tables of measured GPU operators, read into rows.

NeuSight: fp32 operators under PyTorch, one by one between two events, so that each pays its launch. aiconfigurator: products in
half precision under vLLM, in captured graphs, so that hardly any launch shows. DeepBench: fp32 products in a C++ loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.core.errors import UnknownName
from hwbench.predictor import card
from hwbench.predictor.gpu.datasheet import FAMILIES, Gpu, Ops, Rows

THROTTLED = 1.5
"""A campaign whose large products are this much slower than another's on the same GPU says nothing about the GPU."""
HALF = {"gemm_vllm_more_gpus.parquet": "framework_version", "gemm.parquet": "version"}
"""aiconfigurator's tables of products, and which column says the release of vLLM."""


def read_neusight(tables: str | Path, known: Mapping[str, Gpu]) -> tuple[Rows, dict[str, Any], dict[str, float]]:
    """The fp32 ops of NeuSight's table, repeats of one shape as their median; what a card says of the file; how repeats differ.

    Raises:
        UnknownName: the table has a GPU without a device file.
    """
    path = Path(tables) / "neusight" / "gpu_ops.parquet"
    frame = schema.read_table(path).to_pandas()
    named = _named(known)
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
    names, ms, campaign = (frame[c].to_numpy(t) for c, t in (("device", str), ("latency_ms", float), ("split", str)))
    return Rows(ops, names, ms, campaign, np.full(len(ops), "fp32")), facts, noise


def read_half(tables: str | Path, known: Mapping[str, Gpu]) -> tuple[Rows, list[dict[str, Any]], list[str]]:
    """bf16 products of aiconfigurator's tables; what a card says of the files; systems left out for want of a device file."""
    import pandas as pd

    named, parts, facts = _named(known), [], []
    for file, version in HALF.items():
        path = Path(tables) / "aiconfigurator" / file
        frame = schema.read_table(path).to_pandas()
        frame = frame[frame["gemm_dtype"].astype(str) == "bfloat16"]
        if "framework" in frame:
            frame = frame[frame["framework"].astype(str) == "VLLM"]
        text = {"system": frame["system"].astype(str), "campaign": "vllm-" + frame[version].astype(str)}
        parts.append(frame.assign(**text)[["campaign", "system", "m", "n", "k", "latency_ms"]])
        facts.append({**card.data_of(path, len(frame)), "file": f"aiconfigurator/{file}"})
    whole = pd.concat(parts)
    unread = sorted(set(whole["system"]) - set(named))
    whole = whole.assign(system=whole["system"].map(named)).dropna(subset="system")
    whole = whole.groupby(["campaign", "system", "m", "n", "k"], as_index=False)["latency_ms"].median()  # the files overlap
    sizes = {"B": np.ones(len(whole)), **{dim.upper(): whole[dim].to_numpy(float) for dim in "mnk"}}
    ops = Ops.of({"op": ["linear"] * len(whole), **sizes})
    names, ms, campaign = (whole[c].to_numpy(t) for c, t in (("system", str), ("latency_ms", float), ("campaign", str)))
    return Rows(ops, names, ms, campaign, np.full(len(ops), "fp16")), facts, unread


def read_conv(tables: str | Path, known: Mapping[str, Gpu]) -> tuple[Rows, dict[str, Any]]:
    """NeuSight's fp32 convolutions (3 x 3, dense), repeats of one shape as their median; what a card says of the file."""
    path = Path(tables) / "neusight" / "gpu_conv.parquet"
    frame = schema.read_table(path).to_pandas()
    frame["device"] = frame["device"].astype(str).map(_named(known))
    sides = {"Kernel_Szie": "side", "Input_Channel": "into", "Output_Channel": "N", "Input_Size": "size", "B": "batch"}
    frame = frame.rename(columns=sides).astype({"latency_ms": float})
    columns = ["device", "batch", "into", "N", "side", "size", "Stride", "Padding"]
    frame = frame.groupby(columns, as_index=False)["latency_ms"].median()
    out = (frame["size"] + 2 * frame["Padding"] - frame["side"]) // frame["Stride"] + 1
    sizes = {
        "B": np.ones(len(frame)),
        "M": frame["batch"] * out**2,
        "N": frame["N"],
        "K": frame["into"] * frame["side"] ** 2,
        "H": frame["batch"] * frame["into"] * frame["size"] ** 2,
    }
    ops = Ops.of({"op": ["conv"] * len(frame), **{dim: np.asarray(values, float) for dim, values in sizes.items()}})
    ms, names = frame["latency_ms"].to_numpy(float), frame["device"].to_numpy(str)
    facts = {**card.data_of(path, len(frame)), "file": "neusight/gpu_conv.parquet"}
    return Rows(ops, names, ms, np.full(len(ops), "conv"), np.full(len(ops), "fp32")), facts


def read_all(tables: str | Path, known: Mapping[str, Gpu]) -> tuple[Rows, list[dict[str, Any]], dict[str, Any]]:
    """NeuSight's ops; convolutions and products in half precision where they are there too: rows, files, what repeats tell."""
    rows, first, noise = read_neusight(tables, known)
    parts, facts = [rows], [first]
    told: dict[str, Any] = dict(noise)
    if (Path(tables) / "neusight" / "gpu_conv.parquet").is_file():
        convolutions, about = read_conv(tables, known)
        parts, facts = [*parts, convolutions], [*facts, about]
    if (Path(tables) / "aiconfigurator").is_dir():
        half, more, told["systems_without_device_file"] = read_half(tables, known)
        parts, facts = [*parts, half], [*facts, *more]
    return Rows.joined(parts), facts, told


def _named(known: Mapping[str, Gpu]) -> dict[str, str]:
    return {alias: name for name, gpu in known.items() for alias in gpu.table_names}


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
