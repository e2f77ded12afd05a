"""Measures finalists and random networks end to end, predicted and measured side by side.

Everything is measured in one interleaved run. Baselines stand beside the prediction: the plain sum of rows,
calibrated FLOPs, and, where the table has primitive rows, their sum with and without calibration.
Other limits of the search are checked again, each as far as it can be here: sizes are counted on the whole networks,
latencies of other devices are predicted once more. The predictors asked are those the search used, by their fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import schema, stats
from hwbench.core.errors import HwbenchError, UsageError
from hwbench.core.files import read_json, write_json
from hwbench.core.progress import Tick, no_tick
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.lut import latency
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Workload
from hwbench.network.spec import Setting
from hwbench.optimize.limit import ELSEWHERE, INSTRUCTIONS, LATENCY, SIZES, instructions_m, recounted
from hwbench.optimize.search import PLAIN, UPPER_BOUND
from hwbench.predictor import space_latency as estimators
from hwbench.predictor.baselines import flops_of, primitive_sum_ms
from hwbench.predictor.card import CARD
from hwbench.predictor.space_latency import Fitted
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.profiler.target import require_local
from hwbench.space import lowering as spaces
from hwbench.space.architectures import RESULT_NAME, Architectures, of_values
from hwbench.space.sample import sample
from hwbench.study import schema as study_schema

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

    Args:
        result: The folder a search wrote.
        random: Random networks measured beside the finalists.
        seed: Draws the random networks (never those the predictor was fitted on).
        workspace: Where predictor and tables are.
        policy: How long each network is measured.
        tick: Progress.
    """
    folder = Path(result)
    document = read_json(folder / RESULT_NAME, "search result")
    if "search" not in document:
        raise UsageError(f"{folder / RESULT_NAME} is not a search result. Run: hwbench search")
    about = document["search"]
    finalists = of_values(document["space"], document["architectures"])
    require_local(about["device"], Workspace.at(workspace))
    fitted = searched_with(folder, about, LATENCY, Workspace.at(workspace))
    luts.check_local(Environment(fitted.card["environment"]), fitted.folder / CARD)
    fitted_on = {*fitted.card["fit_networks"], *fitted.card["holdout_networks"], *finalists.keys}
    drawn = sample(document["space"], 4 * random + 8, seed + 77_003) if random else None
    sets = [finalists] if drawn is None else [finalists, _unlike(drawn, fitted_on, random)]
    roles = ["winner", *["finalist"] * (len(finalists) - 1)]
    rows = compare(sets, fitted, about["statistic"], workspace, policy, tick, roles)
    summary = {
        "schema": VERSION,
        "space": document["space"],
        "statistic": about["statistic"],
        "budget_ms": about["budget_ms"],
        "winner": next(row for row in rows if row["role"] == "winner"),
        "kept": _kept(rows, about["budget_ms"]),
        "predictor": fitted.about(document["space"], about["statistic"]),
        "certified": certified(about, fitted, document["space"]),
        "limits": check_limits(folder, about, finalists, rows[: len(finalists)], workspace),
        "accuracy": summarise([row for row in rows if row["role"] == "random"] or rows),
        "accuracy_on": "random networks" if random else "finalists",
        "noise": latency.noise(rows),
        "seed": seed,
        "verified_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    schema.write(folder / "verification.parquet", study_schema.VERIFICATION, rows, {"statistic": about["statistic"]})
    write_json(folder / "verification.json", summary)
    return summary


def searched_with(folder: Path, about: Mapping[str, Any], limit: str, place: Workspace) -> Fitted:
    """The predictor behind one limit of a search, as it was then."""
    fingerprint = about["predictor"] if limit == LATENCY else about["other_predictors"][limit]
    used = {**about.get("predictors", {}).get(limit, {}), "fingerprint": fingerprint}
    device, _, runtime = limit.removeprefix(ELSEWHERE).partition("/")
    where = about["device"] if limit == LATENCY else devices.resolve(device, place.root)
    return estimators.kept(folder, used, place, where, runtime or about["runtime"], Setting(**about["setting"]))


def certified(about: Mapping[str, Any], fitted: Fitted, space: str) -> bool:
    """Whether a search's claim holds: searches of version 0.1 claimed it also where no calibration saw the space."""
    return bool(about["certified"]) and fitted.certifies(space)


def compare(
    sets: Sequence[Architectures],
    fitted: Fitted,
    statistic: str,
    workspace: str | Path = ".",
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
    roles: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Measures architectures and puts every estimate beside; `roles` name the first ones, the rest is random."""
    card = fitted.card
    measured = measure_networks(sets, card["device"], card["runtime"], fitted.setting, workspace, policy, tick)
    table = Lut.read(luts.find_lut(Workspace.at(workspace), card["device"], card["runtime"]))
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
    calibrated = fitted.card["statistics"][statistic]["baselines"]
    at = fitted.setting.key
    rows_ms = {
        key: row["latency_min_ms"] for (key, s), row in table.rows.items() if s == at and row["latency_min_ms"] is not None
    }
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
    about: Mapping[str, Any],
    finalists: Architectures,
    rows: Sequence[Mapping[str, Any]],
    workspace: str | Path,
) -> list[dict[str, Any]]:
    """Every limit of a search, the budget first: what its finalists really have, how that is known, and who keeps it."""
    setting, statistic = Setting(**about["setting"]), about["statistic"]
    workloads = [spaces.lower(finalists.space, column) for column in finalists.population.T]
    found = [_checked(LATENCY, about["budget_ms"], f"measured here ({statistic})", [row["measured_ms"] for row in rows])]
    for name, most in (about.get("limits") or {}).items():
        if name in SIZES:
            found.append(_checked(name, most, "counted", [recounted(name, each, setting) for each in workloads]))
            continue
        if name.startswith(INSTRUCTIONS):
            sums = [_instructions_m(name, each, about["runtime"], setting, workspace) for each in workloads]
            found.append(_checked(name, most, "sum of counted rows", sums))
            continue
        try:
            fitted = searched_with(folder, about, name, Workspace.at(workspace))
            predicted = [fitted.predict(each, statistic, finalists.space.name) for each in workloads]
        except HwbenchError as error:
            found.append(_checked(name, most, f"not checked: {error}", []))
            continue
        bounded = about.get("bound", UPPER_BOUND if about["certified"] else PLAIN) == UPPER_BOUND
        how = "upper bound predicted, not measured" if bounded else "predicted, not measured"
        if bounded and not fitted.certifies(finalists.space.name):
            how += f"; uncertified: never calibrated on {finalists.space.name}"
        values = [each.upper_ms if bounded else each.latency_ms for each in predicted]
        found.append(_checked(name, most, how, values))
    return found


def _instructions_m(name: str, workload: Workload, runtime: str, setting: Setting, workspace: str | Path) -> float:
    counts = workload.counts()
    return float(instructions_m(name, list(counts), runtime, setting, workspace) @ np.array(list(counts.values()), float))


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
