"""Tables of GPU operators: predicted on any GPU, and a few measured ones that adapt a predictor to theirs.

    hwbench predict --predictor gpu/neusight-ops --device nvidia-l4 --input ops.parquet --output out.parquet
    hwbench transfer --predictor gpu/neusight-ops --device nvidia-l4 --measured few.parquet --out predictors/nvidia-l4/ops

A table has a column op (hwbench.predictor.gpu.datasheet.KIND_OF) and the sizes its kind needs; measured ones latency_ms too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import schema
from hwbench.core.command import command
from hwbench.core.errors import UsageError
from hwbench.core.typed_json import encode
from hwbench.device import files
from hwbench.predictor import card
from hwbench.predictor.card_types import GpuCard
from hwbench.predictor.gpu import datasheet
from hwbench.predictor.gpu import model as gpus
from hwbench.predictor.gpu.datasheet import FORMAT, Gpu, Ops
from hwbench.predictor.gpu.model import GpuModel

ADDED = ("prediction", "low", "high")
FOLDS = 5
"""Parts of the measured ops, each predicted from the others: what a card can state of them."""
LEAST = 2 * FOLDS
"""Measured ops from which on that says something."""


@dataclass(frozen=True)
class Asked:
    """A stored predictor, and the GPU it is asked about."""

    folder: Path
    gpu: Gpu
    model: GpuModel

    @classmethod
    def of(cls, predictor: str | Path, device: str, workspace: str | Path = ".") -> Asked:
        """By name or folder, and a GPU's device name."""
        folder = card.find(predictor, workspace)
        return cls(folder, datasheet.of_device(files.get(device, workspace)), gpus.load(folder))


@dataclass(frozen=True)
class Few:
    """Measured ops of a GPU."""

    file: Path
    ops: Ops
    ms: np.ndarray

    @classmethod
    def read(cls, path: Path) -> Few:
        """A table with latency_ms.

        Raises:
            UsageError: it has none, or not a latency in every row.
        """
        table = schema.read_table(path)
        if "latency_ms" not in table.column_names:
            raise UsageError(f"{path} needs a column 'latency_ms'; found: {', '.join(table.column_names)}.")
        ms = np.array([np.nan if each is None else each for each in table.column("latency_ms").to_pylist()], float)
        return cls(path, Ops.of(table.to_pydict()), ms)


def predict(asked: Asked, source: Path, output: Path, dtype: str = FORMAT, few: Few | None = None) -> dict[str, Any]:
    """Writes the table with prediction, low and high (ms); what --json prints of it.

    Args:
        asked: Predictor and GPU.
        source: Parquet of ops.
        output: Parquet to write.
        dtype: Number format of the ops.
        few: Ops measured on that GPU, which correct the prediction.

    Raises:
        UsageError: a column is missing or taken, or ops of a kind the predictor does not know.
    """
    model = asked.model if few is None else asked.model.adapt(asked.gpu, few.ops, few.ms, dtype)
    table = schema.read_table(source)
    if taken := [name for name in table.column_names if name in ADDED]:
        raise UsageError(f"{source} already has a column {', '.join(taken)}; rename it.")
    ops = Ops.of(table.to_pydict())
    ms, _ = model.predict(asked.gpu, ops, dtype)
    for name, values in zip(ADDED, (ms, *model.bounds(asked.gpu, ops, dtype)), strict=True):
        table = table.append_column(name, [values])
    schema.write_table(output, table)
    return {
        "output": str(output),
        "gpu": asked.gpu.name,
        "rows": len(ops),
        "measured": 0 if few is None else len(few.ops),
        "unread_columns": [name for name in table.column_names if name not in ("op", *"BMNKH", *ADDED)],
        "outside": model.outside(asked.gpu, dtype),
        "predictor": gpus.facts(asked.folder).document(),
    }


def adapt(asked: Asked, few: Few, out: Path, dtype: str = FORMAT) -> GpuCard:
    """Stores the predictor adapted to a GPU by some of its ops; the card as stored.

    Raises:
        UsageError: nothing measured, a latency that is not positive, or a kind the predictor does not know.
    """
    base = card.read_as(GpuCard, asked.folder, "one of GPU operators is asked.")
    model = asked.model.adapt(asked.gpu, few.ops, few.ms, dtype)
    values, arrays = model.state()
    told = f"{len(few.ops)} measured, each predicted from the others"
    errors, covered = _from_each_other(asked, few, dtype) if len(few.ops) >= LEAST else ({}, {})
    measured = {**card.data_of(few.file, len(few.ops)), "file": few.file.name}
    rebuild = command(
        "transfer", predictor=card.shown_folder(asked.folder), device=asked.gpu.name, measured=few.file.name,
        out=card.shown_folder(out),
    )  # fmt: skip
    return card.write(
        out,
        GpuCard,
        {
            "kind": base.kind,
            "device": asked.gpu.name,
            "data": [*encode(base.data), measured],
            "features": encode(base.features),
            "errors": {**encode(base.errors), told: errors},
            "coverage": {**(encode(base.coverage) or {}), told: covered},
            "noise_ceiling": encode(base.noise_ceiling),
            "rebuild": rebuild,
            "state": values,
        },
        arrays,
    )


def _from_each_other(asked: Asked, few: Few, dtype: str) -> tuple[dict[str, float], dict[str, float]]:
    """Error and coverage by kind, every fold predicted by what the others taught."""
    off, inside = np.zeros(len(few.ops)), np.zeros(len(few.ops))
    fold = np.random.default_rng(0).permutation(len(few.ops)) % FOLDS
    for one in range(FOLDS):
        told, rest = np.flatnonzero(fold != one), np.flatnonzero(fold == one)
        model = asked.model.adapt(asked.gpu, few.ops.take(told), few.ms[told], dtype)
        ops, ms = few.ops.take(rest), few.ms[rest]
        low, high = model.bounds(asked.gpu, ops, dtype)
        off[rest] = np.abs(model.predict(asked.gpu, ops, dtype)[0] / ms - 1)
        inside[rest] = (low <= ms) & (ms <= high)
    kinds = sorted(set(map(str, few.ops.kind)))
    errors, covered = ({kind: float(each[few.ops.kind == kind].mean()) for kind in kinds} for each in (off, inside))
    return errors, covered
