"""A new device from ten measurements: what all known devices teach, and how far to trust it.

    hwbench transfer --known KNOWN.parquet --choose 10 --features A,B
    hwbench transfer --known KNOWN.parquet --measured MEASURED.parquet --features A,B --output OUT.parquet
    hwbench transfer --known KNOWN.parquet --measured MEASURED.parquet --features A,B --device NAME --out DIR

How a new device is predicted stands in prior.py, how that is kept for searches in latency.py. What to expect and the
interval come from treating each known device as if it were new, with as many measurements. A new device is not trusted where
its own measurements do not follow from each other. Related: HELP (Lee et al., NeurIPS 2021), OneProxy (Lu et al., SIGMETRICS
2022), MultiPredict (Akhauri et al., 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core import conformal, registry, schema, stats
from hwbench.core.errors import UsageError
from hwbench.predictor.few_shot import latency
from hwbench.predictor.few_shot.prior import DevicePosterior, Population, learn, posterior, prior, scaled, spread_out
from hwbench.predictor.tabular import positions

if TYPE_CHECKING:
    import pyarrow as pa

DEVICE, LATENCY = "device", "latency_ms"
ROW = "__row"
"""Column that numbers the rows of a table while it is read."""
ADDED = ("prediction", "low", "high")
LEAST_DEVICES, LEAST_MEASURED, LEAST_ARCHITECTURES = 3, 3, 20
DRAWS, JUDGED = 4, 400
"""When a known device is treated as new: draws of measurements, architectures it is judged on."""
TRUSTED = 0.85
"""Rank correlation below which predictions are not to be trusted."""
UNLIKE = 0.4
"""Unexplained share from which a device that fits worse than every known one would as new is called unlike them."""


# How far to trust it


@dataclass(frozen=True)
class Rehearsal:
    """Known devices treated as if they were new."""

    band: conformal.Band
    spearmans: np.ndarray
    """[devices]: mean over draws."""
    errors: np.ndarray
    """[devices]: mean relative error, mean over draws."""
    unexplained: np.ndarray
    """[devices, draws]"""
    pairs: list[np.ndarray]
    """Of each device: float[3, n], what was predicted, what was measured, the doubt."""


def rehearse(population: Population, logs: np.ndarray, rows: np.ndarray, coverage: float = conformal.COVERAGE) -> Rehearsal:
    """Leaves each known device out in turn and predicts it from `rows`, and from random ones of the same number.

    Args:
        population: What was learnt from `logs`.
        logs: Log latencies [architectures, devices], NaN where not measured.
        rows: Architectures measured on the new device.
        coverage: Asked of the band.
    """
    random = np.random.default_rng(0)
    devices = np.arange(logs.shape[1])
    pairs, spearmans, errors, unexplained = [], [], [], []
    for device in devices:
        known = np.flatnonzero(~np.isnan(logs[:, device]))
        if len(known) < 2 * len(rows):
            continue
        judged = random.choice(known, min(JUDGED, len(known)), replace=False)
        draws = [rows[~np.isnan(logs[rows, device])]] + [
            random.choice(known, len(rows), replace=False) for _ in range(DRAWS - 1)
        ]
        draws = [draw for draw in draws if len(draw) >= LEAST_MEASURED]
        seen = np.concatenate([judged, *draws])
        one = prior(population.only(seen, np.delete(devices, device)))
        truth, start, found, answers = logs[judged, device], len(judged), [], []
        for draw in draws:
            new_device = posterior(one, np.arange(start, start + len(draw)), logs[draw, device])
            start += len(draw)
            mean = new_device.mean(slice(len(judged)))
            answers.append([np.exp(mean), np.exp(truth), new_device.deviation(slice(len(judged)))])
            found.append((stats.spearman(mean, truth), np.abs(np.expm1(mean - truth)).mean(), new_device.unexplained))
        pairs.append(np.concatenate(answers, axis=1))
        ranks, errs, misfits = np.array(found).T
        spearmans.append(ranks.mean())
        errors.append(errs.mean())
        unexplained.append(misfits)
    if len(spearmans) < LEAST_DEVICES:
        few = f"At least {LEAST_DEVICES} known devices"
        raise UsageError(f"{few} must have measured twice as many architectures as the new one.")
    band = latency.new_device_band(pairs, coverage)
    return Rehearsal(band, np.array(spearmans), np.array(errors), np.concatenate(unexplained), pairs)


def verdict(new_device: DevicePosterior, rehearsal: Rehearsal) -> tuple[bool, str]:
    """(whether to trust, why) from how well each measurement follows from the others."""
    share, worse = new_device.unexplained, float(np.mean(rehearsal.unexplained >= new_device.unexplained))
    shown = f"predicted from the others, a measurement is off by {share:.0%} of how much they differ"
    if np.sqrt(1 - min(share, 1.0) ** 2) < TRUSTED:
        return False, f"{shown}; the known devices cannot even order what was measured"
    if worse == 0 and share > UNLIKE:
        return False, f"{shown}, more than for any known device treated as new: it is unlike all of them"
    return True, f"{shown}; {worse:.0%} of the known devices, treated as new, fit as badly or worse"


# Tables in, tables out


@dataclass(frozen=True)
class Transfer:
    """What was predicted for the new device and how far to trust it."""

    output: str | None
    architectures: int
    measured: int
    known_devices: int
    coverage: float
    median_width: float
    """Of the intervals, relative to the prediction."""
    rehearsed_spearman: float
    """Mean over known devices, each treated as new with as many measurements."""
    rehearsed_spearman_worst: float
    rehearsed_error: float
    """Mean relative error, median over known devices."""
    unexplained: float
    nearest: dict[str, float]
    """Known devices it is likely close to."""
    trust: bool
    reason: str
    warnings: list[str] = field(default_factory=list)
    predictor: str | None = None
    """Folder it was stored in."""

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Chosen:
    """Architectures to measure on a new device, most telling first."""

    architectures: list[dict[str, Any]]
    known_devices: int
    output: str | None


def transfer(
    known: str | Path,
    measured: str | Path,
    features: Sequence[str],
    output: str | Path | None = None,
    coverage: float = conformal.COVERAGE,
    out: str | Path | None = None,
    device: str | None = None,
) -> Transfer:
    """Predicts every known architecture on a new device from a few measurements of it; writes a table, a predictor or both.

    Args:
        known: Parquet with `device`, the architecture columns and `latency_ms`; devices need not have measured the same.
        measured: Parquet with the architecture columns and `latency_ms` of the new device.
        features: The architecture columns.
        output: Parquet to write: known's architectures with `prediction`, `low`, `high` (ms).
        coverage: Share of architectures that are to fall inside low .. high.
        out: Folder to store a predictor in, for searches of the space whose genes are the architecture columns.
        device: What the new device is called in its card; goes with `out`.

    Raises:
        UsageError: a column is missing or foreign, or there are too few devices or measurements.
    """
    if not 0 < coverage < 1:
        raise UsageError(f"The coverage must lie between 0 and 1, got {coverage}.")
    latency.check_places(output, out, device)
    table, new = schema.read_table(Path(known)), schema.read_table(Path(measured))
    taken = [name for name in ADDED if name in table.column_names]
    if taken:
        raise UsageError(f"{known} has columns {', '.join(taken)} already; rename them, predictions would hide them.")
    case = _Case.of(table, new, features, str(known), str(measured))
    if len(case.rows) < LEAST_MEASURED:
        raise UsageError(f"{measured} has {len(case.rows)} different architectures; at least {LEAST_MEASURED} are needed.")
    population = learn(case.logs, case.blocks)
    new_device = posterior(prior(population), case.rows, case.new_logs)
    rehearsal = rehearse(population, case.logs, case.rows, coverage)
    value = np.exp(new_device.mean(case.order))
    answers = np.stack([value, *rehearsal.band.bounds(value, new_device.deviation(case.order))])
    if output is not None:
        written = case.architectures(table)
        for name, column in zip(ADDED, answers, strict=True):
            written = written.append_column(name, [column])
        schema.write_table(Path(output), written)
    done = replace(
        _account(case, new_device, rehearsal, answers, coverage),
        output=None if output is None else str(output),
        predictor=None if out is None else str(out),
    )
    if out is not None and device is not None:
        predictions = latency.Predictions(case.choices, answers, np.isin(case.order, case.rows))
        judged = min(JUDGED, len(case.order))
        latency.store(Path(out), device, (known, measured), predictions, done.document(), rehearsal.pairs, judged)
    return done


def _account(case: _Case, new_device: DevicePosterior, rehearsal: Rehearsal, answers: np.ndarray, coverage: float) -> Transfer:
    """What is said of a transfer: how sure it is, what known devices say of such transfers, whom the new one is like."""
    trust, reason = verdict(new_device, rehearsal)
    likely = [i for i in np.argsort(-new_device.shares, kind="stable")[:3] if new_device.shares[i] >= 0.05]
    value, low, high = answers
    return Transfer(
        output=None,
        architectures=len(case.order),
        measured=len(case.rows),
        known_devices=len(case.devices),
        coverage=coverage,
        median_width=float(np.median((high - low) / value)),
        rehearsed_spearman=float(rehearsal.spearmans.mean()),
        rehearsed_spearman_worst=float(rehearsal.spearmans.min()),
        rehearsed_error=float(np.median(rehearsal.errors)),
        unexplained=new_device.unexplained,
        nearest={case.devices[i]: round(float(new_device.shares[i]), 3) for i in likely},
        trust=trust,
        reason=reason,
        warnings=case.warnings,
    )


def choose(known: str | Path, features: Sequence[str], n: int = 10, output: str | Path | None = None) -> Chosen:
    """The n known architectures whose latency says most about a new device.

    Args:
        known: As for `transfer`.
        features: The architecture columns.
        n: How many to choose.
        output: Parquet to write them to, ready for a `latency_ms` column.

    Raises:
        UsageError: a column is missing, or there are fewer architectures than asked for.
    """
    table = schema.read_table(Path(known))
    case = _Case.of(table, None, features, str(known), "")
    if not LEAST_MEASURED <= n <= len(case.order):
        raise UsageError(f"Choose between {LEAST_MEASURED} and {len(case.order)} architectures ({known} has no more), not {n}.")
    chosen = spread_out(prior(learn(case.logs, case.blocks)), n)
    place = np.argsort(case.order)[chosen]
    found = case.architectures(table).take(place)
    if output is not None:
        schema.write_table(Path(output), found)
    return Chosen(found.to_pylist(), len(case.devices), str(output) if output is not None else None)


@dataclass(frozen=True)
class _Case:
    """The tables as arrays; architectures in an order of their own, so that the rows' order cannot matter."""

    devices: list[str]
    logs: np.ndarray
    """[architectures, devices]; architectures measured on the new device only are all NaN."""
    blocks: list[np.ndarray]
    rows: np.ndarray
    new_logs: np.ndarray
    order: np.ndarray
    """Known architectures as they first appear."""
    choices: list[positions.Position]
    """Of known architectures, in that order."""
    first: np.ndarray
    """Row of `known` each of them first appears in."""
    kept: list[str]
    """Columns that describe an architecture."""
    warnings: list[str]

    @classmethod
    def of(cls, table: pa.Table, new: pa.Table | None, features: Sequence[str], known: str, measured: str) -> _Case:
        features = list(dict.fromkeys(features))
        usable, warnings = _usable(table, features, known)
        n, y = usable.num_rows, _latencies(usable, known)
        names, device = np.unique(np.array(usable[DEVICE].cast("string").to_pylist(), object).astype(str), return_inverse=True)
        if len(names) < LEAST_DEVICES:
            raise UsageError(f"{known} has {len(names)} devices; at least {LEAST_DEVICES} are needed to learn from.")
        choices = positions.read(_stacked(usable, new, features, known, measured), features)
        _refuse_foreign(choices, n, known, measured)
        representative, group = positions.distinct(choices)
        logs, enough = _means(group[:n], device, np.log(y), (len(representative), len(names)))
        if enough.sum() < LEAST_DEVICES:
            few = f"{known} has fewer than {LEAST_DEVICES} devices"
            raise UsageError(f"{few} with {LEAST_ARCHITECTURES} architectures or more.")
        if not enough.all():
            warnings.append(f"too few rows, left out: {', '.join(names[~enough])}")
        met, first = np.unique(group[:n], return_index=True)
        appearance = np.argsort(first, kind="stable")
        rows, means = np.empty(0, int), np.empty(0)
        if new is not None:
            rows, inverse = np.unique(group[n:], return_inverse=True)
            means = np.bincount(inverse, np.log(_latencies(new, measured))) / np.bincount(inverse)
        return cls(
            devices=[str(name) for name in names[enough]],
            logs=logs[:, enough],
            blocks=columns_of(choices, representative),
            rows=rows,
            new_logs=means,
            order=met[appearance],
            choices=[replace(each, codes=each.codes[representative[met[appearance]]]) for each in choices],
            first=np.asarray(usable[ROW].to_numpy())[first[appearance]],
            kept=_describing(usable, features, group[:n], first, met),
            warnings=warnings,
        )

    def architectures(self, table: pa.Table) -> pa.Table:
        """The known architectures, one row each."""
        return table.select(self.kept).take(self.first)


def _usable(table: pa.Table, features: Sequence[str], known: str) -> tuple[pa.Table, list[str]]:
    """The rows that have a latency, each with its number in a column ROW; and what a reader is to know."""
    import pyarrow.compute as pc

    for name in (DEVICE, LATENCY):
        if name in features:
            raise UsageError(f"'{name}' is no architecture column; leave it out of --features.")
        _need(table, name, known)
    table = table.append_column(ROW, [np.arange(table.num_rows)])
    usable = table.filter(pc.is_valid(table[LATENCY]))
    dropped = table.num_rows - usable.num_rows
    return usable, [f"{dropped} rows of {known} have no latency and were left out"] if dropped else []


def _refuse_foreign(choices: Sequence[positions.Position], n: int, known: str, measured: str) -> None:
    """Raises if the new device measured a level that no known architecture (the first n) has."""
    for position in choices:
        foreign = np.setdiff1d(position.codes[n:], position.codes[:n])
        if len(foreign) and not position.quantity:
            level = position.levels[foreign[0]]
            raise UsageError(f"{measured} has {position.name} = {level!r}, which no architecture of {known} has.")


def _means(group: np.ndarray, device: np.ndarray, logs: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(mean of each architecture on each device, NaN where there is none; which devices have enough of them)."""
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (group, device), logs)
    np.add.at(counts, (group, device), 1)
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, sums / counts, np.nan)
    return means, counts.astype(bool).sum(axis=0) >= LEAST_ARCHITECTURES


def _describing(usable: pa.Table, features: Sequence[str], group: np.ndarray, first: np.ndarray, met: np.ndarray) -> list[str]:
    """The architecture columns, and others whose values the architecture decides."""
    others = [c for c in usable.column_names if c not in {*features, DEVICE, LATENCY, ROW}]
    return [c for c in usable.column_names if c in features or (c in others and _follows(usable[c], group, first, met))]


def columns_of(choices: Sequence[positions.Position], rows: np.ndarray) -> list[np.ndarray]:
    """Standardised columns of each choice: one per level but the first; a quantity and its square."""
    found = []
    for position in choices:
        codes = position.codes[rows]
        if position.quantity:
            values = scaled(np.array(position.levels, float)[codes][:, None])
            columns = np.concatenate([values, values**2], axis=1)
        elif len(position.levels) <= positions.MANY_LEVELS:
            columns = (codes[:, None] == np.unique(codes)[None, 1:]).astype(float)
        else:
            continue  # a name tells architectures apart, nothing more
        if columns.shape[1]:
            found.append(scaled(columns))
    return found


def _follows(column: Any, group: np.ndarray, first: np.ndarray, met: np.ndarray) -> bool:
    """Whether the architecture decides the column's value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    except pa.ArrowException:  # a type Arrow cannot tell equal values of
        return False
    codes = np.asarray(encoded.indices.to_numpy())
    return bool((codes == codes[first][np.searchsorted(met, group)]).all())


def _stacked(table: pa.Table, new: pa.Table | None, features: Sequence[str], known: str, measured: str) -> pa.Table:
    """The architecture columns of both tables, one below the other."""
    import pyarrow as pa

    for name in features:
        _need(table, name, known)
        if new is not None:
            _need(new, name, measured)
    if new is None:
        return table.select(features)
    columns = []
    for name in features:
        try:
            both = [part.select([name]) for part in (table, new)]
            columns.append(pa.concat_tables(both, promote_options="permissive").column(name))
        except pa.ArrowException:
            kinds = f"{table.schema.field(name).type} in {known}, {new.schema.field(name).type} in {measured}"
            raise UsageError(f"Column '{name}' is {kinds}; give both the same type.") from None
    return pa.table(columns, names=list(features))


def _need(table: pa.Table, name: str, path: str) -> None:
    if name not in table.column_names:
        raise UsageError(f"{path}: {registry.unknown('column', name, table.column_names)}")


def _latencies(table: pa.Table, path: str) -> np.ndarray:
    import pyarrow as pa

    _need(table, LATENCY, path)
    try:
        values = np.asarray(table[LATENCY].cast(pa.float64()).to_numpy(), float)
    except pa.ArrowException:
        kind = table.schema.field(LATENCY).type
        raise UsageError(f"{path}: column '{LATENCY}' must hold numbers, it holds {kind}.") from None
    bad = int((~(values > 0) | ~np.isfinite(values)).sum())
    if bad:
        raise UsageError(f"{path}: '{LATENCY}' must be positive; {bad} rows are not.")
    return values
