"""What simpler predictors say of the same models: FLOPs on a line, and nn-Meter's way, a random forest per kernel type.

Both get all that hwbench found out about a model, its kernels and FLOPs; so of a model that it refused they know nothing.
Forests learn from the same rows of the same table. As in nn-Meter a kernel of a type that has no forest adds nothing.
nn-Meter: Zhang et al., MobiSys 2021, github.com/microsoft/nn-Meter.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.core.errors import EnvironmentMismatch, UsageError
from hwbench.device.target import Target
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.aggregator.base import weighted_fit
from hwbench.predictor.kernel_prices import kernel_rows, kernel_setting
from hwbench.predictor.op_latency import known
from studies.harness import Run

FOREST = {"max_depth": 50, "n_estimators": 370, "min_samples_leaf": 1, "min_samples_split": 2, "random_state": 10}
"""What nn-Meter gives a kernel it has no settings of its own for."""
BESIDE_SIZES = ("flops", "parameters")
"""nn-Meter adds both to the sizes of products and convolutions."""
KERNEL = "kernel("
"""How the key of every kernel begins; a layer that cannot be stated as one has its type alone."""


@dataclass(frozen=True)
class Forest:
    """Kernels of one type."""

    columns: tuple[str, ...]
    """Kernels of one type may be described by different numbers: one that does not have a column has 0 there."""
    model: Any
    rows: int

    def predict(self, specs: Sequence[OpSpec], setting: Setting) -> np.ndarray:
        """The latency of each kernel, in ms."""
        return np.asarray(self.model.predict(_matrix([_sizes(spec, setting) for spec in specs], self.columns)))


def forests(rows_ms: Mapping[str, float], setting: Setting) -> dict[str, Forest]:
    """Kernel type -> forest, from measured kernels."""
    from sklearn.ensemble import RandomForestRegressor

    by_type: dict[str, list[tuple[dict[str, float], float]]] = {}
    for key, ms in rows_ms.items():
        spec = OpSpec.parse(key)
        by_type.setdefault(str(spec["type"]), []).append((_sizes(spec, setting), ms))
    found = {}
    for kind, rows in sorted(by_type.items()):
        columns = tuple(sorted({name for sizes, _ in rows for name in sizes}))
        model = RandomForestRegressor(**FOREST).fit(_matrix([s for s, _ in rows], columns), [ms for _, ms in rows])
        found[kind] = Forest(columns, model, len(rows))
    return found


def _sizes(spec: OpSpec, setting: Setting) -> dict[str, float]:
    about = known(spec, setting)
    return {**about.numbers, **{name: about.features[name] for name in BESIDE_SIZES}}


def _matrix(rows: Sequence[Mapping[str, float]], columns: Sequence[str]) -> np.ndarray:
    return np.array([[row.get(name, 0.0) for name in columns] for row in rows], float)


def forest_sum(layers: Sequence[Mapping[str, Any]], grown: Mapping[str, Forest], setting: Setting) -> dict[str, Any]:
    """The plain sum over a model's kernels, and what had no forest."""
    lacking: Counter[str] = Counter()
    priced: dict[str, list[tuple[OpSpec, int]]] = {}
    for layer in layers:
        spec = OpSpec.parse(layer["kernel"]) if layer["kernel"].startswith(KERNEL) else None
        kind = layer["type"] if spec is None else str(spec["type"])
        if spec is None or kind not in grown:
            lacking[kind] += layer["nodes"]
        else:
            priced.setdefault(kind, []).append((spec, layer["times"]))
    total = 0.0
    for kind, mine in priced.items():
        total += float(grown[kind].predict([spec for spec, _ in mine], setting) @ [times for _, times in mine])
    return {"forest_ms": total, "without_forest": lacking.total(), "types_without_forest": sorted(lacking)}


def line(known_models: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(constant in ms, ms per FLOP) with the least relative error on models of (FLOPs, ms)."""
    flops, ms = np.array(known_models, float).T
    constant, slope = weighted_fit(np.column_stack([np.ones(len(flops)), flops]), ms)
    return float(constant), float(slope)


def calibrating(answers: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """(FLOPs, ms) of every model whose kernels are known and that was measured."""
    return {
        name: (answer["flops"], truth[name]["latency_min_ms"])
        for name, answer in answers.items()
        if "flops" in answer and "latency_min_ms" in truth.get(name, {})
    }


def development(run: Run) -> dict[str, tuple[float, float]]:
    """What FLOPs are calibrated on: always the development half, whichever is judged.

    Raises:
        UsageError: its results are not given, or the folder holds those of the other half.
        EnvironmentMismatch: they come from another machine.
    """
    if run.options.half == "develop":
        return calibrating(run.result("predicted"), run.result("measured"))
    if run.options.develop is None:
        raise UsageError("Peers are calibrated on the development half: give --develop DIR, the --out of its own run.")
    other = Run(
        run.study, argparse.Namespace(**{**vars(run.options), "out": run.options.develop, "stage": None, "again": None})
    )
    if other.about["options"]["half"] != "develop":
        raise UsageError(f"{other.out} holds results of the half {other.about['options']['half']}, not of develop.")
    if other.about["machine"] != run.about["machine"]:
        raise EnvironmentMismatch(f"{other.out} was measured on {other.about['machine']}, this on {run.about['machine']}.")
    return calibrating(other.result("predicted"), other.result("measured"))


def judged(run: Run) -> dict[str, Any]:
    """Both peers on every model whose kernels are known; a model is never among those its line was drawn through."""
    learnt, setting = development(run), Setting()
    if len(learnt) < 2:
        raise UsageError(f"A line through FLOPs needs 2 models that were answered and measured, got {len(learnt)}.")
    among = kernel_setting(setting)  # the rows hwbench's own prices rest on
    grown = forests(kernel_rows(Lut.of(Target.of(workspace=run.workspace)), among), among)
    found = {}
    for name, answer in run.result("predicted").items():
        if "flops" in answer:
            constant, slope = line([pair for other, pair in learnt.items() if other != name])
            by_forest = forest_sum(answer["layers"], grown, setting)
            found[name] = {"flops_ms": constant + slope * answer["flops"], "kernels": answer["kernels"], **by_forest}
    constant, slope = line(list(learnt.values()))
    return {
        "line": {"constant_ms": constant, "ms_per_gflop": 1e9 * slope, "models": len(learnt)},
        "forests": {kind: forest.rows for kind, forest in grown.items()},
        "models": found,
    }
