"""GPU operators: latency on a GPU nobody measured, from its data sheet and what other GPUs did.

    hwbench gpu fit --tables DIR --out predictors/gpu/neusight-ops
    hwbench gpu predict --predictor predictors/gpu/neusight-ops --gpu nvidia-l4 --input ops.parquet --output out.parquet

Three layers, each only as strong as few GPUs allow:
1. physics with parameters shared by all GPUs: launch overhead + soft maximum of compute (tiles in waves over the SMs, split-K,
   a clock limited by power) and memory traffic, fitted robustly to log latency with a free level per measuring campaign;
2. boosted trees on what is left, on sizes and dimensionless numbers (waves, tail, intensity against balance, overhead share),
   never on a data-sheet entry by itself; how much of them is believed is chosen per kind by leaving known GPUs out;
3. with some measured ops of the new GPU: a Gaussian process over the rest, its prior learnt from how the known GPUs, each left
   out in turn, differed from layers 1 and 2 (empirical Bayes).
Intervals are conformal, calibrated on left-out GPUs. Latencies in ms. After NeuSight (Lee et al., ASPLOS 2025: waves of tiles)
and Williams et al. (2009: roofline).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, openmp, registry
from hwbench.core.command import Value, command
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.progress import step
from hwbench.predictor import card
from hwbench.predictor.card_types import GPU, GpuCard
from hwbench.predictor.gpu.datasheet import DIMS, FAMILIES, KIND_OF, KINDS, Gpu, Rows, gpus, read_neusight, sheet_of, throttled
from hwbench.predictor.gpu.model import FARTHEST, Array, Core, GpuModel, ask, booster, conditioned, layers, learn, of_kind
from hwbench.predictor.gpu.roofline import PRIORS, physics, tree_features

MEASURED = 30
"""Measured ops of a new GPU that the adapted interval is calibrated for."""
ROW_SPREAD = {"gemm": 0.25, "rows": 0.15}
ODD_LEVEL = 0.1
"""How far (log) rows lie from the level of their campaign; beyond what level a campaign pulls less and less."""
CAMPAIGN_WORTH = 40
"""Rows a campaign counts for, however many it has: campaigns differ, rows of one do not."""
PHYSICS_ROWS, TREE_ROWS, CHECK_ROWS, PROCESS_ROWS = 150, 1200, 150, 25
"""Rows per campaign and kind given to physics, trees, the left-out checks, the Gaussian process."""
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
TREE_COUNT = 150
BELIEFS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of trees and levels to choose from."""
LOUDER = (1.0, 1.5, 2.0, 3.0)


def make(
    tables: str | Path,
    out: str | Path,
    leave_out: Sequence[str] = (),
    adapt_to: str = "",
    measured: int = MEASURED,
    workspace: str | Path = ".",
) -> GpuCard:
    """Fits on NeuSight's table and stores the predictor; the card as stored.

    Args:
        tables: Folder of the public tables.
        out: Folder of the predictor.
        leave_out: GPUs whose rows are not looked at.
        adapt_to: A GPU of the table to adapt to: its rows are not fitted on, `measured` of them are then shown, and the card
            states the error on the others.
        measured: How many.
        workspace: Where device files are.

    Raises:
        UnknownName: a GPU the table does not have.
    """
    known = gpus(workspace)
    rows, facts, noise = read_neusight(tables, known)
    for name in (*leave_out, *filter(None, [adapt_to])):
        if name not in rows.gpu:
            raise UnknownName(registry.unknown("GPU of the table", name, set(map(str, rows.gpu))))
    model = fit_gpu(rows.take(np.flatnonzero(~np.isin(rows.gpu, [*leave_out, adapt_to]))), known)
    errors: dict[str, Any] = {how: _errors_of(by_kind, "mean_abs_error") for how, by_kind in model.judged.items()}
    coverage: dict[str, Any] = {"asked": conformal.COVERAGE}
    coverage |= {how: _errors_of(by_kind, "covered") for how, by_kind in model.judged.items()}
    if adapt_to:
        own = rows.take(np.flatnonzero((rows.gpu == adapt_to) & (rows.campaign == "test")))
        model, rest, error, inside = _adapt(model, known[adapt_to], own, measured)
        errors[f"{adapt_to}, {rest} other rows"], coverage[f"{adapt_to}, {rest} other rows"] = error, inside
    values, arrays = model.state()
    adapted: dict[str, Value] = {"adapt": adapt_to, "measured": measured} if adapt_to else {}
    rebuild = command("gpu fit", out=card.shown_folder(out), leave_out=list(leave_out), **adapted)
    return card.write(
        Path(out),
        GpuCard,
        {
            "kind": GPU,
            "device": adapt_to or None,
            "data": [facts],
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
    each = {kind: rest.ops.kind == kind for kind in model.kinds}
    errors, covered = ({kind: float(values[at].mean()) for kind, at in each.items()} for values in (error, inside))
    return model, len(rest), errors, covered


def _errors_of(by_kind: Mapping[str, Mapping[str, Mapping[str, float]]], what: str) -> dict[str, dict[str, float]]:
    return {kind: {name: entry[what] for name, entry in chips.items() if what in entry} for kind, chips in by_kind.items()}


def fit_gpu(rows: Rows, known: Mapping[str, Gpu], precision: str = "fp32", coverage: float = conformal.COVERAGE) -> GpuModel:
    """Fits all layers; every chip is left out once, which gives belief, doubt, the process' prior and both bands.

    Raises:
        UsageError: rows of fewer than two unlike chips, or a GPU without data sheet.
    """
    names = tuple(sorted(set(map(str, rows.gpu))))
    for name in names:
        if name not in known:
            raise UnknownName(registry.unknown("GPU", name, known))
    chips = {name: known[name].chip for name in names}
    if len(set(chips.values())) < 2:
        raise UsageError(
            f"What carries over between GPUs shows on two unlike chips at least; the rows have {', '.join(names)}."
        )
    slow = throttled(rows)
    rows = rows.take(np.flatnonzero(~np.isin(rows.cells, list(slow))))
    rows = rows.take(rows.sample(TREE_ROWS))
    chip = np.array([chips[str(name)] for name in rows.gpu])
    left_out: list[_Left] = []
    with step("leaving each chip out") as tick:
        for one in sorted(set(chips.values())):
            tick(len(left_out), len(set(chips.values())))
            core = _fit_core(rows.take(np.flatnonzero(chip != one)), known, precision)
            checked = rows.take(np.flatnonzero(chip == one))
            left_out.append(_Left(checked.take(checked.sample(CHECK_ROWS, seed=1)), core, known, precision))
    belief = {kind: _belief(kind, left_out) for kind in KINDS if any((part.kind == kind).any() for part in left_out)}
    spread = {kind: _spread(kind, belief[kind], left_out) for kind in belief}
    core = _fit_core(rows, known, precision)
    process = {family: _fit_process(family, left_out, belief, spread) for family in core.theta}
    zero = {kind: [p.pair(kind, belief, spread) for p in left_out if (p.kind == kind).any()] for kind in belief}
    adapted: dict[str, Sequence[Pair]] = {}
    for family in process:
        adapted.update(_adapted(family, process[family], left_out, belief, spread))
    judged = {"zero_shot": _judge(zero, coverage, True), f"measured_{MEASURED}": _judge(adapted, coverage, False)}
    bands = (_bands(zero, coverage, True), _bands(adapted, coverage, False))
    return GpuModel(precision, names, core, belief, spread, process, *bands, judged)


def _fit_core(rows: Rows, known: Mapping[str, Gpu], precision: str) -> Core:
    theta, trees, level = {}, {}, {}
    for family, kinds in FAMILIES.items():
        part = rows.take(np.flatnonzero(np.isin(rows.ops.kind, kinds)))
        if len(part):
            theta[family] = _fit_physics(family, part.take(part.sample(PHYSICS_ROWS)), known, precision)
            trees[family], levels = _fit_trees(family, part, theta[family], known, precision)
            level.update(levels)
    return Core(theta, trees, level)


def _fit_physics(family: str, rows: Rows, known: Mapping[str, Gpu], precision: str) -> Array:
    """Parameters at which most campaigns have level 0 and rows lie near their campaign's level."""
    from scipy.optimize import least_squares

    sheet = sheet_of(rows.gpu, known, precision)
    middle, width = np.array(list(PRIORS[family].values())).T
    _, cell = np.unique(rows.cells, return_inverse=True)
    count = np.bincount(cell)
    weight = np.sqrt(CAMPAIGN_WORTH / count[cell])
    measured = np.log(rows.ms)
    spread = ROW_SPREAD[family]

    def off(theta: Array) -> Array:
        residual = measured - np.log(physics(family, theta, rows.ops, sheet, precision).ms)
        level = np.bincount(cell, residual) / count
        inside = np.clip(residual - level[cell], -1, 1) * weight
        typical = np.sign(level) * np.sqrt(np.log1p((level / ODD_LEVEL) ** 2))  # Cauchy: an odd GPU may stay odd
        return np.concatenate([inside / spread, typical, (theta - middle) / width])

    return np.asarray(least_squares(off, middle, loss="soft_l1", max_nfev=20, x_scale=width).x)


def _fit_trees(family: str, rows: Rows, theta: Array, known: Mapping[str, Gpu], precision: str) -> tuple[str, dict[str, float]]:
    """Trees of what cells have in common beside their levels; and the level of each kind, the median chip's."""
    lightgbm = openmp.lightgbm()
    sheet = sheet_of(rows.gpu, known, precision)
    parts = physics(family, theta, rows.ops, sheet, precision)
    features = tree_features(family, rows.ops, sheet, parts)
    off = np.log(rows.ms / parts.ms)
    cells, cell = np.unique(rows.cells, return_inverse=True)
    of_chip = np.array([f"{known[c.split('/')[0]].chip}/{c.split('/')[2]}" for c in cells])
    names, group = np.unique(of_chip[cell], return_inverse=True)
    weight = 1 / np.bincount(group)[group]
    learnt, text = np.zeros(len(off)), ""
    for _ in range(2):
        level = _medians(off - learnt, cell)
        data = lightgbm.Dataset(features, off - level[cell], weight=weight / weight.mean())
        text = lightgbm.train(TREES, data, TREE_COUNT).model_to_string()
        learnt = booster(text).predict(features, num_threads=1)
    level = _medians(off - learnt, cell)
    by_chip = {name: float(level[of_chip == name].mean()) for name in names}
    kinds = {name.rsplit("/", 1)[1] for name in names}
    return text, {kind: float(np.median([v for n, v in by_chip.items() if n.endswith(f"/{kind}")])) for kind in sorted(kinds)}


def _medians(values: Array, cell: Array) -> Array:
    return np.array([np.median(values[cell == i]) for i in range(cell.max() + 1)])


Pair = tuple[str, Array, Array]
"""(the chip left out, log of measured over predicted, doubt) of rows of one kind."""


class _Left:
    """What layers 1 and 2, fitted without a chip, say of its rows."""

    def __init__(self, rows: Rows, core: Core, known: Mapping[str, Gpu], precision: str) -> None:
        self.rows, self.kind, self.name = rows, rows.ops.kind, "+".join(sorted(set(map(str, rows.gpu))))
        self.base, self.rest = np.zeros(len(rows)), np.zeros((len(rows), 2))
        self.places: dict[str, Array] = {}
        self.index: dict[str, Array] = {}
        for family, kinds in FAMILIES.items():
            index = np.flatnonzero(np.isin(self.kind, kinds))
            if len(index) and family in core.theta:
                part = rows.take(index)
                sheet = sheet_of(part.gpu, known, precision)
                self.base[index], self.rest[index], self.places[family] = layers(core, family, part.ops, sheet, precision)
                self.index[family] = index
        self.session = np.array(["/".join(pair) for pair in zip(rows.gpu, rows.campaign, strict=True)])

    def pair(self, kind: str, belief: Mapping[str, Sequence[float]], spread: Mapping[str, float]) -> Pair:
        """What is off for one kind, and the doubt."""
        off = self.off(belief)[self.kind == kind]
        return self.name, off, np.full(len(off), spread[kind])

    def off(self, belief: Mapping[str, Sequence[float]]) -> Array:
        """log(measured / predicted)."""
        return np.asarray(np.log(self.rows.ms) - self.base - (of_kind(self.kind, belief) * self.rest).sum(1))


def _belief(kind: str, left_out: Sequence[_Left]) -> tuple[float, ...]:
    """The shares of trees and level at which left-out chips, but for the oddest, are least off."""

    def loss(shares: tuple[float, ...]) -> float:
        parts = [p for p in left_out if (p.kind == kind).any()]
        losses = sorted(float(np.abs(p.off(dict.fromkeys(KINDS, shares))[p.kind == kind]).mean()) for p in parts)
        return float(np.mean(losses[: max(len(losses) - 1, 1)]))

    return min(product(BELIEFS, BELIEFS), key=loss)


def _spread(kind: str, belief: Sequence[float], left_out: Sequence[_Left]) -> float:
    parts = [p for p in left_out if (p.kind == kind).any()]
    squares = [np.mean(np.clip(p.off(dict.fromkeys(KINDS, belief))[p.kind == kind], -1, 1) ** 2) for p in parts]
    return float(np.sqrt(np.mean(squares)))


PROCESS_PRIOR = np.array([(np.log(0.7), 0.5), (np.log(0.7), 0.5), (np.log(0.4), 0.5), (0.0, 0.5), (0.0, 1.0)])
"""(middle, spread) of the logarithms of level, shape, noise, length and of the logit of likeness."""


def _process(packed: Array) -> Array:
    return np.append(np.exp(packed[:4]), 1 / (1 + np.exp(-packed[4])))


def _fit_process(
    family: str, left_out: Sequence[_Left], belief: Mapping[str, Sequence[float]], spread: Mapping[str, float]
) -> Array:
    """The process under which the left-out sessions, each a draw of it, are most likely."""
    from scipy.optimize import minimize

    draws = []
    for part in left_out:
        if family not in part.index:
            continue
        index = part.index[family]
        off = np.clip(part.off(belief)[index], -FARTHEST, FARTHEST) / of_kind(part.kind[index], spread)
        rows = part.rows.take(index)
        chosen = rows.sample(PROCESS_ROWS, seed=2)
        for session in np.unique(part.session[index]):
            at = chosen[part.session[index][chosen] == session]
            draws.append((part.kind[index][at], part.places[family][at], off[at]))
    middle, width = PROCESS_PRIOR.T

    def unlikely(packed: Array) -> float:
        process = _process(packed)
        total = 0.5 * float((((packed - middle) / width) ** 2).sum())
        for kind, places, off in draws:
            total -= float(conditioned(process, kind, places, off).log_likelihood)
        return total

    found = _process(minimize(unlikely, middle, method="L-BFGS-B", options={"maxiter": 15}).x)

    def judged(louder: float) -> float:
        pairs = _adapted(family, found * np.array([1, 1, louder, 1, 1]), left_out, belief, spread)
        return float(np.mean([np.abs(np.concatenate([off for _, off, _ in parts])).mean() for parts in pairs.values()]))

    # Sessions are noisier than a Gaussian makes them: the noise that serves left-out GPUs best is taken.
    return np.asarray(found * np.array([1, 1, min(LOUDER, key=judged), 1, 1]))


def _bands(pairs: Mapping[str, Sequence[Pair]], coverage: float, unseen: bool) -> dict[str, conformal.Band]:
    """The bands of each kind; for a chip unseen, widened for the few chips they rest on (Student's t against the normal)."""
    from scipy.stats import norm, t

    bands = {}
    for kind, parts in pairs.items():
        off, doubt = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        band = conformal.calibrate(np.ones(len(off)), np.exp(off), coverage, doubt)
        chips, tail = len({part[0] for part in parts}), (1 + coverage) / 2
        wider = float(t.ppf(tail, max(chips - 1, 1)) / norm.ppf(tail) * np.sqrt(1 + 1 / chips)) if unseen else 1.0
        bands[kind] = replace(band, below=band.below * wider, above=band.above * wider)
    return bands


def _judge(pairs: Mapping[str, Sequence[Pair]], coverage: float, unseen: bool) -> dict[str, dict[str, dict[str, float]]]:
    """By kind and left-out chip: error, and how often a band made of the other chips covers."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind, parts in pairs.items():
        for name in sorted({part[0] for part in parts}):
            own, others = ([part for part in parts if (part[0] == name) == mine] for mine in (True, False))
            off, doubt = (np.concatenate([part[i] for part in own]) for i in (1, 2))
            error = np.abs(np.exp(-off) - 1)
            entry = {"n": len(off), "mean_abs_error": float(error.mean()), "median_abs_error": float(np.median(error))}
            if others:
                low, high = _bands({kind: others}, coverage, unseen)[kind].bounds(np.ones(len(off)), doubt)
                entry["covered"] = conformal.covered(low, high, np.exp(off))
            found.setdefault(kind, {})[name] = entry
    return found


def _adapted(
    family: str,
    process: Array,
    left_out: Sequence[_Left],
    belief: Mapping[str, Sequence[float]],
    spread: Mapping[str, float],
    draws: int = 3,
) -> dict[str, list[Pair]]:
    """How far off left-out sessions are that gave MEASURED of their ops away, judged on the others."""
    pairs: dict[str, list[Pair]] = {}
    for part in left_out:
        if family not in part.index:
            continue
        index = part.index[family]
        kind, places, session = part.kind[index], part.places[family], part.session[index]
        off, width = part.off(belief)[index], of_kind(part.kind[index], spread)
        for name in np.unique(session):
            inside = np.flatnonzero(part.session == name)
            for draw in range(draws):
                given = np.isin(index, spread_over_kinds(part.kind, inside, MEASURED, draw))
                seen, rest = given & (session == name), ~given & (session == name)
                told = np.clip(off[seen], -FARTHEST, FARTHEST) / width[seen]
                evidence = learn(process, kind[seen], places[seen], told)
                shift, left = ask(process, evidence, kind[rest], places[rest])
                for one in np.unique(kind[rest]):
                    at = kind[rest] == one
                    unexplained = off[rest][at] - shift[at] * width[rest][at]
                    pairs.setdefault(str(one), []).append((part.name, unexplained, left[at] * width[rest][at]))
    return pairs


def spread_over_kinds(kind: Array, index: Array, count: int, seed: int) -> Array:
    """A random draw of rows, as many of one kind as of another where there are enough."""
    rng = np.random.default_rng(seed)
    kinds = np.unique(kind[index])
    pools = [rng.permutation(index[kind[index] == name])[:count] for name in kinds]
    turns = [row for turn in range(max(map(len, pools), default=0)) for row in (p[turn] for p in pools if turn < len(p))]
    return np.array(turns[:count], int)
