"""Predictors from anyone's own table of (features, latency): fit, judge, store, predict.

    hwbench fit --from FILE.parquet --features A,B,C --target latency_ms --out DIR
    hwbench predict --predictor DIR --input FILE.parquet --output FILE.parquet

Rows with the same features always stay on one side of a split, and neither the order of the rows nor their numbers play
a part: tables drift in time. The stored predictor is fitted on every row; its band comes from rows left out in turn
(cross-conformal). The errors it states are those of rows the fit had not seen, the coverage that of rows neither the fit
nor the band had seen: each fifth of the rows is set aside in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import conformal, registry, schema, stats
from hwbench.core.command import Value, stored_command
from hwbench.core.errors import UsageError
from hwbench.predictor import card as cards
from hwbench.predictor.card_types import TABLE, TableCard
from hwbench.predictor.regressor.base import Regressor
from hwbench.predictor.tabular import encode
from hwbench.predictor.tabular.facts import facts_of
from hwbench.predictor.tabular.rows import Rows, read, require_sample

if TYPE_CHECKING:
    pass

LEAST_ROWS = 20
FOLDS = 5
MANY_ROWS = 3000
"""From here on one fold of left-out rows is enough for a band."""
ADDED = ("prediction", "low", "high")


@registry.takes(regressor="regressor", space="space")
def fit_table(
    source: str | Path,
    features: Sequence[str],
    target: str = "latency_ms",
    out: str | Path = "predictor",
    regressor: str = "best",
    coverage: float = conformal.COVERAGE,
    seed: int = 0,
    device: str = "unknown",
    where: Mapping[str, str] | None = None,
    limit: int | None = None,
    noise: Sequence[str] = (),
    repeats: int = 1,
    rising: Sequence[str] = (),
    tables: str | Path | None = None,
    beside: Sequence[str | Path] = (),
    twins: str | None = None,
    space: str | None = None,
) -> TableCard:
    """Fits a predictor to a table and stores it with its card; returns the card.

    Args:
        source: Parquet file, under `tables` where that is given: the card names it relative to there.
        features: Columns to predict from: numbers, truth values, text, or lists of them.
        target: Column to predict; positive.
        out: Folder to store card and arrays in.
        regressor: Registered regressor.
        coverage: Share of new measurements that are to fall inside low .. high.
        seed: Of every random choice.
        device: What the table was measured on, for the card.
        where: Only rows whose columns have these values.
        limit: At most so many rows, drawn at random.
        noise: Columns with the standard deviation of the target's repeats; several (of parts) add in quadrature.
        repeats: Runs the target is the mean of, if `noise` is the deviation of a single run.
        rising: Number columns the target can only rise with.
        tables: Folder `source` is relative to.
        beside: Further tables whose columns are joined to the rows, on the columns both have.
        twins: Column that is the same for rows that compute the same (isomorphic graphs): they stay on one side of
            every split, and how far they lie apart is the noise ceiling. By default, rows with the same features.
        space: The search space whose networks the rows are a sample of, or all of: then its interval is certified there.

    Raises:
        UsageError: the table cannot answer this, with the column that is to blame.
    """
    path, *others = (Path(tables) / each if tables else Path(each) for each in (source, *beside))
    features = list(dict.fromkeys(features))
    if not features:
        raise UsageError("Give at least one feature column with --features.")
    if not 0 < coverage < 1:
        raise UsageError(f"The coverage must lie between 0 and 1, got {coverage}.")
    data = read(path, where or {}, others)
    if space is not None:
        require_sample(registry.get("space", space), data, features)
    rows = Rows.of(data, features, target, noise, twins, limit, seed)
    if len(rows.y) < LEAST_ROWS:
        raise UsageError(f"{path} has {len(rows.y)} usable rows; a predictor needs at least {LEAST_ROWS}.")
    fitted, judged = _judge(rows, rows.rising(rising), regressor, coverage, seed)
    values, arrays = fitted.state()
    named, *joined = (_shown(each, tables) for each in (source, *beside))
    asked: dict[str, Value] = {
        "from": named,
        "with": joined,
        "features": ",".join(features),
        "target": target,
        "where": where,
        "twins": twins,
        "space": space,
        "noise_column": list(noise),
        "repeats": repeats,
        "rising": ",".join(rising) or None,
        "limit": limit,
        "regressor": regressor,
        "coverage": str(coverage),
        "seed": seed,
        "device": device,
        "out": cards.shown_folder(out),
    }
    rebuild = stored_command("fit", **asked)
    card = {
        "kind": TABLE,
        "device": device,
        "data": {
            **cards.data_of(path, len(rows.y)),
            "file": named,
            "where": dict(where or {}),
            "limit": limit,
            "with": [{**cards.data_of(at, 0), "file": each} for each, at in zip(joined, others, strict=True)],
        },
        "spaces": [space] if space else [],
        "target": target,
        "features": features,
        "encodings": [asdict(each) for each in rows.encodings],
        "range": {"low": rows.x.min(axis=0).tolist(), "high": rows.x.max(axis=0).tolist()},
        "rising": list(rising),
        "regressor": regressor,
        "seed": seed,
        "state": values,
        **judged,
        "noise_ceiling": _noise_ceiling(rows, repeats, twins),
        "warnings": list(rows.warnings),
        "rebuild": rebuild if tables is None else cards.with_tables(rebuild),
    }
    return cards.write(Path(out), TableCard, card, arrays)


def predict_table(predictor: str | Path, source: str | Path, output: str | Path) -> dict[str, Any]:
    """Writes the table again with prediction, low and high; returns what was done.

    Raises:
        UsageError: a column is missing or foreign, or the table has one of the added columns already.
        DataError: the predictor is no table predictor or damaged.
    """
    card, model = load(predictor)
    data = schema.read_table(Path(source))
    taken = [name for name in ADDED if name in data.column_names]
    if taken:
        raise UsageError(f"{source} has columns {', '.join(taken)} already; rename them, predictions would hide them.")
    x = encode.encode(data, card.encodings)
    prediction, low, high = predict_rows(card, model, x)
    for name, column in zip(ADDED, (prediction, low, high), strict=True):
        data = data.append_column(name, [column])
    schema.write_table(Path(output), data)
    outside = (x < np.array(card.range.low)) | (x > np.array(card.range.high))
    names = [name for each in card.encodings for name in each.names]
    folder = Path(predictor).resolve()
    note = f"measured by others ({card.files[0].file}), not by hwbench"
    used = facts_of(card, f"{folder.parent.name}/{folder.name}", None, card.band.coverage, False, note)
    test = card.errors["test"]
    return {
        "predictor": replace(used, spaces=card.spaces, mean_abs_error=test["mean_abs_error"], networks=test["n"]).document(),
        "rows": len(x),
        "output": str(output),
        "device": card.device,
        "target": card.target,
        "coverage": card.band.coverage,
        "median_width": float(np.median((high - low) / prediction)) if len(x) else None,
        "outside_rows": int(outside.any(axis=1).sum()),
        "outside_features": [name for name, any_row in zip(names, outside.T, strict=True) if any_row.any()],
    }


def load(predictor: str | Path) -> tuple[TableCard, Regressor]:
    """The card of a stored table predictor and its regressor, ready to predict."""
    card = cards.read_as(TableCard, predictor, "predicting a table needs one made by fit --from.")
    model: Regressor = registry.make("regressor", card.regressor)
    arrays = cards.read_arrays(predictor, card)
    with cards.restoring(predictor, card):
        model.restore(card.state, arrays)
    return card, model


def predict_rows(card: TableCard, model: Regressor, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(prediction, low, high) of encoded rows."""
    if len(x) == 0:
        return np.empty(0), np.empty(0), np.empty(0)
    prediction, doubt = model.predict(x)
    return prediction, *card.band.band.bounds(prediction, doubt if card.band_scaled else 1.0)


class _LeftOut:
    """Fits of one regressor on some folds of the rows, asked about the others; each fit is made once."""

    def __init__(self, rows: Rows, rising: Sequence[bool], name: str, seed: int) -> None:
        kinds = int(rows.kind.max()) + 1
        if kinds < 2 * FOLDS:
            raise UsageError(f"The rows have only {kinds} different features; at least {2 * FOLDS} are needed to judge a fit.")
        self.rows, self.rising, self.name = rows, rising, name
        self.folds = np.random.default_rng(seed).permutation(kinds)[rows.kind] % FOLDS
        self._fits: dict[tuple[int, ...], Regressor] = {}

    def fit(self, chosen: Iterable[int]) -> Regressor:
        """Fitted on these folds."""
        folds = tuple(sorted(chosen))
        if folds not in self._fits:
            model: Regressor = registry.make("regressor", self.name)
            mine = np.isin(self.folds, folds)
            model.fit(self.rows.x[mine], self.rows.y[mine], self.rising)
            self._fits[folds] = model
        return self._fits[folds]

    def predict(self, pool: set[int], asked: Iterable[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(prediction, doubt, measured) of the asked folds, each by a fit on the pool's others."""
        answers = []
        for fold in asked:
            mine = self.folds == fold
            answers.append((*self.fit(pool - {fold}).predict(self.rows.x[mine]), self.rows.y[mine]))
        prediction, doubt, measured = (np.concatenate(each) for each in zip(*answers, strict=True))
        return prediction, doubt, measured

    def bounds(self, turns: Sequence[int], coverage: float) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of rows that neither fit nor band saw, each fold set aside in turn; NaN where rows are too few."""
        every = set(range(FOLDS))
        low, high = np.full((2, len(self.rows.y)), np.nan)
        for fold in turns:
            others = every - {fold}
            pairs = self.predict(others, sorted(others)[: len(turns)])
            if len(pairs[0]) >= conformal.least_pairs(coverage):
                tried, by_doubt = _band(*pairs, coverage)
                tested, doubt, _ = self.predict(every, [fold])
                mine = self.folds == fold
                low[mine], high[mine] = tried.bounds(tested, doubt if by_doubt else 1.0)
        return low, high


def _judge(rows: Rows, rising: Sequence[bool], name: str, coverage: float, seed: int) -> tuple[Regressor, dict[str, Any]]:
    """The regressor fitted on every row; its band, and errors and coverage on rows nothing of it saw."""
    left_out = _LeftOut(rows, rising, name, seed)
    every = set(range(FOLDS))
    turns = [0] if len(rows.y) >= MANY_ROWS else sorted(every)
    prediction, doubt, measured = left_out.predict(every, turns)
    band, scaled = _band(prediction, doubt, measured, coverage)
    low, high = left_out.bounds(turns, coverage)
    everything = left_out.fit(every)
    return everything, {
        "errors": {
            "train": _errors(everything.predict(rows.x)[0], rows.y),
            "test": _errors(prediction, measured),
            "median_alone": {"mean_abs_error": float(np.abs(stats.relative_errors(np.median(rows.y), measured)).mean())},
        },
        "band": band.state(),
        "band_scaled": scaled,
        "coverage": _coverage(low, high, rows.y, coverage),
    }


def _coverage(low: np.ndarray, high: np.ndarray, y: np.ndarray, coverage: float) -> dict[str, Any]:
    """How often intervals held, over the rows that have one."""
    known = ~np.isnan(low)
    if not known.any():
        return {"asked": coverage, "covered": None, "reason": "too few rows to set some aside"}
    low, high, y = low[known], high[known], y[known]
    inside = (low <= y) & (y <= high)
    return {
        "n": len(y),
        "asked": coverage,
        "covered": float(inside.mean()),
        "median_width": float(np.median((high - low) / np.sqrt(low * high))),
        "falls_short": conformal.falls_short(int(inside.sum()), len(y), coverage),
    }


def _band(prediction: np.ndarray, doubt: np.ndarray, measured: np.ndarray, coverage: float) -> tuple[conformal.Band, bool]:
    """The narrower of the bands with and without the regressor's own doubt, and whether it is the one with it."""
    plain = conformal.calibrate(prediction, measured, coverage)
    scaled = conformal.calibrate(prediction, measured, coverage, doubt)
    by_doubt = (scaled.above - scaled.below) * float(np.maximum(doubt, conformal.LEAST_SCALE).mean())
    return (scaled, True) if by_doubt < plain.above - plain.below else (plain, False)


def _errors(predicted: np.ndarray, measured: np.ndarray) -> dict[str, Any]:
    absolute = np.abs(stats.relative_errors(predicted, measured))
    return {
        **asdict(stats.accuracy(predicted, measured)),
        "median_abs_error": float(np.median(absolute)),
        "within_10": float((absolute <= 0.10).mean()),
        "spearman": stats.spearman(predicted, measured),
    }


def _noise_ceiling(rows: Rows, repeats: int, named: str | None) -> dict[str, Any]:
    """Mean relative error a perfect predictor would have against these rows; null where they do not tell."""
    y, kind, deviation = rows.y, rows.kind, rows.deviation
    found: dict[str, Any] = {"mean_abs_error": None, "reason": "no repeats in the data"}
    counts = np.bincount(kind)
    twins = counts[kind] > 1
    if deviation is not None:
        # A normal deviate of one standard deviation is off by sqrt(2 / pi) of it on average.
        error = float(np.mean(np.sqrt(2 / np.pi) * deviation / np.sqrt(repeats) / y))
        found = {
            "mean_abs_error": error,
            "from": "deviation of each row's repeats, drift between rows is not in it",
            "rows": len(y),
        }
    if twins.any():
        means = np.bincount(kind, y) / counts
        widened = np.sqrt(counts[kind] / np.maximum(counts[kind] - 1, 1))  # the mean of few lies too close to them
        error = float(np.mean((np.abs(y / means[kind] - 1) * widened)[twins]))
        told = {"mean_abs_error": error, "from": f"rows with the same {named or 'features'}", "rows": int(twins.sum())}
        found = {**found, "twins": told} if deviation is not None else told
    return found


def _shown(path: str | Path, root: str | Path | None = None) -> str:
    """A path as a card may name it: relative to its root where it has one, never a machine's folder."""
    path = Path(path)
    if not path.is_absolute():
        return path.as_posix() if root is not None else path.name
    return path.resolve().relative_to(Path(root).resolve()).as_posix() if root is not None else path.name
