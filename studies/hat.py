"""How well, and from how few rows, table predictors learn the eight HAT latency tables.

    python -m studies.hat --tables DIR

Every table: a fifth of the rows is set aside at random (rows with equal features together); `additive` learns 50 .. all of the
others from ten columns, `best` and scikit-learn's Gaussian process (the peer) the same 100 and all. Errors are mean
|predicted / measured - 1| on the rows set aside, averaged over the seeds. Apart from that, what the table of the same
device for another task adds: its fitted prediction as one more feature. Wang et al., HAT, ACL 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hwbench.core import conformal, markdown, registry, schema, stats
from studies.harness import Results, Run, Study
from studies.options import TABLES, Option

FILE = "hat/latency.parquet"
TARGET, NOISE = "latency_total_ms", ("latency_std_encoder_ms", "latency_std_decoder_ms")
GOALS = {
    ("iwslt14deen", "nvidia_titan_xp"): 0.075,
    ("wmt14ende", "intel_xeon_e5_2640"): 0.047,
    ("wmt14ende", "nvidia_titan_xp"): 0.053,
    ("wmt14ende", "raspberrypi4_arm_cortex_a72"): 0.038,
    ("wmt14enfr", "intel_xeon_e5_2640"): 0.042,
    ("wmt14enfr", "nvidia_titan_xp"): 0.018,
    ("wmt14enfr", "raspberrypi4_arm_cortex_a72"): 0.006,
    ("wmt19ende", "nvidia_titan_xp"): 0.053,
}
"""Errors to reach: those of a Gaussian process with 1,600 rows, as the issue states them."""
SIZES = (50, 100, 200, 400, 800, None)
JUDGED = (100, None)
"""Sizes at which the peer and `best` are fitted too, and intervals are made and checked."""
TUNED = 300
"""Rows on which the peer tunes its lengths: its cost grows with the cube."""
FOLDS, MANY = 5, 1000
TINY_ROWS = 250

REMARKS = """\
- Here each table has {rows} rows (a fifth of the published 2,000 is held aside from us): `all` is 80 % of those, and the
  errors are on the others. The goals were stated for 1,600 rows.
- The peer is scikit-learn's Gaussian process (RBF, a length per feature, noise), its lengths tuned on at most {tuned} rows.
- `best` chose its members on the fitted rows only. Its first member, the non-negative sum of products (`additive`), was
  designed while looking at these very tables, so these figures are not blind; the fifth held aside is.
- `perfect: repeats` trusts the deviations of the runs behind each mean (on the Raspberry Pi of a single run: the number of
  runs is not known). It does not see that the machine drifts between rows; `neighbours` does, from rows with nearly equal
  features, and is exact for normal noise only: an estimate, not a bound.
"""


def features_of(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(("encoder_", "decoder_"))]


def split(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Fold of every row; equal rows share one."""
    kinds, kind = np.unique(x, axis=0, return_inverse=True)
    return np.asarray(rng.permutation(len(kinds))[kind.ravel()] % FOLDS)


def fitted(name: str, x: np.ndarray, y: np.ndarray) -> Any:
    model = registry.make("regressor", name)
    model.fit(x, y)
    return model


def peer(x: np.ndarray, y: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """scikit-learn's Gaussian process: a length per feature, noise, standardised; lengths tuned on the first TUNED rows."""
    import warnings

    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    centre, spread = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    z, asked = (x - centre) / spread, (asked - centre) / spread
    kernel = ConstantKernel() * RBF(np.ones(z.shape[1])) + WhiteKernel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lengths at their bounds: features that do not matter
        model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(z[:TUNED], y[:TUNED])
        if len(y) > TUNED:
            model = GaussianProcessRegressor(model.kernel_, normalize_y=True, optimizer=None).fit(z, y)
    return np.asarray(model.predict(asked))


def error(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float(np.abs(stats.relative_errors(predicted, measured)).mean())


def interval(x: np.ndarray, y: np.ndarray, model: Any, asked: np.ndarray, measured: np.ndarray, seed: int) -> dict[str, float]:
    """Coverage on the rows set aside of a band from the fitted rows: left out in turn, of many rows one fold."""
    folds = split(x, np.random.default_rng(seed))
    pairs = []
    for fold in range(FOLDS if len(y) < MANY else 1):
        left_out = fitted("best", x[folds != fold], y[folds != fold])
        pairs.append((left_out.predict(x[folds == fold])[0], y[folds == fold]))
    guesses, truths = (np.concatenate(each) for each in zip(*pairs, strict=True))
    band = conformal.calibrate(guesses, truths)
    return dict(conformal.evidence(model.predict(asked)[0], band, measured))


def floors(x: np.ndarray, y: np.ndarray, deviation: np.ndarray, iterations: int) -> dict[str, float]:
    """Errors a perfect predictor would have, by what one trusts.

    `repeats`: the runs behind each mean scatter independently. `neighbours`: the nearest quarter of all pairs of rows differ by
    noise alone, once the fit has taken out what their features differ by; sees drift between rows, exact for normal noise.
    """
    spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    left = np.log(y / fitted("additive", x, y).predict(x)[0])
    apart = np.square((x[:, None, :] - x[None, :, :]) / spread).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(axis=1)
    close = np.argsort(apart.min(axis=1), kind="stable")[: len(y) // 4]
    return {
        "repeats": float(np.mean(np.sqrt(2 / np.pi) * deviation / np.sqrt(iterations) / y)),
        "neighbours": float(np.abs(left[close] - left[nearest[close]]).mean() / np.sqrt(2)),
    }


def one_table(run: Run, task: str, device: str) -> dict[str, Any]:
    """Errors by number of rows, means over the seeds, intervals and what a perfect predictor would have."""
    key = (task, device)
    data = schema.read_table(run.tables / FILE).to_pandas()
    columns = features_of(list(data.columns))
    parts = {each: data[(data["task"] == each[0]) & (data["device"] == each[1])] for each in GOALS}
    part, goal = parts[key].head(TINY_ROWS if run.tiny else None), GOALS[key]
    x, y = part[columns].to_numpy(float), part[TARGET].to_numpy(float)
    order = np.lexsort((*x.T, y))  # the file's order plays no part
    x, y = x[order], y[order]
    sibling_key = next(k for k in GOALS if k != key and k[1] == key[1])
    sibling = fitted("additive", parts[sibling_key][columns].to_numpy(float), parts[sibling_key][TARGET].to_numpy(float))
    curve = learning_curve(x, y, np.column_stack([x, sibling.predict(x)[0]]), 1 if run.tiny else run.options.seeds)
    deviation = np.sqrt(sum(np.square(part[name].to_numpy(float)) for name in NOISE))[order]
    # the source's 2 is wrong on the Raspberry Pi
    iterations = 1 if device.startswith("raspberry") else int(part["measure_iters"].iloc[0])
    entry = {"task": task, "device": device, "rows": len(y), "goal": goal, "sibling": sibling_key[0], "curve": curve}
    return {**entry, "perfect": floors(x, y, deviation, iterations), **summary(curve, goal)}


def learning_curve(x: np.ndarray, y: np.ndarray, known: np.ndarray, seeds: int) -> dict[str, list[dict[str, Any]]]:
    """Number of rows -> errors on the rows set aside, one entry per seed; `known` are the features with the sibling's."""
    curve: dict[str, list[dict[str, Any]]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        test = split(x, rng) == 0
        pool = rng.permutation(np.flatnonzero(~test))
        for size in SIZES:
            rows = pool[:size]
            entry: dict[str, Any] = {
                "additive": error(fitted("additive", x[rows], y[rows]).predict(x[test])[0], y[test]),
                "with_sibling": error(fitted("additive", known[rows], y[rows]).predict(known[test])[0], y[test]),
            }
            if size in JUDGED:
                best = fitted("best", x[rows], y[rows])
                entry["best"] = error(best.predict(x[test])[0], y[test])
                entry["peer"] = error(peer(x[rows], y[rows], x[test]), y[test])
                entry["shares"] = best.shares
                entry["interval"] = interval(x[rows], y[rows], best, x[test], y[test], seed)
            curve.setdefault("all" if size is None else str(size), []).append(entry)
    return curve


def summary(curve: dict[str, list[dict[str, Any]]], goal: float) -> dict[str, Any]:
    """Means over the seeds; the fewest rows of the curve that reach the goal."""
    names = ("additive", "with_sibling", "best", "peer")
    means = {
        size: {name: float(np.mean([e[name] for e in entries])) for name in names if name in entries[0]}
        for size, entries in curve.items()
    }
    covered = {
        size: {name: float(np.mean([e["interval"][name] for e in entries])) for name in ("covered", "median_width")}
        for size, entries in curve.items()
        if "interval" in entries[0]
    }
    needed = next((size for size, mean in means.items() if mean["additive"] <= goal), None)
    return {"means": means, "intervals": covered, "rows_needed": needed}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """The figures as Markdown."""

    def percent(value: float) -> str:
        return f"{100 * value:.2f}"

    head = ["task", "device", "goal", "best, all", "peer, all", "best, 100", "peer, 100"]
    head += [f"additive, {'all' if s is None else s}" for s in SIZES] + ["rows to the goal (additive)"]
    errors, others = [], []
    for f in results.values():
        means = f["means"]
        shown = [means[size][name] for size in ("all", "100") for name in ("best", "peer")]
        shown += [mean["additive"] for mean in means.values()]
        errors.append([f["task"], f["device"], f"{100 * f['goal']:.1f}", *map(percent, shown), f["rows_needed"]])
        few, every = f["intervals"]["100"], f["intervals"]["all"]
        shown = [few["covered"], few["median_width"], every["covered"], every["median_width"], *f["perfect"].values()]
        shown += [f["means"][size]["with_sibling"] for size in ("50", "100")]
        others.append([f["task"], f["device"], *map(percent, shown)])
    lines = [
        f"Mean relative errors in %, means over {options['seeds']} random splits.",
        "",
        markdown.table(head, errors, 2),
        "",
    ]
    head = ["task", "device", "covered, 100", "width, 100", "covered, all", "width, all", "perfect: repeats"]
    head += ["perfect: neighbours", "with sibling, 50", "with sibling, 100"]
    lines += ["90 % intervals on the rows set aside (cover in %, median width in % of the prediction), errors in % a perfect"]
    lines += ["predictor would have, and errors in % when the same device's table of another task is known:", ""]
    rows = ", ".join(sorted({str(f["rows"]) for f in results.values()}))
    return "\n".join([*lines, markdown.table(head, others, 2), "", REMARKS.format(rows=rows, tuned=TUNED)])


STUDY = Study(
    "hat",
    __doc__,
    "about an hour",
    {f"{task}-{device}": partial(one_table, task=task, device=device) for task, device in GOALS},
    report,
    (TABLES, Option("seeds", 5, "random splits")),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
