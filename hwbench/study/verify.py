"""Measures finalists and random networks end to end, predicted and measured side by side.

Everything is measured in one interleaved run, where the device is: here or over ssh. A device that cannot be reached is no
failure: the verification says that nothing was measured, and why. Finalists whose rows are in doubt are measured on once.

Baselines stand beside the prediction: the plain sum of rows, calibrated FLOPs, and, where the table has primitive rows, their
sum with and without calibration.
Every limited cost is told once more, as its kind says (optimize/cost_kind.py): sizes are counted on the whole networks,
instructions too where the emulator is set up, latencies of other devices are predicted once more. A search that limits no
latency of its device is verified by that alone. The predictors asked are those the search used, by their fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema, stats
from hwbench.core.command import command
from hwbench.core.errors import HwbenchError
from hwbench.core.progress import Tick, no_tick
from hwbench.core.workspace import Workspace
from hwbench.device.agent.environment import Environment
from hwbench.lut import latency
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Workload
from hwbench.optimize.cost_kind import LATENCY, Finished, Question, Recount, kind_of, place_of
from hwbench.optimize.result import SearchResult
from hwbench.optimize.settings import Settings
from hwbench.predictor import models
from hwbench.predictor.baselines import flops_of, primitive_sum_ms
from hwbench.predictor.card import CARD
from hwbench.predictor.models import Chosen
from hwbench.predictor.space_latency import Fitted
from hwbench.profiler.live_target import LiveTarget
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.space import lowering as spaces
from hwbench.space.architectures import Architectures
from hwbench.space.sample import sample
from hwbench.study import schema as study_schema
from hwbench.study import verification
from hwbench.study.finalists import (
    ROWS,
    best_kept,
    check_environment,
    checked,
    counting,
    doubts,
    measure_on,
    measured_where,
    timed_target,
    unmeasured,
    verdict,
    write_unmeasured,
)

ESTIMATES = ("predicted_ms", "flops_ms", "plain_sum_ms", "primitive_sum_ms", "primitive_calibrated_ms")
"""Columns of a verification that claim to be the latency."""


@registry.takes(space="space")
def verify(
    result: str | Path,
    random: int = 12,
    seed: int = 0,
    workspace: str | Path = ".",
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
    space: str | None = None,
) -> dict[str, Any]:
    """Measures a search's finalists and random networks of its space; writes verification.parquet and .json.

    Where the budget's cost cannot be measured, verification.json says why (`measured` is false) and gives no verdict.

    Args:
        result: The folder a search wrote.
        random: Random networks measured beside the finalists.
        seed: Draws the random networks (never those the predictor was fitted on).
        workspace: Where predictor and tables are.
        policy: How long each network is measured; finalists whose verdict is not stable go on for longer, once.
        tick: Progress.
        space: The search's space, where it is one of your own; its name is enough for any other, and stored.

    Raises:
        MeasurementError: the device cannot be reached and an earlier verification was measured, or it was lost meanwhile.
        EnvironmentMismatch: the device is not what the predictor was fitted on.
    """
    folder, place = Path(result), Workspace.at(workspace)
    found = SearchResult.read(folder, space)
    chosen = searched_with(folder, found, LATENCY, place) if LATENCY in found.settings.bounds else None
    known = {
        "schema": verification.VERSION,
        "space": found.settings.space,
        "statistic": found.settings.statistic,
        "budget_ms": found.settings.bounds.get(LATENCY),
        "budget_factor": found.settings.budget_factor,
        "bounds": found.settings.bounds,
        "device": found.settings.device,
        "predictor": chosen.latency.facts.document() if chosen else None,
        "certified": certified(found.settings, chosen) if chosen else found.settings.certified,
        "seed": seed,
        "verified_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if chosen is None:
        return _recounted(folder, found, known, place, tick)
    live = timed_target(found.settings.target(place))
    if isinstance(live, LiveTarget) and not isinstance(chosen.model, Fitted):
        live = (
            f"{chosen.latency.facts.name} rests on a table of others, whose numbers hwbench's own would not compare with. "
            "Measure one here, and search with another --out. "
            f"{luts.how_to_measure(found.settings.target(place), [found.settings.space], fit=True)}"
        )
    if isinstance(live, str) or not isinstance(chosen.model, Fitted):
        limits = check_limits(folder, found, Recount(f"not measured: {live}", []), place, tick)
        return write_unmeasured(
            folder, {**known, **unmeasured(found, str(live)), "limits": limits}, again(folder, found, place)
        )
    fitted = chosen.model
    check_environment(Environment(fitted.card.environment), fitted.folder / CARD, live)
    sets = [found.networks, *_drawn(found, fitted, random, seed)]
    roles = ["winner", *["finalist"] * (len(found.networks) - 1)]
    rows = compare(sets, fitted, found.settings.statistic, policy, tick, roles, live)
    summary = {**known, **_measured(folder, found, rows, measured_where(found.settings.statistic, live), place, tick)}
    schema.write(folder / ROWS, study_schema.VERIFICATION, rows, {"statistic": found.settings.statistic})
    verification.write(folder, summary)
    return summary


def _measured(
    folder: Path, found: SearchResult, rows: Sequence[Mapping[str, Any]], how: str, place: Workspace, tick: Tick
) -> dict[str, Any]:
    """What a verification says of measured rows."""
    finalists = rows[: len(found.networks)]
    drawn = [row for row in rows if row["role"] == "random"]
    limits = check_limits(folder, found, Recount(how, [row["measured_ms"] for row in finalists], True), place, tick)
    return {
        "measured": True,
        "winner": finalists[0],
        "kept": verdict(limits[0]),
        "best_kept": best_kept(found, finalists, limits),
        "doubtful": doubts(finalists, found.settings.statistic),
        "limits": limits,
        "accuracy": summarise(drawn or rows),
        "accuracy_on": "random networks" if drawn else "finalists",
        "noise": latency.noise(rows),
    }


def _recounted(folder: Path, found: SearchResult, known: Mapping[str, Any], place: Workspace, tick: Tick) -> dict[str, Any]:
    """Verifies a search that limits no latency of its device: every limited cost of the finalists is told once more."""
    finished = _finished(folder, found, Recount("not limited", []), place, tick)
    recounts = {name: _recount(name, finished) for name in found.settings.bounds}
    limits = [checked(name, at_most, recounts[name]) for name, at_most in found.settings.bounds.items()]
    first = recounts[found.settings.first]
    if not first.measured:
        summary = {**known, **unmeasured(found, first.why_not or first.how), "limits": limits}
        return write_unmeasured(folder, summary, again(folder, found, place))
    summary = {
        **known,
        **unmeasured(found, ""),
        "measured": True,
        "why": None,
        "kept": verdict(limits[0]),
        "best_kept": best_kept(found, [], limits),
        "doubtful": [],
        "limits": limits,
    }
    verification.write(folder, summary)
    return summary


def again(folder: Path, found: SearchResult, place: Workspace) -> str:
    """The command that verifies a search."""
    return command("verify", folder, space=registry.code_of(found.settings.space), workspace=place.option)


def _drawn(found: SearchResult, fitted: Fitted, random: int, seed: int) -> list[Architectures]:
    """Random networks of the searched space that took no part in fit or search."""
    if not random:
        return []
    before = {*fitted.card.fit_networks, *fitted.card.holdout_networks, *found.networks.keys}
    return [_unlike(sample(found.settings.space, 4 * random + 8, seed + 77_003), before, random)]


def searched_with(folder: Path, found: SearchResult, cost: str, place: Workspace) -> Chosen:
    """The predictor behind one limited cost of a search, as it was then."""
    target = found.settings.target(place)
    target = target if cost == LATENCY else place_of(cost, target)
    return models.kept(folder, found.predictor(cost), found.networks.space, found.settings.statistic, target)


def certified(settings: Settings, chosen: Chosen) -> bool:
    """Whether a search's claim holds: searches of version 0.1 claimed it also where no calibration saw the space."""
    return bool(settings.certified) and chosen.latency.facts.certified


def compare(
    sets: Sequence[Architectures],
    fitted: Fitted,
    statistic: str,
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
    roles: Sequence[str] = (),
    live: LiveTarget | None = None,
) -> list[dict[str, Any]]:
    """Measures architectures and puts every estimate beside; `roles` name those of the first set, the rest is random."""

    def measure(these: Sequence[Architectures], how: Policy) -> dict[str, dict[str, Any]]:
        return measure_networks(these, live or fitted.target, how, tick)

    measured = measure(sets, policy)
    if roles:
        measured = measure_on(sets[0], measured, lambda some: measure([some], policy.longer()))
    table = Lut.read(luts.find_lut(fitted.target))
    keep = {c.name for c in study_schema.VERIFICATION.columns}
    rows: list[dict[str, Any]] = []
    for architectures in sets:
        for key, values, column in zip(architectures.keys, architectures.values, architectures.population.T, strict=True):
            workload = spaces.lower(architectures.space, column)
            found = fitted.predict(workload, statistic, architectures.space.name)
            row = {name: value for name, value in measured[key].items() if name in keep}
            row.update(
                space=architectures.space.name,
                architecture=json.dumps(values),
                role=roles[len(rows)] if len(rows) < len(roles) else "random",
                predicted_ms=found.latency_ms,
                upper_ms=found.upper_ms,
                measured_ms=measured[key][luts.STATISTICS[statistic]],
                **baselines(workload, fitted, table, statistic),
            )
            rows.append(row)
    return rows


def baselines(workload: Workload, fitted: Fitted, table: Lut, statistic: str) -> dict[str, float]:
    """What simpler estimates say of a workload; NaN where they cannot."""
    calibrated = fitted.card.statistics[statistic].baselines or {}
    rows_ms = table.values(fitted.target.setting)
    counts = workload.counts()
    plain = float(sum(n * rows_ms.get(spec.key, float("nan")) for spec, n in counts.items()))
    primitive = primitive_sum_ms(workload, rows_ms)

    def line(name: str, x: float) -> float:
        return calibrated[name][0] + calibrated[name][1] * x if name in calibrated else float("nan")

    return {
        "plain_sum_ms": plain,
        "flops_ms": line("flops", flops_of(workload)),
        "primitive_sum_ms": primitive,
        "primitive_calibrated_ms": line("primitives", primitive),
    }


def check_limits(
    folder: Path, found: SearchResult, measured: Recount, place: Workspace, tick: Tick = no_tick
) -> list[dict[str, Any]]:
    """Every limit of a search, the budget first: what its finalists really have, how that is known, and who keeps it.

    Args:
        folder: Of the search.
        found: What it found.
        measured: The finalists' latency on the device searched for.
        place: Workspace.
        tick: Progress.
    """
    finished = _finished(folder, found, measured, place, tick)
    return [checked(name, at_most, _recount(name, finished)) for name, at_most in found.settings.bounds.items()]


def _finished(folder: Path, found: SearchResult, measured: Recount, place: Workspace, tick: Tick) -> Finished:
    """The finalists, and who can be asked about their costs."""
    return Finished(
        found.networks,
        Question(found.settings.target(place), found.settings.statistic),
        found.settings.by_upper,
        measured,
        lambda cost: searched_with(folder, found, cost, place),
        counting(tick),
    )


def _recount(name: str, finished: Finished) -> Recount:
    """A cost of finished networks, told once more, or why that cannot be."""
    try:
        return kind_of(name, finished.networks.space, finished.question).recount(name, finished)
    except HwbenchError as error:
        return Recount(f"not checked: {error}", [], why_not=str(error))


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Accuracy of every estimate that covers all rows."""
    measured = np.array([row["measured_ms"] for row in rows], float)
    found = {}
    for name in ESTIMATES:
        values = np.array([row[name] for row in rows], float)
        if not np.isnan(values).any():
            found[name] = asdict(stats.accuracy(values, measured))
    return found


def _unlike(drawn: Architectures, known: set[str], n: int) -> Architectures:
    first = {key: i for i, key in reversed(list(enumerate(drawn.keys))) if key not in known}
    keep = sorted(first.values())[:n]
    return Architectures(drawn.space, drawn.population[:, keep])
