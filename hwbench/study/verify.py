"""Measures finalists and random networks end to end, predicted and measured side by side.

Everything is measured in one interleaved run, where the device is: here or over ssh. A device that cannot be reached is no
failure: the verification says that nothing was measured, and why. Finalists whose rows are in doubt are measured on once.

Baselines stand beside the prediction: the plain sum of rows, calibrated FLOPs, and, where the table has primitive rows, their
sum with and without calibration.
Other limits of the search are checked again, each as far as it can be here: sizes are counted on the whole networks,
instructions too where the emulator is set up, latencies of other devices are predicted once more. The predictors asked are
those the search used, by their fingerprint.
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
from hwbench.core.errors import HwbenchError, UsageError
from hwbench.core.files import read_json, write_json
from hwbench.core.progress import Tick, no_tick
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import latency
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Workload
from hwbench.network.spec import Setting
from hwbench.optimize.limit import ELSEWHERE, INSTRUCTIONS, LATENCY, SIZES, recounted
from hwbench.optimize.search import PLAIN, UPPER_BOUND
from hwbench.predictor import models
from hwbench.predictor.baselines import flops_of, primitive_sum_ms
from hwbench.predictor.card import CARD
from hwbench.predictor.models import Chosen
from hwbench.predictor.space_latency import Fitted
from hwbench.profiler.live_target import LiveTarget
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.space import lowering as spaces
from hwbench.space.architectures import RESULT_NAME, Architectures, of_values
from hwbench.space.sample import sample
from hwbench.study import schema as study_schema
from hwbench.study.finalists import (
    ROWS,
    SUMMARY,
    best_kept,
    check_environment,
    counted_m,
    doubts,
    measure_on,
    measured_where,
    timed_target,
    unmeasured,
    write_unmeasured,
)

VERSION = 1
ESTIMATES = ("predicted_ms", "flops_ms", "plain_sum_ms", "primitive_sum_ms", "primitive_calibrated_ms")
"""Columns of a verification that claim to be the latency."""


def verify(
    result: str | Path,
    random: int = 12,
    seed: int = 0,
    workspace: str | Path = ".",
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
) -> dict[str, Any]:
    """Measures a search's finalists and random networks of its space; writes verification.parquet and .json.

    Where its device cannot be reached, verification.json says why (`measured` is false) and has no measured number.

    Args:
        result: The folder a search wrote.
        random: Random networks measured beside the finalists.
        seed: Draws the random networks (never those the predictor was fitted on).
        workspace: Where predictor and tables are.
        policy: How long each network is measured; finalists whose verdict is not stable go on for longer, once.
        tick: Progress.

    Raises:
        MeasurementError: the device cannot be reached and an earlier verification was measured, or it was lost meanwhile.
        EnvironmentMismatch: the device is not what the predictor was fitted on.
    """
    folder, place = Path(result), Workspace.at(workspace)
    document = read_json(folder / RESULT_NAME, "search result")
    if "search" not in document:
        raise UsageError(f"{folder / RESULT_NAME} is not a search result. Run: hwbench search")
    about = document["search"]
    finalists = of_values(document["space"], document["architectures"])
    chosen = searched_with(folder, document, LATENCY, place)
    known = {
        "schema": VERSION,
        "space": document["space"],
        "statistic": about["statistic"],
        "budget_ms": about["budget_ms"],
        "device": about["device"],
        "predictor": chosen.latency.facts.document(),
        "certified": certified(about, chosen),
        "seed": seed,
        "verified_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    live = timed_target(Target(about["device"], about["runtime"], Setting(**about["setting"]), place))
    fitted = chosen.model
    if isinstance(live, LiveTarget) and not isinstance(fitted, Fitted):
        live = (
            f"{chosen.latency.facts.name} rests on a table of others, whose numbers hwbench's own would not compare with. "
            f"Run: hwbench profile --device {about['device']} --space {document['space']}"
        )
    if isinstance(live, str) or not isinstance(fitted, Fitted):
        limits = check_limits(folder, document, finalists, [], workspace, tick, f"not measured: {live}")
        return write_unmeasured(folder, {**known, **unmeasured(about, finalists, str(live)), "limits": limits})
    check_environment(Environment(fitted.card.environment), fitted.folder / CARD, live)
    fitted_on = {*fitted.card.fit_networks, *fitted.card.holdout_networks, *finalists.keys}
    drawn = sample(document["space"], 4 * random + 8, seed + 77_003) if random else None
    sets = [finalists] if drawn is None else [finalists, _unlike(drawn, fitted_on, random)]
    roles = ["winner", *["finalist"] * (len(finalists) - 1)]
    rows = compare(sets, fitted, about["statistic"], policy, tick, roles, live)
    limits = check_limits(folder, document, finalists, rows[: len(finalists)], workspace, tick, measured_where(about, live))
    summary = {
        **known,
        "measured": True,
        "winner": next(row for row in rows if row["role"] == "winner"),
        "kept": _kept(rows, about["budget_ms"]),
        "best_kept": best_kept(about, finalists, rows, limits),
        "doubtful": doubts(rows[: len(finalists)], about["statistic"]),
        "limits": limits,
        "accuracy": summarise([row for row in rows if row["role"] == "random"] or rows),
        "accuracy_on": "random networks" if random else "finalists",
        "noise": latency.noise(rows),
    }
    schema.write(folder / ROWS, study_schema.VERIFICATION, rows, {"statistic": about["statistic"]})
    write_json(folder / SUMMARY, summary)
    return summary


def searched_with(folder: Path, document: Mapping[str, Any], limit: str, place: Workspace) -> Chosen:
    """The predictor behind one limit of a search, as it was then."""
    about = document["search"]
    space = registry.get("space", document["space"])
    fingerprint = about["predictor"] if limit == LATENCY else about["other_predictors"][limit]
    used = {**about.get("predictors", {}).get(limit, {}), "fingerprint": fingerprint}
    device, _, runtime = limit.removeprefix(ELSEWHERE).partition("/")
    where = about["device"] if limit == LATENCY else devices.resolve(device, place.root)
    target = Target(where, runtime or about["runtime"], Setting(**about["setting"]), place)
    return models.kept(folder, used, space, about["statistic"], target)


def certified(about: Mapping[str, Any], chosen: Chosen) -> bool:
    """Whether a search's claim holds: searches of version 0.1 claimed it also where no calibration saw the space."""
    return bool(about["certified"]) and chosen.latency.facts.certified


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
    folder: Path,
    document: Mapping[str, Any],
    finalists: Architectures,
    rows: Sequence[Mapping[str, Any]],
    workspace: str | Path,
    tick: Tick = no_tick,
    how_measured: str = "",
) -> list[dict[str, Any]]:
    """Every limit of a search, the budget first: what its finalists really have, how that is known, and who keeps it.

    Without `rows` nothing is claimed of the budget.
    """
    about = document["search"]
    setting, statistic = Setting(**about["setting"]), about["statistic"]
    workloads = [spaces.lower(finalists.space, column) for column in finalists.population.T]
    how = how_measured or f"measured here ({statistic})"
    found = [_checked(LATENCY, about["budget_ms"], how, [row["measured_ms"] for row in rows])]
    for name, most in (about.get("limits") or {}).items():
        if name in SIZES:
            found.append(_checked(name, most, "counted", [recounted(name, each, setting) for each in workloads]))
            continue
        if name.startswith(INSTRUCTIONS):
            try:
                found.append(_checked(name, most, *counted_m(name, finalists, about["runtime"], setting, workspace, tick)))
            except HwbenchError as error:
                found.append(_checked(name, most, f"not checked: {error}", []))
            continue
        try:
            chosen = searched_with(folder, document, name, Workspace.at(workspace))
            predicted = chosen.latency.predict(finalists.population)
        except HwbenchError as error:
            found.append(_checked(name, most, f"not checked: {error}", []))
            continue
        bounded = about.get("bound", UPPER_BOUND if about["certified"] else PLAIN) == UPPER_BOUND
        how = "upper bound predicted, not measured" if bounded else "predicted, not measured"
        if bounded and not chosen.latency.facts.certified:
            how += f"; uncertified: never calibrated on {finalists.space.name}"
        values = (predicted.high_ms if bounded else predicted.value_ms).tolist()
        found.append(_checked(name, most, how, values))
    return found


def _checked(name: str, most: float, how: str, values: Sequence[float]) -> dict[str, Any]:
    """One limit; nothing is claimed kept where there are no values."""
    return {
        "name": name,
        "most": most,
        "how": how,
        "winner": values[0] if values else None,
        "kept": bool(values[0] <= most) if values else None,
        "finalists": sum(value <= most for value in values) if values else None,
        "of": len(values),
        "values": [float(value) for value in values],
    }


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Accuracy of every estimate that covers all rows."""
    measured = np.array([row["measured_ms"] for row in rows], float)
    found = {}
    for name in ESTIMATES:
        values = np.array([row[name] for row in rows], float)
        if not np.isnan(values).any():
            found[name] = asdict(stats.accuracy(values, measured))
    return found


def _kept(rows: Sequence[Mapping[str, Any]], budget_ms: float) -> dict[str, Any]:
    finalists = [row for row in rows if row["role"] != "random"]
    winner = next(row for row in finalists if row["role"] == "winner")
    return {
        "winner": bool(winner["measured_ms"] <= budget_ms),
        "finalists": sum(row["measured_ms"] <= budget_ms for row in finalists),
        "of": len(finalists),
    }


def _unlike(drawn: Architectures, known: set[str], n: int) -> Architectures:
    first = {key: i for i, key in reversed(list(enumerate(drawn.keys))) if key not in known}
    keep = sorted(first.values())[:n]
    return Architectures(drawn.space, drawn.population[:, keep])
