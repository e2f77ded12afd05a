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

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, schema, stats
from hwbench.core.errors import UsageError
from hwbench.core.progress import step
from hwbench.predictor.few_shot import latency
from hwbench.predictor.few_shot.prior import DevicePosterior, Population, learn, posterior, prior, spread_out
from hwbench.predictor.few_shot.tables import LEAST_DEVICES, Tables

ADDED = ("prediction", "low", "high")
LEAST_MEASURED = 3
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
    for device in _counted(devices, "known devices, each treated as new"):
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


def _counted(devices: np.ndarray, what: str) -> Iterator[int]:
    """Each of them, with progress."""
    with step(what) as tick:
        for at, device in enumerate(devices):
            tick(at, len(devices))
            yield int(device)


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
    tables = Tables.of(table, new, features, str(known), str(measured))
    if len(tables.rows) < LEAST_MEASURED:
        raise UsageError(f"{measured} has {len(tables.rows)} different architectures; at least {LEAST_MEASURED} are needed.")
    with step("learning from known devices"):
        population = learn(tables.logs, tables.blocks)
    new_device = posterior(prior(population), tables.rows, tables.new_logs)
    rehearsal = rehearse(population, tables.logs, tables.rows, coverage)
    value = np.exp(new_device.mean(tables.order))
    answers = np.stack([value, *rehearsal.band.bounds(value, new_device.deviation(tables.order))])
    if output is not None:
        written = tables.architectures(table)
        for name, column in zip(ADDED, answers, strict=True):
            written = written.append_column(name, [column])
        schema.write_table(Path(output), written)
    done = replace(
        _account(tables, new_device, rehearsal, answers, coverage),
        output=None if output is None else str(output),
        predictor=None if out is None else str(out),
    )
    if out is not None and device is not None:
        predictions = latency.Predictions(tables.choices, answers, np.isin(tables.order, tables.rows))
        judged = min(JUDGED, len(tables.order))
        latency.store(Path(out), device, (known, measured), predictions, done.document(), rehearsal.pairs, judged)
    return done


def _account(
    tables: Tables, new_device: DevicePosterior, rehearsal: Rehearsal, answers: np.ndarray, coverage: float
) -> Transfer:
    """What is said of a transfer: how sure it is, what known devices say of such transfers, whom the new one is like."""
    trust, reason = verdict(new_device, rehearsal)
    likely = [i for i in np.argsort(-new_device.shares, kind="stable")[:3] if new_device.shares[i] >= 0.05]
    value, low, high = answers
    return Transfer(
        output=None,
        architectures=len(tables.order),
        measured=len(tables.rows),
        known_devices=len(tables.devices),
        coverage=coverage,
        median_width=float(np.median((high - low) / value)),
        rehearsed_spearman=float(rehearsal.spearmans.mean()),
        rehearsed_spearman_worst=float(rehearsal.spearmans.min()),
        rehearsed_error=float(np.median(rehearsal.errors)),
        unexplained=new_device.unexplained,
        nearest={tables.devices[i]: round(float(new_device.shares[i]), 3) for i in likely},
        trust=trust,
        reason=reason,
        warnings=tables.warnings,
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
    tables = Tables.of(table, None, features, str(known), "")
    if not LEAST_MEASURED <= n <= len(tables.order):
        raise UsageError(
            f"Choose between {LEAST_MEASURED} and {len(tables.order)} architectures ({known} has no more), not {n}."
        )
    chosen = spread_out(prior(learn(tables.logs, tables.blocks)), n)
    place = np.argsort(tables.order)[chosen]
    found = tables.architectures(table).take(place)
    if output is not None:
        schema.write_table(Path(output), found)
    return Chosen(found.to_pylist(), len(tables.devices), str(output) if output is not None else None)
