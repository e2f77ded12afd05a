"""Fits a predictor of networks on a few measured ones, judges it on others, and keeps it with its card.

hwbench fit --space autoformer-tiny --space bert        one calibration for all of them
hwbench fit --space autoformer-tiny --stored            the same from stored measurements only

Errors and intervals are stated on networks it was not fitted on. Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, registry, stats
from hwbench.core.errors import UsageError
from hwbench.core.progress import Tick, no_tick, step
from hwbench.core.workspace import Workspace
from hwbench.device.target import Target
from hwbench.lut import latency
from hwbench.lut import networks as lut_networks
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Workload
from hwbench.network.op import base as ops
from hwbench.network.reference import Reference
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import additivity
from hwbench.predictor import card as cards
from hwbench.predictor.aggregator.base import FILLED, Aggregator, pack, sum_ops
from hwbench.predictor.baselines import calibrated_baselines
from hwbench.predictor.card_types import SUM, SumCard
from hwbench.predictor.op_latency import OpModel
from hwbench.predictor.space_latency import Fitted, fit_command, predictor_name, rows_of
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.profiler.policy import Policy
from hwbench.space import lowering, slots
from hwbench.space.architectures import Architectures
from hwbench.space.sample import sample

AUTO = "auto"
"""The predictor the additivity test picks."""
HOLDOUT_SEED_OFFSET = 1_000_003
"""Held-out networks come from another seed than the fitted ones."""
LEAST_LEFT_OUT = 4
"""A calibration takes 4 networks, so one can be left out of more than that."""


@registry.takes(space="space", runtime="runtime", predictor="aggregator")
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
    target = Target.of(device, runtime, setting, workspace)
    table = Lut.of(target, names)
    table.require_timed()
    training, heldout = calibration_sets(names, networks, holdout, seed)
    rows_ms, fill = complete_rows(table, setting, names)
    _require_rows([*training, *heldout], rows_ms, table, target)
    measured = networks_of([*training, *heldout], target, stored, policy, tick)
    document, predictors, arrays = _fit_all(predictor, _Networks(rows_ms, training, heldout, measured))
    filled = sorted(fill["keys"]) if fill else []
    if filled:
        arrays[FILLED] = np.array(filled)
    card = {
        "kind": SUM,
        **provenance(target, table, names, (networks, holdout), seed),
        "data": {**cards.data_of(table.path, len(rows_ms) - len(filled)), "networks": len(measured)},
        **_summary(document["statistics"]),
        **document,
        "fill": {k: v for k, v in fill.items() if k != "keys"} if fill else None,
        "lut": {
            "path": table.path.name,
            "sha256": cards.data_of(table.path, 0)["sha256"],
            "rows_by_space": {name: rows_of(name, table, setting) for name in names},
        },
        "rebuild": fit_command(target, names, predictor=predictor, networks=networks, holdout=holdout, seed=seed, stored=True),
    }
    folder = target.workspace.path("predictors", target.device, predictor_name(target, names))
    name = f"{target.device}/{folder.name}"
    return Fitted(folder, cards.write(folder, SumCard, card, arrays), predictors, target, name, frozenset(filled))


def _require_rows(sets: Sequence[Architectures], rows_ms: Mapping[str, float], table: Lut, target: Target) -> None:
    """Raises MissingOps if an op of these networks has no latency."""
    needed = {s for a in sets for network in lowering.networks(a.space, a.population) for s in network.specs}
    missing = sorted(spec.key for spec in needed if spec.key not in rows_ms)
    if missing:
        raise luts.missing_ops(missing, target, table.path, list(dict.fromkeys(a.space.name for a in sets)))


def networks_of(
    sets: Sequence[Architectures],
    target: Target,
    stored: bool,
    policy: Policy = NETWORK_POLICY,
    tick: Tick = no_tick,
    references: Sequence[Reference] = (),
) -> dict[str, dict[str, Any]]:
    """Key -> row of networks, measured now or taken from the stored table of networks."""
    if stored:
        return stored_networks([*(key for a in sets for key in a.keys), *(each.key for each in references)], target)
    return measure_networks(sets, target, policy, tick, references)


def _summary(statistics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What every card states, from its statistics: the terms that are used, and how wrong the least latency is."""
    least = statistics["min"]
    terms = {term for part in statistics.values() for term in part["state"].get("coefficients", part["state"])}
    return {
        "features": sorted(terms),
        "errors": {"test": least["holdout"], "test_by_space": least["holdout_by_space"], "fit": least["fitted"]},
        "coverage": least["coverage"],
        "noise_ceiling": least["noise_ceiling"],
    }


def provenance(target: Target, table: Lut, names: Sequence[str], networks: tuple[int, int], seed: int) -> dict[str, Any]:
    """What the card of any predictor of networks says of where its measurements come from; `networks`: (fit, holdout)."""
    return {
        "device": target.device,
        "runtime": target.runtime,
        "setting": asdict(target.setting),
        "spaces": list(names),
        "networks_per_space": dict(zip(("fit", "holdout"), networks, strict=True)),
        "seed": seed,
        "environment": dict(table.environment.values),
    }


def refit(place: Workspace, folder: str | Path) -> Fitted:
    """Fits a stored predictor again from the measurements it rests on, without measuring; writes to the workspace.

    Args:
        place: Workspace; tables it lacks are taken from the shipped ones.
        folder: Of the predictor.
    """
    card = cards.read_as(SumCard, folder, "only sums over ops are fitted again from networks.")
    return fit(
        card.spaces,
        device=card.device,
        runtime=card.runtime,
        setting=card.setting,
        workspace=place.root,
        predictor=AUTO if card.additivity else card.predictor,
        networks=card.networks_per_space.fit,
        holdout=card.networks_per_space.holdout,
        seed=card.seed,
        stored=True,
    )


def complete_rows(table: Lut, setting: Setting, space_names: Sequence[str]) -> tuple[dict[str, float], dict[str, Any]]:
    """(latency of every op by key, what was filled in: {} if all ops of the spaces were measured).

    Ops the model of the table's rows refuses (groups never measured, far outside) have no latency. Those with a number format
    of their own are taken from the rows of that format, and never filled in.
    """
    wanted = {spec for name in space_names for spec in slots.distinct_specs(registry.get("space", name))}
    own = [spec for spec in wanted if spec.dtype is not None]
    rows_ms = {**table.values(setting), **table.of_nodes(own, setting)}
    lacking = sorted((spec for spec in wanted if spec.dtype is None and spec.key not in rows_ms), key=lambda spec: spec.key)
    kinds = {spec.op for spec in lacking}
    alike = [spec for spec in map(OpSpec.parse, rows_ms) if spec.op in kinds and spec.dtype is None]
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


def stored_networks(keys: Sequence[str], target: Target) -> dict[str, dict[str, Any]]:
    """Key -> row of networks measured before.

    Raises:
        UsageError: some were not; the message says how many and what would measure them.
    """
    path = lut_networks.find_networks(target)
    found = lut_networks.read_networks(path)[0] if path is not None else []
    rows = {r["key"]: r for r in found if luts.setting_of(r) == target.setting and r["latency_min_ms"] is not None}
    missing = [key for key in keys if key not in rows]
    if missing:
        raise UsageError(
            f"{len(missing)} of {len(keys)} networks were not measured yet on {target.name} (first: {missing[0]}). "
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


@dataclass(frozen=True)
class _Networks:
    """Measured networks: those to fit on, those to judge on, and what sums of their ops are made of."""

    rows_ms: Mapping[str, float]
    """Latency of every op."""
    training: Sequence[Architectures]
    heldout: Sequence[Architectures]
    rows: Mapping[str, Mapping[str, Any]]
    """Of the networks, by key."""

    @cached_property
    def loads(self) -> dict[str, Workload]:
        """Every network by key."""
        sets = (*self.training, *self.heldout)
        return {key: lowering.lower(a.space, c) for a in sets for key, c in zip(a.keys, a.population.T, strict=True)}

    @cached_property
    def fit_keys(self) -> list[str]:
        """Networks to fit on."""
        return [key for a in self.training for key in a.keys]

    @cached_property
    def holdout_keys(self) -> list[str]:
        """Networks to judge on."""
        return [key for a in self.heldout for key in a.keys]

    @property
    def fit_loads(self) -> list[Workload]:
        """The networks to fit on."""
        return [self.loads[key] for key in self.fit_keys]

    def measured(self, statistic: str) -> dict[str, float]:
        """What was measured of every network."""
        return {key: float(self.rows[key][luts.STATISTICS[statistic]]) for key in self.loads}

    def pairs(self, name: str, guess: Mapping[str, float], truth: Mapping[str, float]) -> list[np.ndarray]:
        """(predicted, measured) of networks the fit did not see; where those are few, also of fitted ones left out in turn."""
        found = [_values(guess, self.holdout_keys), _values(truth, self.holdout_keys)]
        few = len(self.holdout_keys) < conformal.least_pairs(conformal.COVERAGE)
        if few and len(self.fit_keys) > LEAST_LEFT_OUT:
            fitted = _values(truth, self.fit_keys)
            left_out = additivity.left_out(name, self.rows_ms, self.fit_loads, fitted)
            found = [np.append(found[0], left_out), np.append(found[1], fitted)]
        return found


@step("calibrating")
def _fit_all(asked: str, networks: _Networks) -> tuple[dict[str, Any], dict[str, Aggregator], dict[str, np.ndarray]]:
    """Both statistics: (what the card says of them, the aggregators, their arrays)."""
    least = _values(networks.measured("min"), networks.fit_keys)
    chosen = additivity.choose(networks.rows_ms, networks.fit_loads, least) if asked == AUTO else None
    name = chosen["choice"] if chosen else asked
    document: dict[str, Any] = {"predictor": name, "additivity": chosen}
    document.update(fit_networks=networks.fit_keys, holdout_networks=networks.holdout_keys, statistics={})
    predictors: dict[str, Aggregator] = {}
    states: dict[str, dict[str, np.ndarray]] = {}
    for statistic in luts.STATISTICS:
        predictor: Aggregator = registry.make("aggregator", name)
        predictor.fit(networks.rows_ms, networks.fit_loads, _values(networks.measured(statistic), networks.fit_keys))
        values, states[statistic] = predictor.state()
        document["statistics"][statistic] = {"state": values, **_judged(name, predictor, networks, statistic)}
        predictors[statistic] = predictor
    document["noise"] = latency.noise([networks.rows[k] for k in networks.loads])
    return document, predictors, pack(states)


def _judged(name: str, predictor: Aggregator, networks: _Networks, statistic: str) -> dict[str, Any]:
    """A fitted aggregator's held-out errors and intervals, and baselines calibrated on the same networks."""
    truth = networks.measured(statistic)
    guess = {key: sum_ops(predictor, workload) for key, workload in networks.loads.items()}

    def errors(keys: Sequence[str]) -> dict[str, float]:
        return asdict(stats.accuracy(_values(guess, keys), _values(truth, keys)))

    pairs = networks.pairs(name, guess, truth)
    band, how = conformal.interval(*pairs)
    return {
        "band": {**band.state(), "how": how},
        "band_by_space": _bands_by_space(networks.heldout, guess, truth),
        "margin": band.margin,
        "coverage": conformal.coverage_evidence(*pairs),
        "noise_ceiling": noise_ceiling([networks.rows[k] for k in networks.loads], statistic),
        "holdout": errors(networks.holdout_keys),
        "holdout_by_space": {a.space.name: errors(a.keys) for a in networks.heldout},
        "fitted": errors(networks.fit_keys),
        "baselines": calibrated_baselines(networks.loads, networks.fit_keys, truth, networks.rows_ms),
    }


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


def noise_ceiling(rows: Sequence[Mapping[str, Any]], statistic: str) -> float | None:
    """Mean absolute relative error a perfect predictor would have, because measurements do not repeat; None if unknown.

    Three processes of a network spread by s (the median over networks counts: a neighbour's visit inflates single ones).
    If levels are normal, s is 1.69 standard deviations on average, and the lowest of three lies 0.60 of one from its usual
    place, the median of three 0.54.
    """
    column, share = {"min": ("min_spread", 0.60 / 1.69), "p50": ("median_spread", 0.54 / 1.69)}[statistic]
    known = [row[column] for row in rows if row[column] is not None and row[column] == row[column]]
    return share * float(np.median(known)) if known else None
