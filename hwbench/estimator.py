"""Predictors in use: fit one on measured networks, keep it with its card, ask it.

predictors/<device>/<runtime>-<setting>--<spaces>/card.json, arrays.npz

hwbench fit --space autoformer-tiny --space bert        one calibration for all of them
hwbench fit --space autoformer-tiny --stored            the same from stored measurements only
hwbench predict --space autoformer-tiny --arch FILE.json

Ops of the spaces that the table lacks are filled in by an `OpModel` of its rows, if it dares; card and predictions say
which share was measured. Intervals are conformal, over networks the predictor was not fitted on.

A calibration holds for the spaces it saw. There is one predictor per set of spaces, so that fitting another space replaces
nothing; asked about a space it never saw, a predictor still answers, but *uncertified*: its interval was never tried there.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import additivity
from hwbench import card as cards
from hwbench.core import conformal, registry, stats
from hwbench.core.conformal import Band
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import atomic_write, fingerprint, without_nan, write_json
from hwbench.core.progress import Tick, no_tick
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.lut import latency
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network import work
from hwbench.network.graph import Workload
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.op_model import OpModel
from hwbench.prediction import Prediction
from hwbench.predictor.base import Aggregator, sum_ops, weighted_fit
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.space import lowering, slots
from hwbench.space.architectures import Architectures, of_values
from hwbench.space.architectures import read as read_architectures
from hwbench.space.sample import sample

VERSION = cards.VERSION
KIND = "op-sum"
AUTO = "auto"
"""The predictor the additivity test picks."""
HOLDOUT_SEED_OFFSET = 1_000_003
"""Held-out networks come from another seed than the fitted ones."""
LEAST_LEFT_OUT = 4
"""A calibration takes 4 networks, so one can be left out of more than that."""
KEPT = "predictors"
"""Folder of a search that keeps the predictors it used, each under its fingerprint."""
LONGEST_NAME = 120
"""Characters of a folder's name; a set of spaces whose names are longer goes by its hash."""


@dataclass(frozen=True)
class Fitted:
    """A predictor for each statistic, with the card that says what they rest on."""

    folder: Path
    card: Mapping[str, Any]
    predictors: Mapping[str, Aggregator]
    name: str
    """Device and folder, as `hwbench list predictors` shows it."""
    filled: frozenset[str] = frozenset()
    """Keys of ops that were not measured: a model of the measured ones stands in for them."""

    @property
    def setting(self) -> Setting:
        """What it predicts for."""
        return Setting(**self.card["setting"])

    @property
    def fingerprint(self) -> str:
        """Names exactly this fit."""
        return fingerprint(self.card["statistics"])

    def certifies(self, space: str) -> bool:
        """Whether its interval was calibrated on networks of this space."""
        return space in self.card["spaces"]

    def about(self, space: str, statistic: str) -> dict[str, Any]:
        """What every use of it for a space says: name, spaces, age, error on networks of this space it was not fitted on."""
        error = self.card["statistics"][statistic]["holdout_by_space"].get(space)
        return {
            "name": self.name,
            "predictor": self.card["predictor"],
            "spaces": list(self.card["spaces"]),
            "fitted_at": self.card["fitted_at"],
            "mean_abs_error": error["mean_abs_error"] if error else None,
            "networks": error["n"] if error else 0,
            "certified": self.certifies(space),
            "fingerprint": self.fingerprint,
            "card_sha256": card_sha256(self.card),
        }

    def margin(self, statistic: str, space: str | None = None) -> float:
        """How far above its prediction (relative) 95 % of networks stay: the upper end of the 90 % interval."""
        band = self.band(statistic, space)
        return band.margin if band else float(self.card["statistics"][statistic]["margin"])

    def _below(self, statistic: str, space: str | None) -> float:
        """How far below its prediction; cards of version 1 state one margin for both sides."""
        band = self.band(statistic, space)
        return -float(np.expm1(band.below)) if band else min(self.margin(statistic), 1.0)

    def band(self, statistic: str, space: str | None = None) -> Band | None:
        """The band of a space, where it had networks enough for one of its own, or of all; None in cards of version 1.

        Of a space it never saw, too: ask `certifies` what such a band is worth.
        """
        part = self.card["statistics"][statistic]
        found = part.get("band_by_space", {}).get(space, part.get("band"))
        return Band(**{k: v for k, v in found.items() if k != "how"}) if found else None

    def require(self, specs: Sequence[OpSpec], space: str | None = None) -> None:
        """Raises MissingOps if an op (of a space) is unknown to the predictor."""
        values = self.predictors["min"].op_ms(specs)
        missing = sorted({s.key for s, v in zip(specs, values, strict=True) if np.isnan(v)})
        if missing:
            device, runtime = self.card["device"], self.card["runtime"]
            raise luts.missing_ops(missing, self.setting, self.folder, device, runtime, space, fitted=True)

    def predict(self, workload: Workload, statistic: str, space: str | None = None) -> Prediction:
        """Latency, interval (that of its space, where it is named and has one), and what each op adds."""
        counts = workload.counts()
        self.require(list(counts), space)
        predictor = self.predictors[statistic]
        per_op = predictor.op_ms(list(counts)) * np.array(list(counts.values()), float)
        total = float(predictor.constant_ms + per_op.sum())
        upper_ms = total * (1 + self.margin(statistic, space))
        return Prediction(
            latency_ms=total,
            upper_ms=upper_ms,
            statistic=statistic,
            coverage=sum(n for s, n in counts.items() if s.key not in self.filled) / sum(counts.values()),
            source=str(self.folder),
            low_ms=total * (1 - self._below(statistic, space)),
            high_ms=upper_ms,
            ops_ms={spec.key: float(ms) for spec, ms in zip(counts, per_op, strict=True)},
            certified=space is not None and self.certifies(space),
        )


def fit(
    space: str | Sequence[str],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    predictor: str = AUTO,
    networks: int = 16,
    holdout: int = 16,
    seed: int = 0,
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
    stored: bool = False,
) -> Fitted:
    """Measures a few whole networks and fits one predictor for all the spaces given.

    Args:
        space: One space or several; they share the calibration.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, batch, threads.
        workspace: Where the table is and the predictor goes.
        predictor: Registered predictor, or `auto`: what the additivity test picks.
        networks: Networks measured to fit, per space.
        holdout: Networks measured to state errors and intervals, per space; never fitted on.
        seed: Draws both sets.
        policy: How long each network is measured.
        tick: Progress.
        stored: Measure nothing: all networks must be in the stored table of networks.
    """
    names = [space] if isinstance(space, str) else list(space)
    if networks < 4 or holdout < 4:
        raise UsageError(f"At least 4 networks to fit and 4 held out per space, got {networks} and {holdout}.")
    if predictor != AUTO:
        registry.get("aggregator", predictor)
    place = Workspace.at(workspace)
    device_name = devices.resolve(device, place.root)
    table = Lut.read(luts.find_lut(place, device_name, runtime), local=device == "local")
    table.require_timed()
    training, heldout = calibration_sets(names, networks, holdout, seed)
    rows_ms, fill = complete_rows(table, setting, names)
    needed = {s for a in (*training, *heldout) for network in lowering.networks(a.space, a.population) for s in network.specs}
    missing = sorted(spec.key for spec in needed if spec.key not in rows_ms)
    if missing:
        raise luts.missing_ops(missing, setting, table.path, device_name, runtime, " --space ".join(names))
    if stored:
        measured = stored_networks([*training, *heldout], place, device_name, runtime, setting)
    else:
        measured = measure_networks([*training, *heldout], device_name, runtime, setting, place.root, policy, tick)
    document, predictors, arrays = _fit_all(predictor, rows_ms, training, heldout, measured)
    filled = sorted(fill["keys"]) if fill else []
    if filled:
        arrays["filled_key"] = np.array(filled)
    least = document["statistics"]["min"]
    card = {
        "kind": KIND,
        **provenance(device_name, runtime, setting, table, names, (networks, holdout), seed),
        "data": {**cards.data_of(table.path, len(rows_ms) - len(filled)), "networks": len(measured)},
        "features": sorted({term for part in document["statistics"].values() for term in part["state"]["coefficients"]}),
        "errors": {"test": least["holdout"], "test_by_space": least["holdout_by_space"], "fit": least["fitted"]},
        "coverage": least["coverage"],
        "noise_ceiling": least["noise_ceiling"],
        **document,
        "fill": {k: v for k, v in fill.items() if k != "keys"} if fill else None,
        "lut": {
            "path": table.path.name,
            "sha256": cards.data_of(table.path, 0)["sha256"],
            "rows_by_space": {name: rows_of(name, table, setting) for name in names},
        },
        "rebuild": f"{fit_command(names, device_name, runtime, setting)} --predictor {predictor} "
        f"--networks {networks} --holdout {holdout} --seed {seed} --stored",
    }
    folder = place.path("predictors", device_name, predictor_name(runtime, setting, names))
    return Fitted(folder, cards.write(folder, card, arrays), predictors, f"{device_name}/{folder.name}", frozenset(filled))


def predictor_name(runtime: str, setting: Setting, spaces: Sequence[str]) -> str:
    """The folder of a predictor: one per runtime, setting and set of spaces, in whatever order they were given."""
    together = "+".join(sorted(set(spaces)))
    at = f"{runtime}-{setting.key}--"
    return at + (together if len(at + together) <= LONGEST_NAME else fingerprint(sorted(set(spaces))))


def card_sha256(card: Mapping[str, Any]) -> str:
    """The hash of a whole card, and through it of its arrays."""
    return hashlib.sha256(json.dumps(without_nan(dict(card)), sort_keys=True).encode()).hexdigest()


def rows_of(space: str, table: Lut, setting: Setting) -> str:
    """A hash of the table's rows of one space: another space's rows may come and go."""
    keys = sorted(spec.key for spec in slots.distinct_specs(registry.get("space", space)))
    rows = [table.rows.get((key, setting.key)) for key in keys]
    return fingerprint([[key, row["latency_min_ms"] if row else None] for key, row in zip(keys, rows, strict=True)])


def provenance(
    device: str, runtime: str, setting: Setting, table: Lut, names: Sequence[str], networks: tuple[int, int], seed: int
) -> dict[str, Any]:
    """What the card of any predictor of networks says of where its measurements come from; `networks`: (fit, holdout)."""
    return {
        "device": device,
        "runtime": runtime,
        "setting": asdict(setting),
        "spaces": list(names),
        "networks_per_space": dict(zip(("fit", "holdout"), networks, strict=True)),
        "seed": seed,
        "environment": dict(table.environment.values),
        "fitted_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def refit(place: Workspace, folder: str | Path) -> Fitted:
    """Fits a stored predictor again from the measurements it rests on, without measuring; writes to the workspace.

    Args:
        place: Workspace; tables it lacks are taken from the shipped ones.
        folder: Of the predictor.
    """
    card = read_card(folder)
    sizes = card["networks_per_space"]
    asked = AUTO if card["additivity"] else card["predictor"]
    return fit(
        card["spaces"], card["device"], card["runtime"], Setting(**card["setting"]), place.root, asked,
        sizes["fit"], sizes["holdout"], card["seed"], stored=True,
    )  # fmt: skip


def complete_rows(table: Lut, setting: Setting, space_names: Sequence[str]) -> tuple[dict[str, float], dict[str, Any]]:
    """(latency of every op by key, what was filled in: {} if all ops of the spaces were measured).

    Ops the model of the table's rows refuses (groups never measured, far outside) have no latency.
    """
    found = {key: row["latency_min_ms"] for (key, at), row in table.rows.items() if at == setting.key}
    rows_ms = {key: float(value) for key, value in found.items() if value is not None}
    wanted = {spec for name in space_names for spec in slots.distinct_specs(registry.get("space", name))}
    lacking = sorted((spec for spec in wanted if spec.key not in rows_ms), key=lambda spec: spec.key)
    kinds = {spec.op for spec in lacking}
    alike = [spec for spec in map(OpSpec.parse, rows_ms) if spec.op in kinds]
    if not alike:
        return rows_ms, {}
    model = OpModel()
    model.fit(alike, np.array([rows_ms[spec.key] for spec in alike]), setting)
    guessed = {s.key: float(ms) for s, ms in zip(lacking, model.predict(lacking)[0], strict=True) if ms == ms}
    if not guessed:
        return rows_ms, {}
    groups = {ops.describe(spec)[0] for spec in lacking if spec.key in guessed}
    fill = {
        "keys": list(guessed),
        "rows": len(guessed),
        "measured_share": 1 - len(lacking) / len(wanted),
        "error_by_group": {group: model.errors[group] for group in sorted(groups)},
    }
    return {**rows_ms, **guessed}, fill


def stored_networks(
    sets: Sequence[Architectures], place: Workspace, device: str, runtime: str, setting: Setting
) -> dict[str, dict[str, Any]]:
    """Key -> row of networks measured before.

    Raises:
        UsageError: some were not; the message says how many and what would measure them.
    """
    path = place.find("luts", device, f"{runtime}.networks.parquet")
    found = lut_networks.read_networks(path)[0] if path is not None else []
    rows = {r["key"]: r for r in found if luts.setting_of(r) == setting and r["latency_min_ms"] is not None}
    keys = [key for a in sets for key in a.keys]
    missing = [key for key in keys if key not in rows]
    if missing:
        raise UsageError(
            f"{len(missing)} of {len(keys)} networks were not measured yet at {setting.key} on {device} (first: {missing[0]}). "
            "Leave out --stored to measure them."
        )
    return {key: rows[key] for key in keys}


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
    asked: str,
    rows_ms: Mapping[str, float],
    training: Sequence[Architectures],
    heldout: Sequence[Architectures],
    rows: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, Aggregator], dict[str, np.ndarray]]:
    """Both statistics, their held-out errors, intervals and the calibrated baselines."""
    loads = {
        key: lowering.lower(a.space, c) for a in (*training, *heldout) for key, c in zip(a.keys, a.population.T, strict=True)
    }
    fit_keys = [key for a in training for key in a.keys]
    holdout_keys = [key for a in heldout for key in a.keys]
    fit_loads = [loads[k] for k in fit_keys]
    measured = {s: {key: float(rows[key][column]) for key in loads} for s, column in luts.STATISTICS.items()}
    chosen = additivity.choose(rows_ms, fit_loads, _values(measured["min"], fit_keys)) if asked == AUTO else None
    name = chosen["choice"] if chosen else asked
    document: dict[str, Any] = {"predictor": name, "additivity": chosen}
    document.update(fit_networks=fit_keys, holdout_networks=holdout_keys, statistics={})
    predictors: dict[str, Aggregator] = {}
    arrays: dict[str, np.ndarray] = {}
    for statistic, truth in measured.items():
        predictor: Aggregator = registry.make("aggregator", name)
        predictor.fit(rows_ms, fit_loads, _values(truth, fit_keys))
        values, arrays = predictor.state()
        guess = {k: sum_ops(predictor, w) for k, w in loads.items()}

        def errors(keys: Sequence[str]) -> dict[str, float]:
            return asdict(stats.accuracy(_values(guess, keys), _values(truth, keys)))  # noqa: B023

        pairs = [_values(guess, holdout_keys), _values(truth, holdout_keys)]
        if len(holdout_keys) < conformal.least_pairs(conformal.COVERAGE) and len(fit_keys) > LEAST_LEFT_OUT:
            # Networks left out of the fit in turn are as new to it as held-out ones.
            left_out = additivity.left_out(name, rows_ms, fit_loads, _values(truth, fit_keys))
            pairs = [np.append(pairs[0], left_out), np.append(pairs[1], _values(truth, fit_keys))]
        band, how = conformal.interval(*pairs)
        document["statistics"][statistic] = {
            "state": values,
            "band": {**band.state(), "how": how},
            "band_by_space": _bands_by_space(heldout, guess, truth),
            "margin": band.margin,
            "coverage": conformal.coverage_evidence(*pairs),
            "noise_ceiling": noise_ceiling([rows[k] for k in loads], statistic),
            "holdout": errors(holdout_keys),
            "holdout_by_space": {a.space.name: errors(a.keys) for a in heldout},
            "fitted": errors(fit_keys),
            "baselines": calibrated_baselines(loads, fit_keys, truth, rows_ms),
        }
        predictors[statistic] = predictor
    document["noise"] = latency.noise([rows[k] for k in loads])
    return document, predictors, arrays


def _bands_by_space(
    heldout: Sequence[Architectures], guess: Mapping[str, float], truth: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """Spaces differ in how well they are predicted: one band of all residuals, in units of their space's mean residual.

    Empty where a space has too few held-out networks to know its unit.
    """
    if any(len(each) < conformal.least_pairs(conformal.COVERAGE) for each in heldout):
        return {}
    pairs = {each.space.name: (_values(guess, each.keys), _values(truth, each.keys)) for each in heldout}
    unit = {name: float(np.abs(np.log(measured / predicted)).mean()) for name, (predicted, measured) in pairs.items()}
    scale = np.concatenate([np.full(len(measured), unit[name]) for name, (_, measured) in pairs.items()])
    predicted, measured = map(np.concatenate, zip(*pairs.values(), strict=True))
    band, how = conformal.interval(predicted, measured, scale)
    return {
        name: {**band.state(), "below": band.below * own, "above": band.above * own, "how": f"{how}, in units of {own:.2%}"}
        for name, own in unit.items()
    }


def _values(by_key: Mapping[str, float], keys: Sequence[str]) -> np.ndarray:
    return np.array([by_key[k] for k in keys], float)


def unseen_evidence(fitted: Fitted, place: Workspace, statistic: str = "min") -> dict[str, Any] | None:
    """Errors and coverage on every stored network of the fitted spaces that took no part in the fit; None without any."""
    card = fitted.card
    path = place.find("luts", card["device"], f"{card['runtime']}.networks.parquet")
    found = lut_networks.read_networks(path)[0] if path is not None else []
    taken = {*card["fit_networks"], *card["holdout_networks"]}
    rows = [
        row
        for row in found
        if row["space"] in card["spaces"] and row["key"] not in taken and luts.setting_of(row) == fitted.setting
        if row["latency_min_ms"] is not None
    ]
    if not rows:
        return None
    answers = []
    for row in rows:
        column = np.frombuffer(bytes.fromhex(row["key"].rpartition("/")[2]), np.uint8)
        answers.append(fitted.predict(lowering.lower(registry.get("space", row["space"]), column), statistic, row["space"]))
    truth = np.array([row[luts.STATISTICS[statistic]] for row in rows], float)
    low, guess, high = (np.array([getattr(a, name) for a in answers]) for name in ("low_ms", "latency_ms", "high_ms"))
    covered = conformal.covered(low, high, truth)
    return {
        **asdict(stats.accuracy(guess, truth)),
        "covered": covered,
        "below_upper": float(np.mean(truth <= high)),
        "falls_short": conformal.falls_short(round(covered * len(rows)), len(rows)),
    }


def noise_ceiling(rows: Sequence[Mapping[str, Any]], statistic: str) -> float | None:
    """Mean absolute relative error a perfect predictor would have, because measurements do not repeat; None if unknown.

    Three processes of a network spread by s (the median over networks counts: a neighbour's visit inflates single ones).
    If levels are normal, s is 1.69 standard deviations on average, and the lowest of three lies 0.60 of one from its usual
    place, the median of three 0.54.
    """
    column, share = {"min": ("min_spread", 0.60 / 1.69), "p50": ("median_spread", 0.54 / 1.69)}[statistic]
    known = [row[column] for row in rows if row[column] is not None and row[column] == row[column]]
    return share * float(np.median(known)) if known else None


def flops_of(workload: Workload) -> float:
    """FLOPs of one request."""
    return float(sum(n * ops.op_of(s).work(s).flops for s, n in workload.counts().items()))


def primitive_sum_ms(workload: Workload, rows_ms: Mapping[str, float]) -> float:
    """Sum of primitive rows; NaN where the table lacks one."""
    total = 0.0
    for phase in workload.phases:
        total += phase.repeat * sum(rows_ms.get(s.key, float("nan")) for s in work.primitives(phase.network))
    return total


def calibrated_baselines(
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
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    space: str | None = None,
    uncertified: bool = False,
) -> Fitted:
    """The newest fitted predictor of a device, runtime and setting; `local` must be of this very machine.

    The workspace's own come before shipped ones.

    Args:
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, batch, threads.
        workspace: Where predictors are looked for.
        space: Only predictors calibrated on this space; any, if not given.
        uncertified: Where none was calibrated on the space, take the newest that knows all its ops.

    Raises:
        UsageError: none was fitted yet, or none for this space.
        DataError: card or arrays are damaged, edited, newer or of another kind.
        EnvironmentMismatch: `local` was asked and the predictor rests on another machine or runtime version.
    """
    place = Workspace.at(workspace)
    name = devices.resolve(device, place.root)
    stored = _stored(place, name, runtime, setting)
    if not stored:
        options = luts.asked(name, runtime, space)
        raise UsageError(
            f"No predictor of {runtime} at {setting.key} on {name} in {place.root}. "
            f"Run: hwbench profile {options}, then hwbench fit {options}"
        )
    chosen = [each for each in stored if space is None or space in each[1]["spaces"]]
    if not chosen and uncertified:
        chosen = [each for each in stored if not _unknown_ops(_open(*each), str(space))] or stored
    if not chosen:
        raise _never_saw(str(space), name, runtime, setting, [card for _, card in stored])
    folder, card = chosen[0]
    if device == "local":
        luts.check_local(Environment(card["environment"]), folder / cards.CARD)
    return _open(folder, card)


def _stored(place: Workspace, device: str, runtime: str, setting: Setting) -> list[tuple[Path, dict[str, Any]]]:
    """(folder, card) of every stored predictor of sums: the workspace's before shipped ones, then the newest first."""
    at = f"{runtime}-{setting.key}"
    found = [*place.each("predictors", device, pattern=f"{at}/{cards.CARD}")]  # as written before there was one per spaces
    found += place.each("predictors", device, pattern=f"{glob.escape(at)}--*/{cards.CARD}")
    read = [(path.parent, read_card(path.parent)) for path in found]
    other = [(folder, card["kind"]) for folder, card in read if card["kind"] != KIND]
    if other:
        folder, kind = other[0]
        raise DataError(f"{folder / cards.CARD} is the card of a {kind} predictor, not of sums over ops. Run: hwbench fit")
    newest = sorted(read, key=lambda each: str(each[1]["fitted_at"]), reverse=True)
    return sorted(newest, key=lambda each: not each[0].is_relative_to(place.root))


def _open(folder: Path, card: dict[str, Any], name: str = "") -> Fitted:
    """The predictor of a card, with its arrays; a copy tells the name of the original."""
    arrays = cards.read_arrays(folder, card)
    predictors: dict[str, Aggregator] = {}
    for statistic, part in card["statistics"].items():
        predictors[statistic] = registry.make("aggregator", card["predictor"])
        predictors[statistic].restore(part["state"], arrays)
    filled = frozenset(arrays.get("filled_key", np.array([])).tolist())
    return Fitted(folder, card, predictors, name or f"{card['device']}/{folder.name}", filled)


def _unknown_ops(fitted: Fitted, space: str) -> bool:
    """Whether some op of the space has no latency."""
    return bool(np.isnan(fitted.predictors["min"].op_ms(slots.distinct_specs(registry.get("space", space)))).any())


def _never_saw(space: str, device: str, runtime: str, setting: Setting, known: Sequence[Mapping[str, Any]]) -> UsageError:
    """The refusal of a space no stored calibration saw: what there is instead, and the command that would change it."""
    registry.get("space", space)
    others = sorted({name for card in known for name in card["spaces"]})
    options = (
        f"{luts.asked(device, runtime, space)} --batch {setting.batch} --threads {setting.threads} --dtype {setting.dtype}"
    )
    return UsageError(
        f"No predictor of {runtime} at {setting.key} on {device} was calibrated on {space}; there are some for "
        f"{', '.join(others)}, and what they say of another space is not certain. Run: hwbench profile {options} && "
        f"hwbench fit {options}, or take the uncertified answer with --uncertified."
    )


def stale(fitted: Fitted, space: str, workspace: str | Path) -> str | None:
    """One sentence, with the command, if the table's rows of a space are not those the predictor was fitted on; else None."""
    card = fitted.card
    place = Workspace.at(workspace)
    path = place.find("luts", card["device"], f"{card['runtime']}.parquet")
    before = card["lut"].get("rows_by_space", {}).get(space)
    if path is None or cards.data_of(path, 0)["sha256"] == card["lut"]["sha256"]:
        return None
    if before is not None and before == rows_of(space, Lut.read(path), fitted.setting):
        return None
    sizes = card["networks_per_space"]
    return (
        f"The table of {card['device']} is newer than this predictor (fitted {str(card['fitted_at'])[:10]}). "
        f"Run: {fit_command(card['spaces'], card['device'], card['runtime'], fitted.setting)} "
        f"--networks {sizes['fit']} --holdout {sizes['holdout']} --seed {card['seed']} --stored"
    )


def fit_command(names: Sequence[str], device: str, runtime: str, setting: Setting) -> str:
    """The command that fits these spaces again."""
    return (
        f"hwbench fit {' '.join(f'--space {n}' for n in names)} --device {device} --runtime {runtime} "
        f"--batch {setting.batch} --threads {setting.threads} --dtype {setting.dtype}"
    )


def keep(fitted: Fitted, folder: Path) -> None:
    """Copies a predictor into the folder of a search that uses it: what it says later must be what it said then."""
    target = folder / KEPT / fitted.fingerprint
    if not (target / cards.CARD).exists():
        atomic_write(target / cards.ARRAYS, (fitted.folder / cards.ARRAYS).read_bytes())
        write_json(target / cards.CARD, fitted.card)


def kept(folder: Path, used: Mapping[str, Any], place: Workspace, device: str, runtime: str, setting: Setting) -> Fitted:
    """The predictor a search used, by its fingerprint: the search's own copy or, in folders of older versions, the stored one.

    Args:
        folder: Of the search.
        used: What the search says of it (`Fitted.about`); older versions state the fingerprint alone.
        place: Workspace.
        device: It predicts for.
        runtime: Likewise.
        setting: Likewise.

    Raises:
        UsageError: it is gone; another one would tell other numbers.
        DataError: the copy was edited.
    """
    asked = used["fingerprint"]
    copy = folder / KEPT / asked
    if (copy / cards.CARD).exists():
        card = read_card(copy)
        if fingerprint(card["statistics"]) != asked or card_sha256(card) != used.get("card_sha256", card_sha256(card)):
            raise DataError(
                f"{copy / cards.CARD} is not the predictor this search used (edited?). Search again in another --out."
            )
        return _open(copy, card, used.get("name", ""))
    for at, card in _stored(place, device, runtime, setting):
        if fingerprint(card["statistics"]) == asked:
            return _open(at, card)
    raise UsageError(
        f"The predictor {folder} was searched with ({asked}) is gone: it was fitted again since, and {folder} keeps no copy. "
        "Run: hwbench search with another --out"
    )


def read_card(folder: str | Path) -> dict[str, Any]:
    """A predictor's card, brought to the present version."""
    card = cards.read(folder)
    return _from_version_1(card) if card["schema"] == 1 else card


def _from_version_1(card: Mapping[str, Any]) -> dict[str, Any]:
    """Version 1 knew calibrated sums only, and stated neither coverage nor ceiling; its statistics stay as they are."""
    least = card["statistics"]["min"]
    return {
        **card,
        "kind": KIND,
        "data": {"file": card["lut"]["path"], "sha256": card["lut"]["sha256"], "rows": None, "networks": None},
        "features": sorted(least["state"]["coefficients"]),
        "errors": {"test": least["holdout"], "test_by_space": least["holdout_by_space"], "fit": least["fitted"]},
        **dict.fromkeys(("coverage", "noise_ceiling", "additivity", "fill")),
    }


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
    """The latency of every architecture of a file (or given as values), with its interval and coverage.

    Where no calibration saw the space, answers are uncertified: `certified` says so, and `predictor` what was asked.
    """
    check_statistic(statistic)
    if isinstance(arch, str | Path):
        architectures = read_architectures(arch, space)
    else:
        architectures = of_values(space, [arch] if isinstance(arch, dict) else list(arch))
    fitted = load(device, runtime, setting, workspace, space, uncertified=True)
    about = fitted.about(space, statistic)
    answers = []
    for values, column in zip(architectures.values, architectures.population.T, strict=True):
        workload = lowering.lower(architectures.space, column)
        found = fitted.predict(workload, statistic, space)
        answers.append(
            {
                "architecture": values,
                "latency_ms": found.latency_ms,
                "upper_ms": found.upper_ms,
                "low_ms": found.low_ms,
                "high_ms": found.high_ms,
                "statistic": statistic,
                "coverage": found.coverage,
                "certified": found.certified,
                "predictor": about,
                "device": fitted.card["device"],
                "runtime": runtime,
                "setting": setting.key,
                "source": found.source,
                "ops_ms": dict(found.ops_ms),
            }
        )
    return answers
