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
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import conformal, registry, schema, stats
from hwbench.core.command import Value, command
from hwbench.core.errors import UsageError
from hwbench.predictor import card as cards
from hwbench.predictor.card_types import TABLE, TableCard
from hwbench.predictor.regressor.base import Regressor
from hwbench.predictor.tabular import encode
from hwbench.space.base import Space

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_ROWS = 20
FOLDS = 5
MANY_ROWS = 3000
"""From here on one fold of left-out rows is enough for a band."""
ADDED = ("prediction", "low", "high")
RARER, SURE = 2.0, 4.0
"""A choice this many times rarer in the rows than in the space, by more than so many standard deviations, is no accident."""
ROW_NUMBERS = ("row_id", "rowid", "row", "index", "id", "unnamed: 0", "__index_level_0__")


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
    path = Path(tables) / source if tables else Path(source)
    data = _rows(schema.read_table(path), where or {}, path)
    others = [Path(tables) / each if tables else Path(each) for each in beside]
    for other in others:
        data = _joined(data, schema.read_table(other), other)
    features = list(dict.fromkeys(features))
    if not features:
        raise UsageError("Give at least one feature column with --features.")
    if not 0 < coverage < 1:
        raise UsageError(f"The coverage must lie between 0 and 1, got {coverage}.")
    if space is not None:
        require_sample(registry.get("space", space), data, features)
    y = _target(data, target)
    encodings = encode.describe(data, features)
    x = encode.encode(data, encodings)
    warnings = _suspects(data, features, target, y)
    deviation = np.sqrt(sum(np.square(encode.numbers(data, name)) for name in noise)) if noise else None
    # An order that depends on the rows alone, so that theirs in the file cannot matter.
    order = np.lexsort((*x.T, y))
    if limit is not None:
        order = order[np.sort(np.random.default_rng(seed).permutation(len(order))[:limit])]
    x, y = x[order], y[order]
    kind = _kinds(x, None if twins is None else [str(each) for each in encode.values(data.take(order), twins).to_pylist()])
    if len(y) < LEAST_ROWS:
        raise UsageError(f"{path} has {len(y)} usable rows; a predictor needs at least {LEAST_ROWS}.")
    unknown = [name for name in rising if not any(e.column == name and e.kind == "number" for e in encodings)]
    if unknown:
        raise UsageError(f"Only number features can be rising; {', '.join(unknown)} is none.")
    up = [e.column in rising for e in encodings for _ in e.names] if rising else []
    judged = _judge(x, y, kind, up, regressor, coverage, seed)
    values, arrays = judged.pop("fitted").state()
    named = _shown(source, tables)
    options: dict[str, Value] = {
        "from": named,
        "with": [_shown(each, tables) for each in beside],
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
    rebuild = command("fit", **options)
    facts = {
        "kind": TABLE,
        "device": device,
        "data": {
            **cards.data_of(path, len(y)),
            "file": named,
            "where": dict(where or {}),
            "limit": limit,
            "with": [{**cards.data_of(at, 0), "file": _shown(each, tables)} for each, at in zip(beside, others, strict=True)],
        },
        "spaces": [space] if space else [],
        "target": target,
        "features": features,
        "encodings": [asdict(each) for each in encodings],
        "range": {"low": x.min(axis=0).tolist(), "high": x.max(axis=0).tolist()},
        "rising": list(rising),
        "regressor": regressor,
        "seed": seed,
        "state": values,
        **judged,
        "noise_ceiling": _noise_ceiling(y, kind, deviation[order] if deviation is not None else None, repeats, twins),
        "warnings": warnings,
        "rebuild": rebuild if tables is None else cards.with_tables(rebuild),
    }
    return cards.write(Path(out), TableCard, facts, arrays)


def require_sample(space: Space, data: pa.Table, features: Sequence[str]) -> None:
    """Refuses rows that are no sample of a space: its interval would be called certified for networks it never met.

    A choice that is far rarer (or more frequent) in the rows than in the space shows it: a table of the most accurate cells
    of NAS-Bench-201 hardly has a pooling, and its 90 % interval covers 34 % of the other cells.

    Raises:
        UsageError: a choice of a gene stands out; the message has both shares.
    """
    for gene in space.genes:
        if gene.label not in features:
            continue
        found = [str(each) for each in encode.values(data, gene.label).to_pylist()]
        usual = 1 / len(gene.choices)
        for choice in gene.choices:
            seen = found.count(str(choice))
            share, chance = seen / len(found), (usual * (1 - usual) / len(found)) ** 0.5
            if not usual / RARER <= share <= 1 - (1 - usual) / RARER and abs(share - usual) > SURE * chance:
                raise UsageError(
                    f"The rows are no sample of {space.name}: {gene.label}={choice} is {share:.1%} of them and {usual:.1%} of "
                    "the space. Leave out --space; answers for the space are then uncertified."
                )


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
    return {
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
    model.restore(card.state, cards.read_arrays(predictor, card))
    return card, model


def predict_rows(card: TableCard, model: Regressor, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(prediction, low, high) of encoded rows."""
    if len(x) == 0:
        return np.empty(0), np.empty(0), np.empty(0)
    prediction, doubt = model.predict(x)
    return prediction, *card.band.band.bounds(prediction, doubt if card.band_scaled else 1.0)


def _kinds(x: np.ndarray, labels: Sequence[str] | None) -> np.ndarray:
    """A number per row, the same for rows that compute the same: those with the same features, or with the same label."""
    _, by_features = np.unique(x, axis=0, return_inverse=True)
    if labels is None:
        return np.asarray(by_features.ravel())
    _, by_label = np.unique(np.array(labels), return_inverse=True)
    pairs = np.unique(np.column_stack([by_features.ravel(), by_label]), axis=0)
    if len(pairs) > len(np.unique(by_features)):
        raise UsageError("--twins tells rows with the same features apart: they would be on both sides of a split.")
    return np.asarray(by_label)


def _judge(
    x: np.ndarray, y: np.ndarray, kind: np.ndarray, rising: Sequence[bool], name: str, coverage: float, seed: int
) -> dict[str, Any]:
    """The regressor fitted on every row, its band, and errors and coverage on rows nothing of it saw."""
    kinds = int(kind.max()) + 1
    if kinds < 2 * FOLDS:
        raise UsageError(f"The rows have only {kinds} different features; at least {2 * FOLDS} are needed to judge a fit.")
    folds = np.random.default_rng(seed).permutation(kinds)[kind] % FOLDS

    @cache
    def fit(*chosen: int) -> Regressor:
        """Fitted on these folds."""
        model: Regressor = registry.make("regressor", name)
        rows = np.isin(folds, chosen)
        model.fit(x[rows], y[rows], rising)
        return model

    def left_out(pool: set[int], asked: Iterable[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(prediction, doubt, measured) of the asked folds, each by a fit on the pool's others."""
        answers = [(*fit(*sorted(pool - {fold})).predict(x[folds == fold]), y[folds == fold]) for fold in asked]
        prediction, doubt, measured = (np.concatenate(each) for each in zip(*answers, strict=True))
        return prediction, doubt, measured

    every = set(range(FOLDS))
    turns = [0] if len(y) >= MANY_ROWS else sorted(every)
    prediction, doubt, measured = left_out(every, turns)
    band, scaled = _band(prediction, doubt, measured, coverage)
    # The same procedure with each fold set aside in turn: coverage of rows that neither the fit nor the band saw.
    low, high = np.full((2, len(y)), np.nan)
    for fold in turns:
        others = every - {fold}
        pairs = left_out(others, sorted(others)[: len(turns)])
        if len(pairs[0]) >= conformal.least_pairs(coverage):
            tried, by_doubt = _band(*pairs, coverage)
            tested, tested_doubt, _ = left_out(every, [fold])
            low[folds == fold], high[folds == fold] = tried.bounds(tested, tested_doubt if by_doubt else 1.0)
    everything = fit(*sorted(every))
    return {
        "fitted": everything,
        "errors": {
            "train": _errors(everything.predict(x)[0], y),
            "test": _errors(prediction, measured),
            "median_alone": {"mean_abs_error": float(np.abs(stats.relative_errors(np.median(y), measured)).mean())},
        },
        "band": band.state(),
        "band_scaled": scaled,
        "coverage": _coverage(low, high, y, coverage),
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


def _noise_ceiling(
    y: np.ndarray, kind: np.ndarray, deviation: np.ndarray | None, repeats: int, named: str | None
) -> dict[str, Any]:
    """Mean relative error a perfect predictor would have against these rows; null where they do not tell."""
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


def _rows(data: pa.Table, where: Mapping[str, str], path: Path) -> pa.Table:
    for column, value in where.items():
        keep = np.array([str(each) == value for each in encode.values(data, column).to_pylist()], bool)
        if not keep.any():
            raise UsageError(f"{path} has no row with {column}={value}.")
        data = data.filter(keep)
    return data


def _joined(data: pa.Table, other: pa.Table, path: Path) -> pa.Table:
    """The rows with the other table's columns: each row must find exactly one partner."""
    shared = [name for name in other.column_names if name in data.column_names]
    if not shared:
        raise UsageError(f"{path} shares no column with the table, so its rows cannot be found.")
    partners: dict[tuple[Any, ...], int] = {}
    for at, key in enumerate(zip(*(other.column(name).to_pylist() for name in shared), strict=True)):
        if partners.setdefault(key, at) != at:
            raise UsageError(f"{path} has several rows with {dict(zip(shared, key, strict=True))}; they cannot be told apart.")
    wanted = list(zip(*(data.column(name).to_pylist() for name in shared), strict=True))
    lost = [key for key in wanted if key not in partners]
    if lost:
        raise UsageError(
            f"{path} has no row with {dict(zip(shared, lost[0], strict=True))}, and {len(lost) - 1} more are missing."
        )
    found = other.take([partners[key] for key in wanted])
    for name in other.column_names:
        if name not in shared:
            data = data.append_column(name, found.column(name))
    return data


def _target(data: pa.Table, target: str) -> np.ndarray:
    y = encode.numbers(data, target)
    if not (y > 0).all():
        raise UsageError(f"The target '{target}' must be positive; {int((y <= 0).sum())} rows are not.")
    return y


def _suspects(data: pa.Table, features: Sequence[str], target: str, y: np.ndarray) -> list[str]:
    """Warnings for the card; refuses the target itself and row numbers as features."""
    warnings = []
    for column in features:
        if column == target:
            raise UsageError(f"'{column}' is the target; it cannot be a feature as well.")
        if column.lower() in ROW_NUMBERS:
            raise UsageError(f"'{column}' is a row number, not a feature: tables drift in time and it would tell when.")
        if encode.describe(data, [column])[0].kind != "number":
            continue
        values = encode.numbers(data, column)
        if values.any() and np.ptp(values / y) <= 1e-9 * np.abs(values / y).max():
            raise UsageError(f"Feature '{column}' is the target '{target}' times a constant; leave it out.")
        if len(values) > 2 and (np.diff(values) == 1).all():
            warnings.append(f"'{column}' counts the rows of the file: make sure that it is no row number")
    return warnings


def _shown(path: str | Path, root: str | Path | None = None) -> str:
    """A path as a card may name it: relative to its root where it has one, never a machine's folder."""
    path = Path(path)
    if not path.is_absolute():
        return path.as_posix() if root is not None else path.name
    return path.resolve().relative_to(Path(root).resolve()).as_posix() if root is not None else path.name
