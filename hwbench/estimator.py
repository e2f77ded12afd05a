"""Predictors in use: fit one on measured networks, keep it with its card, ask it.

predictors/<device>/<runtime>-<setting>/card.json, arrays.npz

hwbench fit --space autoformer-tiny --space bert        one calibration for all of them
hwbench predict --space autoformer-tiny --arch FILE.json
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__, registry, stats
from hwbench import device as devices
from hwbench import lut as luts
from hwbench.architecture import Architectures, of_values, sample
from hwbench.architecture import read as read_architectures
from hwbench.cost import Cost, summed_cost
from hwbench.engine.policy import Policy
from hwbench.environment import Environment
from hwbench.errors import DataError, UsageError
from hwbench.lut import Lut
from hwbench.network import OpSpec, Prediction, Setting, Workload
from hwbench.op import base as ops
from hwbench.predictor.base import Predictor, sum_ops, weighted_fit
from hwbench.profiler import NETWORK_POLICY, Tick, measure_networks, no_tick
from hwbench.space import base as spaces
from hwbench.space.base import Space
from hwbench.workspace import Workspace, atomic_write, read_json, write_json

VERSION = 1
MARGIN_QUANTILE = 0.95
HOLDOUT_SEED_OFFSET = 1_000_003
"""Held-out networks come from another seed than the fitted ones."""


@dataclass(frozen=True)
class Fitted:
    """A predictor for each statistic, with the card that says what they rest on."""

    folder: Path
    card: Mapping[str, Any]
    predictors: Mapping[str, Predictor]

    @property
    def setting(self) -> Setting:
        """What it predicts for."""
        return Setting(**self.card["setting"])

    def margin(self, statistic: str) -> float:
        """95th percentile of the relative error on held-out calibration networks."""
        return float(self.card["statistics"][statistic]["margin"])

    def cost(self, space: Space, statistic: str) -> Cost:
        """The compiled latency of a space, with the certified upper bound."""
        predictor = self.predictors[statistic]
        name = f"latency_ms@{self.card['device']}/{self.card['runtime']}"

        def op_value(specs: Sequence[OpSpec]) -> np.ndarray:
            self.require(specs)
            return predictor.op_ms(specs)

        return summed_cost(space, name, "ms", op_value, predictor.constant_ms, self.margin(statistic))

    def require(self, specs: Sequence[OpSpec]) -> None:
        """Raises MissingOps if an op is unknown to the predictor."""
        values = self.predictors["min"].op_ms(specs)
        missing = sorted({s.key for s, v in zip(specs, values, strict=True) if np.isnan(v)})
        if missing:
            raise luts.missing_ops(missing, self.setting, f"{self.folder} (then: hwbench fit)")

    def predict(self, workload: Workload, statistic: str) -> Prediction:
        """Latency, upper bound and what each op adds."""
        counts = workload.counts()
        self.require(list(counts))
        predictor = self.predictors[statistic]
        per_op = predictor.op_ms(list(counts)) * np.array(list(counts.values()), float)
        total = float(predictor.constant_ms + per_op.sum())
        return Prediction(
            latency_ms=total,
            upper_ms=total * (1 + self.margin(statistic)),
            statistic=statistic,
            coverage=1.0,
            source=str(self.folder),
            ops_ms={spec.key: float(ms) for spec, ms in zip(counts, per_op, strict=True)},
        )


def fit(
    space: str | Sequence[str],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    predictor: str = "lut_sum",
    networks: int = 16,
    holdout: int = 16,
    seed: int = 0,
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
) -> Fitted:
    """Measures a few whole networks and fits one predictor for all the spaces given.

    Args:
        space: One space or several; they share the calibration.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, batch, threads.
        workspace: Where the table is and the predictor goes.
        predictor: Registered predictor.
        networks: Networks measured to fit, per space.
        holdout: Networks measured to state the error and the margin, per space; never fitted on.
        seed: Draws both sets.
        policy: How long each network is measured.
        tick: Progress.
    """
    names = [space] if isinstance(space, str) else list(space)
    if networks < 4 or holdout < 4:
        raise UsageError(f"At least 4 networks to fit and 4 held out per space, got {networks} and {holdout}.")
    place = Workspace.at(workspace)
    device_name = devices.resolve(device, place.root)
    table = Lut.read(luts.find_lut(place, device_name, runtime), local=device == "local")
    training, heldout = calibration_sets(names, networks, holdout, seed)
    for architectures in (*training, *heldout):
        for network in spaces.networks(architectures.space, architectures.population):
            table.latency_ms(network.specs, setting, "min")
    rows = measure_networks([*training, *heldout], device_name, runtime, setting, place.root, policy, tick)
    document, predictors, arrays = _fit_all(predictor, table, setting, training, heldout, rows)
    card = {
        "schema": VERSION,
        "predictor": predictor,
        "device": device_name,
        "runtime": runtime,
        "setting": asdict(setting),
        "spaces": names,
        "networks_per_space": {"fit": networks, "holdout": holdout},
        "seed": seed,
        **document,
        "lut": {"path": table.path.name, "sha256": hashlib.sha256(table.path.read_bytes()).hexdigest()},
        "environment": dict(table.environment.values),
        "hwbench_version": __version__,
        "fitted_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rebuild": f"hwbench fit {' '.join(f'--space {n}' for n in names)} --runtime {runtime} --batch {setting.batch} "
        f"--threads {setting.threads} --dtype {setting.dtype} --predictor {predictor} --networks {networks} "
        f"--holdout {holdout} --seed {seed}",
    }
    folder = place.path("predictors", device_name, f"{runtime}-{setting.key}")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    atomic_write(folder / "arrays.npz", buffer.getvalue())
    card["arrays_sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    write_json(folder / "card.json", card)
    return Fitted(folder, card, predictors)


def calibration_sets(
    names: Sequence[str], networks: int, holdout: int, seed: int
) -> tuple[list[Architectures], list[Architectures]]:
    """The networks `fit` measures, per space: those it fits on, and others it is judged on."""
    training = [sample(name, networks, seed) for name in names]
    drawn = [sample(name, 2 * holdout, seed + HOLDOUT_SEED_OFFSET) for name in names]
    return training, [_without(d, t, holdout) for d, t in zip(drawn, training, strict=True)]


def _without(drawn: Architectures, taken: Architectures, n: int) -> Architectures:
    """The first n architectures that the other set does not hold."""
    known = set(taken.keys)
    keep: list[int] = []
    for i, key in enumerate(drawn.keys):
        if key not in known and len(keep) < n:
            keep.append(i)
            known.add(key)
    return Architectures(drawn.space, drawn.population[:, keep])


def _fit_all(
    name: str,
    table: Lut,
    setting: Setting,
    training: Sequence[Architectures],
    heldout: Sequence[Architectures],
    rows: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, Predictor], dict[str, np.ndarray]]:
    """Both statistics, their held-out errors and the calibrated baselines."""
    rows_ms = {key: row["latency_min_ms"] for (key, at), row in table.rows.items() if at == setting.key}
    rows_ms = {key: value for key, value in rows_ms.items() if value is not None}
    loads = {
        key: spaces.lower(a.space, c) for a in (*training, *heldout) for key, c in zip(a.keys, a.population.T, strict=True)
    }
    fit_keys = [key for a in training for key in a.keys]
    holdout_keys = [key for a in heldout for key in a.keys]
    document: dict[str, Any] = {"fit_networks": fit_keys, "holdout_networks": holdout_keys, "statistics": {}}
    predictors: dict[str, Predictor] = {}
    arrays: dict[str, np.ndarray] = {}
    for statistic, column in luts.STATISTICS.items():
        measured = {key: float(rows[key][column]) for key in loads}
        predictor: Predictor = registry.make("predictor", name)
        predictor.fit(rows_ms, [loads[k] for k in fit_keys], np.array([measured[k] for k in fit_keys]))
        values, arrays = predictor.state()
        predicted = {k: sum_ops(predictor, w) for k, w in loads.items()}

        def errors(keys: Sequence[str]) -> dict[str, float]:
            found = stats.accuracy(np.array([predicted[k] for k in keys]), np.array([measured[k] for k in keys]))  # noqa: B023
            return asdict(found)

        truth = np.array([measured[k] for k in holdout_keys])
        guess = np.array([predicted[k] for k in holdout_keys])
        document["statistics"][statistic] = {
            "state": values,
            "margin": float(np.quantile(np.abs(truth - guess) / guess, MARGIN_QUANTILE, method="higher")),
            "holdout": errors(holdout_keys),
            "holdout_by_space": {a.space.name: errors(a.keys) for a in heldout},
            "fitted": errors(fit_keys),
            "baselines": _baselines(loads, fit_keys, measured, rows_ms),
        }
        predictors[statistic] = predictor
    document["noise"] = stats.noise([rows[k] for k in loads])
    return document, predictors, arrays


def flops_of(workload: Workload) -> float:
    """FLOPs of one request."""
    return float(sum(n * ops.op_of(s).work(s).flops for s, n in workload.counts().items()))


def primitive_sum_ms(workload: Workload, rows_ms: Mapping[str, float]) -> float:
    """Sum of primitive rows; NaN where the table lacks one."""
    total = 0.0
    for phase in workload.phases:
        total += phase.repeat * sum(rows_ms.get(s.key, float("nan")) for s in ops.primitives(phase.network))
    return total


def _baselines(
    loads: Mapping[str, Workload], fit_keys: Sequence[str], measured: Mapping[str, float], rows_ms: Mapping[str, float]
) -> dict[str, list[float]]:
    """(constant, scale) of what a calibration of FLOPs or of primitives gives on the same networks."""
    truth = np.array([measured[k] for k in fit_keys])
    found = {}
    for name, feature in (("flops", flops_of), ("primitives", lambda w: primitive_sum_ms(w, rows_ms))):
        column = np.array([feature(loads[k]) for k in fit_keys])
        if not np.isnan(column).any():
            solution = weighted_fit(np.column_stack([np.ones(len(column)), column]), truth)
            found[name] = [float(v) for v in solution]
    return found


def load(
    device: str = "local", runtime: str = "onnxruntime", setting: Setting = Setting(), workspace: str | Path = "."
) -> Fitted:
    """The fitted predictor of a device, runtime and setting; `local` must be of this very machine.

    Raises:
        UsageError: none was fitted yet.
        EnvironmentMismatch: `local` was asked and the predictor rests on another machine or runtime version.
    """
    place = Workspace.at(workspace)
    name = devices.resolve(device, place.root)
    found = place.find("predictors", name, f"{runtime}-{setting.key}", "card.json")
    if found is None:
        raise UsageError(
            f"No predictor of {runtime} at {setting.key} on {name} in {place.root}. "
            "Run: hwbench profile --space SPACE, then hwbench fit --space SPACE"
        )
    card = read_json(found, "predictor card")
    if card.get("schema", 0) > VERSION:
        raise DataError(f"{found} has schema {card['schema']}, this hwbench knows {VERSION}: update hwbench.")
    if device == "local":
        luts.check_local(Environment(card["environment"]), found)
    stored_at = found.parent / "arrays.npz"
    raw = stored_at.read_bytes() if stored_at.exists() else b""
    if hashlib.sha256(raw).hexdigest() != card["arrays_sha256"]:
        raise DataError(f"{stored_at} does not belong to its card (missing or edited). Run: {card['rebuild']}")
    with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
        arrays = dict(stored)
    predictors: dict[str, Predictor] = {}
    for statistic, part in card["statistics"].items():
        predictors[statistic] = registry.make("predictor", card["predictor"])
        predictors[statistic].restore(part["state"], arrays)
    return Fitted(found.parent, card, predictors)


def check_statistic(statistic: str) -> str:
    """The statistic, if it is one."""
    if statistic not in luts.STATISTICS:
        raise UsageError(f"statistic '{statistic}' is unknown; available: {', '.join(luts.STATISTICS)}.")
    return statistic


def predict(
    space: str,
    arch: str | Path | dict[str, Any] | Sequence[dict[str, Any]],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    statistic: str = "min",
) -> list[dict[str, Any]]:
    """The latency of every architecture of a file (or given as values), with its upper bound and coverage."""
    check_statistic(statistic)
    if isinstance(arch, str | Path):
        architectures = read_architectures(arch, space)
    else:
        architectures = of_values(space, [arch] if isinstance(arch, dict) else list(arch))
    fitted = load(device, runtime, setting, workspace)
    answers = []
    for values, column in zip(architectures.values, architectures.population.T, strict=True):
        workload = spaces.lower(architectures.space, column)
        found = fitted.predict(workload, statistic)
        answers.append(
            {
                "architecture": values,
                "latency_ms": found.latency_ms,
                "upper_ms": found.upper_ms,
                "statistic": statistic,
                "coverage": found.coverage,
                "device": fitted.card["device"],
                "runtime": runtime,
                "setting": setting.key,
                "source": found.source,
                "ops_ms": dict(found.ops_ms),
            }
        )
    return answers
