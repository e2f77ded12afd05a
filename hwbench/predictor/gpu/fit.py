"""GPU operators: latency on a GPU nobody measured, from its data sheet and what other GPUs did.

    hwbench fit --gpu --tables DIR --out predictors/gpu/neusight-ops
    hwbench predict MODEL.onnx --device nvidia-l4
    hwbench predict --predictor gpu/neusight-ops --device nvidia-l4 --input ops.parquet --output out.parquet

Three layers, each only as strong as few generations allow:
1. physics with parameters shared by all GPUs and number formats (roofline.py), fitted robustly to log latency with a free
   level per measuring campaign;
2. boosted trees on what is left, on sizes and dimensionless numbers (waves, tail, intensity against balance, overhead share),
   never on a data-sheet entry by itself; how much of them is believed is chosen per kind by leaving generations out;
3. with some measured ops of the new GPU: a Gaussian process over the rest (process.py), its prior learnt from how the known
   GPUs, each generation left out in turn, differed from layers 1 and 2 (empirical Bayes).
Intervals are conformal, calibrated on left-out generations (left_out.py) and wider for a data sheet unlike those (outside.py).
Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, openmp, registry
from hwbench.core.command import Value, command
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.progress import step
from hwbench.predictor import card
from hwbench.predictor.card_types import GPU, GpuCard
from hwbench.predictor.gpu import left_out as lefts
from hwbench.predictor.gpu import networks as whole
from hwbench.predictor.gpu import outside
from hwbench.predictor.gpu.datasheet import DIMS, FAMILIES, FORMAT, KIND_OF, Gpu, Rows, gpus
from hwbench.predictor.gpu.left_out import MEASURED, LeftOut, spread_over_kinds
from hwbench.predictor.gpu.model import Array, Core, GpuModel, booster
from hwbench.predictor.gpu.roofline import PRIORS, physics, tree_features
from hwbench.predictor.gpu.tables import read_all, throttled

ROW_SPREAD = {"gemm": 0.25, "rows": 0.15, "conv": 0.25}
ODD_LEVEL = 0.1
"""How far (log) rows lie from the level of their campaign; beyond what level a campaign pulls less and less."""
CAMPAIGN_WORTH = 40
"""Rows a campaign counts for, however many it has: campaigns differ, rows of one do not."""
PHYSICS_ROWS, TREE_ROWS, CHECK_ROWS = 100, 600, 150
"""Rows per campaign and kind given to physics, trees, the left-out checks."""
TREES: dict[str, Any] = {
    "objective": "huber",
    "alpha": 0.3,
    "num_leaves": 24,
    "learning_rate": 0.06,
    "min_data_in_leaf": 60,
    "lambda_l2": 5.0,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "num_threads": 1,
    "seed": 1,
    "verbose": -1,
    "deterministic": True,
    "force_row_wise": True,
}
TREE_COUNT = 120
NETWORKS = "whole networks, the generation left out"


def make(
    tables: str | Path,
    out: str | Path,
    leave_out: Sequence[str] = (),
    adapt_to: str = "",
    measured: int = MEASURED,
    workspace: str | Path = ".",
) -> GpuCard:
    """Fits on public tables and stores the predictor; the card as stored.

    Args:
        tables: Folder of the public tables: neusight/, and aiconfigurator/ where half precision is wanted too.
        out: Folder of the predictor.
        leave_out: GPUs whose rows are not looked at.
        adapt_to: A GPU of the tables to adapt to: its rows are not fitted on, `measured` of them are then shown, and the card
            states the error on the others.
        measured: How many.
        workspace: Where device files are.

    Raises:
        UnknownName: a GPU the tables do not have.
    """
    known = gpus(workspace)
    rows, files, noise = read_all(tables, known)
    for name in (*leave_out, *filter(None, [adapt_to])):
        if name not in rows.gpu:
            raise UnknownName(registry.unknown("GPU of the tables", name, set(map(str, rows.gpu))))
    hidden = [*leave_out, adapt_to]
    networks = [each for each in whole.read(tables, known)[0] if each.gpu not in hidden]
    model = fit_gpu(rows.take(np.flatnonzero(~np.isin(rows.gpu, hidden))), known, networks=networks)
    errors: dict[str, Any] = {how: _errors_of(by_label, "mean_abs_error") for how, by_label in model.judged.items()}
    coverage: dict[str, Any] = {"asked": conformal.COVERAGE}
    coverage |= {how: _errors_of(by_label, "covered") for how, by_label in model.judged.items()}
    if model.end_to_end is not None:
        errors[NETWORKS], coverage[NETWORKS] = (
            {name: each[what] for name, each in model.end_to_end.judged.items()} for what in ("mean_abs_error", "covered")
        )
    if adapt_to:
        own = rows.take(np.flatnonzero((rows.gpu == adapt_to) & (rows.campaign == "test")))
        model, rest, error, inside = _adapt(model, known[adapt_to], own, measured)
        errors[f"{adapt_to}, {rest} other rows"], coverage[f"{adapt_to}, {rest} other rows"] = error, inside
    values, arrays = model.state()
    chosen: dict[str, Value] = {"adapt": adapt_to, "measured": measured} if adapt_to else {}
    rebuild = command("fit", gpu=True, out=card.shown_folder(out), leave_out=list(leave_out), **chosen)
    return card.write(
        Path(out),
        GpuCard,
        {
            "kind": GPU,
            "device": adapt_to or None,
            "data": files,
            "features": {"physics": {f: list(p) for f, p in PRIORS.items()}, "ops": sorted(KIND_OF), "sizes": DIMS},
            "errors": errors,
            "coverage": coverage,
            "noise_ceiling": noise,
            "rebuild": card.with_tables(rebuild),
            "state": values,
        },
        arrays,
    )


def _adapt(model: GpuModel, gpu: Gpu, own: Rows, measured: int) -> tuple[GpuModel, int, dict[str, float], dict[str, float]]:
    """The model adapted to a GPU by some of its rows; the number of other rows, and error and coverage on them by kind."""
    shown = spread_over_kinds(own.ops.kind, np.arange(len(own)), measured, 0)
    model = model.adapt(gpu, own.ops.take(shown), own.ms[shown])
    rest = own.take(np.setdiff1d(np.arange(len(own)), shown))
    ms, _ = model.predict(gpu, rest.ops)
    low, high = model.bounds(gpu, rest.ops)
    error, inside = np.abs(ms / rest.ms - 1), (low <= rest.ms) & (rest.ms <= high)
    each = {str(kind): rest.ops.kind == kind for kind in np.unique(rest.ops.kind)}
    errors, covered = ({kind: float(values[at].mean()) for kind, at in each.items()} for values in (error, inside))
    return model, len(rest), errors, covered


def _errors_of(by_label: Mapping[str, Mapping[str, Mapping[str, float]]], what: str) -> dict[str, dict[str, float]]:
    return {label: {name: e[what] for name, e in each.items() if what in e} for label, each in by_label.items()}


def fit_gpu(
    rows: Rows, known: Mapping[str, Gpu], coverage: float = conformal.COVERAGE, networks: Sequence[whole.Measured] = ()
) -> GpuModel:
    """Fits all layers; every generation is left out once, which gives belief, doubt, the process' prior and both bands.

    Args:
        rows: Measured operators.
        known: Data sheets.
        coverage: Asked of the intervals.
        networks: Measured end to end: what calibrates sums of operators.

    Raises:
        UsageError: rows of fewer than two generations, or a GPU without data sheet.
    """
    names = sorted(set(map(str, rows.gpu)))
    for name in names:
        if name not in known:
            raise UnknownName(registry.unknown("GPU", name, known))
    generation = {name: known[name].generation for name in names}
    if len(set(generation.values())) < 2:
        raise UsageError(f"What carries over between GPUs shows on two generations at least; the rows have {', '.join(names)}.")
    rows = sound(rows)
    rows = rows.take(rows.sample(TREE_ROWS))
    parts = _leave_out(rows, known, generation)
    belief = {str(label): lefts.belief_of(str(label), parts) for label in np.unique(np.concatenate([p.label for p in parts]))}
    spread = {label: lefts.spread_of(label, belief, parts) for label in belief}
    core = _fit_core(rows, known)
    process = {family: lefts.fit_process(family, parts, belief, spread) for family in core.theta}
    zero = {label: [p.pair(label, belief, spread) for p in lefts.having(label, parts)] for label in belief}
    adapted: dict[str, Sequence[lefts.Pair]] = {}
    for family in process:
        adapted.update(lefts.adapted(family, process[family], parts, belief, spread))
    seen = _by_format(rows)
    ranges = {number: outside.range_of([known[name] for name in each], number) for number, each in seen.items()}
    judged = {"zero_shot": lefts.judge(zero, coverage), f"measured_{MEASURED}": lefts.judge(adapted, coverage)}
    bands = (lefts.bands(zero, coverage), lefts.bands(adapted, coverage))
    end_to_end = whole.calibrate(networks, parts, belief, known, coverage)
    return GpuModel(seen, ranges, core, belief, spread, process, *bands, judged, end_to_end)


def sound(rows: Rows) -> Rows:
    """Without cells that were throttled."""
    return rows.take(np.flatnonzero(~np.isin(rows.cells, list(throttled(rows)))))


def _by_format(rows: Rows) -> dict[str, tuple[str, ...]]:
    numbers = sorted(set(map(str, rows.precision)), key=lambda number: (number != FORMAT, number))
    return {number: tuple(sorted(set(map(str, rows.gpu[rows.precision == number])))) for number in numbers}


def _leave_out(rows: Rows, known: Mapping[str, Gpu], generation: Mapping[str, str]) -> list[LeftOut]:
    """Every generation as seen by what was fitted without it."""
    own = np.array([generation[str(name)] for name in rows.gpu])
    found: list[LeftOut] = []
    with step("leaving each generation out") as tick:
        for one in sorted(set(generation.values())):
            tick(len(found), len(set(generation.values())))
            others, asked = rows.take(np.flatnonzero(own != one)), rows.take(np.flatnonzero(own == one))
            core = _fit_core(others, known)
            found.append(LeftOut(one, asked.take(asked.sample(CHECK_ROWS, seed=1)), core, known, _by_format(others)))
    return found


def _fit_core(rows: Rows, known: Mapping[str, Gpu]) -> Core:
    theta, trees, level = {}, {}, {}
    for family, kinds in FAMILIES.items():
        part = rows.take(np.flatnonzero(np.isin(rows.ops.kind, kinds)))
        if len(part):
            theta[family] = _fit_physics(family, part.take(part.sample(PHYSICS_ROWS)), known)
            trees[family], levels = _fit_trees(family, part, theta[family], known)
            level.update(levels)
    return Core(theta, trees, level)


def _fit_physics(family: str, rows: Rows, known: Mapping[str, Gpu]) -> Array:
    """Parameters at which most campaigns have level 0 and rows lie near their campaign's level."""
    from scipy.optimize import least_squares

    sheet = rows.sheet(known)
    middle, width = np.array(list(PRIORS[family].values())).T
    _, cell = np.unique(rows.cells, return_inverse=True)
    count = np.bincount(cell)
    weight = np.sqrt(CAMPAIGN_WORTH / count[cell])
    measured = np.log(rows.ms)
    spread = ROW_SPREAD[family]

    def off(theta: Array) -> Array:
        residual = measured - np.log(physics(family, theta, rows.ops, sheet).ms)
        level = np.bincount(cell, residual) / count
        inside = np.clip(residual - level[cell], -1, 1) * weight
        typical = np.sign(level) * np.sqrt(np.log1p((level / ODD_LEVEL) ** 2))  # Cauchy: an odd GPU may stay odd
        return np.concatenate([inside / spread, typical, (theta - middle) / width])

    return np.asarray(least_squares(off, middle, loss="soft_l1", max_nfev=30, x_scale=width).x)


def _fit_trees(family: str, rows: Rows, theta: Array, known: Mapping[str, Gpu]) -> tuple[str, dict[str, float]]:
    """Trees of what cells have in common beside their levels; and the level of each label, the median generation's."""
    lightgbm = openmp.lightgbm()
    sheet = rows.sheet(known)
    parts = physics(family, theta, rows.ops, sheet)
    features = tree_features(family, rows.ops, sheet, parts)
    off = np.log(rows.ms / parts.ms)
    cells, cell = np.unique(rows.cells, return_inverse=True)
    of_generation = np.array([f"{known[c.split('/')[0]].generation}/{c.split('/')[2]}" for c in cells])
    names, group = np.unique(of_generation[cell], return_inverse=True)
    weight = 1 / np.bincount(group)[group]
    learnt, text = np.zeros(len(off)), ""
    for _ in range(2):
        level = _medians(off - learnt, cell)
        data = lightgbm.Dataset(features, off - level[cell], weight=weight / weight.mean())
        text = lightgbm.train(TREES, data, TREE_COUNT).model_to_string()
        learnt = booster(text).predict(features, num_threads=1)
    level = _medians(off - learnt, cell)
    each = {name: float(level[of_generation == name].mean()) for name in names}
    found = {name.rsplit("/", 1)[1] for name in names}
    return text, {label: float(np.median([v for n, v in each.items() if n.endswith(f"/{label}")])) for label in sorted(found)}


def _medians(values: Array, cell: Array) -> Array:
    return np.array([np.median(values[cell == i]) for i in range(cell.max() + 1)])
