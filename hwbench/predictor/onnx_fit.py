"""Fits the predictor of any ONNX model: a model of single kernels, and whole networks that calibrate their sum.

hwbench profile --kernels 1850      measures the kernels models are made of (hwbench.profiler.kernel_grid)
hwbench fit --kernels               a model of their latencies, calibrated on whole networks of many kinds

The networks are reference models of three dozen families (hwbench.network.reference), and those of spaces where asked for.
Errors and intervals rest on families the calibration did not see (each left out in turn), because a model someone else wrote
is of no known family either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, registry, stats
from hwbench.core.command import command, hint
from hwbench.core.errors import MissingOps, UsageError
from hwbench.core.files import scratch_folder
from hwbench.core.progress import Tick, no_tick, step
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network import reference
from hwbench.network.reference import Reference
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import card as cards
from hwbench.predictor import fit, space_latency
from hwbench.predictor.card_types import ONNX, OnnxCard
from hwbench.predictor.kernel_bound import Bound
from hwbench.predictor.kernel_prices import (
    EXTRAPOLATION,
    FEATURES,
    TERMS,
    Prices,
    Terms,
    calibrate,
    kernel_rows,
    kernel_setting,
    stream_ms_per_mb,
    terms_of,
)
from hwbench.predictor.onnx_latency import KERNELS, folder_name, network_kernels
from hwbench.predictor.op_latency import OpModel, known
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_detection import DetectedKernels
from hwbench.space import lowering
from hwbench.space.architectures import Architectures

MOST_EACH = 16
"""Networks of each set and space that are used: more take time to detect kernels in and tell nothing new of a few weights."""
MOST_JUDGED = 3
"""Networks of one family that an interval rests on: they err alike, and the next model is of another family. More only where
families are so few that no interval could be told."""


@registry.takes(space="space", runtime="runtime")
def fit_models(
    space: str | Sequence[str] = (),
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    networks: int = 16,
    holdout: int = 16,
    seed: int = 0,
    stored: bool = False,
    tick: Tick = no_tick,
    references: bool = True,
) -> OnnxCard:
    """Fits the prices of kernels and their calibration; returns the card.

    The spaces' networks are those of `hwbench fit` with the same numbers; kernels are detected in the first MOST_EACH of each
    set.

    Args:
        space: Spaces whose networks calibrate, too.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, threads.
        workspace: Where table and networks are and the predictor goes.
        networks: Networks to fit, per space.
        holdout: Networks to state errors on, per space; never fitted on.
        seed: Draws both sets.
        stored: Measure nothing: all networks must be in the stored table of networks.
        tick: Progress.
        references: Whether reference models calibrate; they have one sample and are of fp32 or int8 by themselves.
    """
    names = [space] if isinstance(space, str) else list(space)
    target = Target.of(device, runtime, setting, workspace)
    _check(names, references, target)
    table = Lut.of(target, names)
    prices = _prices(table, target)
    drawn = fit.calibration_sets(names, networks, holdout, seed)
    training, heldout = ([Architectures(a.space, a.population[:, :MOST_EACH]) for a in each] for each in drawn)
    known_models = reference.references() if references else ()
    measured = fit.networks_of([*training, *heldout], target, stored, tick=tick, references=known_models)
    kernels = {key: specs for each in (*training, *heldout) for key, specs in _kernels(each, target).items()}
    kernels |= _reference_kernels(known_models, target)
    _require_prices(kernels, prices, target)
    families = _Families(
        {a.space.name: a.keys for a in training} | _by_family(known_models),
        {a.space.name: a.keys for a in heldout} | _by_family(known_models),
        {key: terms_of(specs, prices) for key, specs in kernels.items()},
        measured,
    )
    with step("calibrating"):
        document = {statistic: families.judged(column) for statistic, column in luts.STATISTICS.items()}
    values, arrays = prices.model.state()
    card = {
        "kind": ONNX,
        **fit.provenance(target, table, names, (networks, holdout), seed),
        "data": {**cards.data_of(table.path, len(prices.rows_ms)), "networks": len(measured)},
        "features": list(FEATURES),
        "errors": {"test": document["min"]["holdout"], "unseen_family": document["min"]["unseen_family"]},
        "coverage": document["min"]["coverage"],
        "noise_ceiling": fit.noise_ceiling([measured[k] for k in kernels], "min"),
        "statistics": document,
        "kernels": {
            "rows": len(prices.rows_ms),
            "error_by_group": prices.model.errors,
            "stream_ms_per_mb": prices.stream_ms_per_mb,
            "cache_bytes": prices.cache_bytes,
            "state": values,
            "bound": prices.bound.state(),
            "scenario": prices.setting.scenario,
        },
        "rebuild": space_latency.fit_command(
            target,
            names,
            kernels=True,
            networks=networks,
            holdout=holdout,
            seed=seed,
            stored=True,
            no_references=not references,
        ),
    }
    return cards.write(target.workspace.path("predictors", target.device, folder_name(target)), OnnxCard, card, arrays)


def _check(names: Sequence[str], references: bool, target: Target) -> None:
    """Raises UsageError where nothing was measured, nothing could be left out, or reference models cannot be run as asked."""
    if not references and len(names) < 2:
        raise UsageError("Without reference models, calibrating kernels needs two --space or more: one is left out in turn.")
    if references and (target.setting.dtype != "fp32" or target.setting.batch != 1):
        raise UsageError(
            f"Reference models run one sample in their own number format, not {target.setting.key}; "
            "give --no-references and two --space or more."
        )
    try:
        luts.find_lut(target)
    except UsageError:  # which advises to profile a space: kernels are what is needed here
        profile = command("profile", kernels=KERNELS, **target.options)
        raise UsageError(f"No kernels of {target.name} were measured yet. {target.out_of_reach or hint(profile)}") from None


def _by_family(models: Sequence[Reference]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for model in models:
        found.setdefault(model.family, []).append(model.key)
    return found


def _prices(table: Lut, target: Target) -> Prices:
    """The table's kernels and a model of them.

    Raises:
        UsageError: the table has none; the message has the command that measures some.
    """
    setting = kernel_setting(target.setting)
    rows_ms = kernel_rows(table, setting)
    if not rows_ms:  # tables of older versions hold kernels measured alone
        setting = target.setting
        rows_ms = kernel_rows(table, setting)
    if not rows_ms:
        profile = command("profile", kernels=KERNELS, **target.options)
        raise UsageError(f"{table.path} has no kernels at {target.setting.key}. {target.out_of_reach or hint(profile)}")
    specs, ms = [OpSpec.parse(key) for key in rows_ms], np.array(list(rows_ms.values()))
    model = OpModel(reach=EXTRAPOLATION)
    model.fit(specs, ms, setting)
    caches = devices.get(target.device, target.workspace.root).caches_bytes
    bound = Bound.fit([known(spec, setting) for spec in specs], ms)
    return Prices(model, bound, rows_ms, setting, max(caches.values(), default=0), stream_ms_per_mb(rows_ms))


def _kernels(architectures: Architectures, target: Target) -> dict[str, list[OpSpec]]:
    """The kernels of every network, as its exported file would have them."""
    networks = lowering.networks(architectures.space, architectures.population)
    return dict(zip(architectures.keys, map(_stated, network_kernels(networks, target)), strict=True))


def _reference_kernels(models: Sequence[Reference], target: Target) -> dict[str, list[OpSpec]]:
    """The kernels of every reference model."""
    found = {}
    with scratch_folder() as folder, step("reference models") as tick:
        path = folder / "reference.onnx"
        for at, model in enumerate(models):
            tick(at, len(models))
            path.write_bytes(model.build().SerializeToString())
            found[model.key] = _stated(kernel_detection.detect(path, target.runtime, target.setting))
    return found


def _stated(detected: DetectedKernels) -> list[OpSpec]:
    return [spec for kernel in detected.kernels if (spec := kernel.spec) is not None for _ in range(kernel.times)]


def _require_prices(kernels: Mapping[str, Sequence[OpSpec]], prices: Prices, target: Target) -> None:
    """Raises MissingOps if much of a network is like nothing that was measured: what is bounded cannot calibrate."""
    if missing := sorted({key for each in kernels.values() for key in prices.too_little_known(each)}):
        raise MissingOps(
            f"{len(missing)} kernels of the calibration networks are like none measured at {target.setting.key}; first: "
            f"{missing[0]}. {hint(command('profile', kernels=KERNELS, **target.options))}",
            missing,
        )


@dataclass(frozen=True)
class _Families:
    """Measured networks by family: those to fit on, and those to judge on by a calibration that did not see the family."""

    training: Mapping[str, Sequence[str]]
    heldout: Mapping[str, Sequence[str]]
    terms: Mapping[str, Terms]
    rows: Mapping[str, Mapping[str, Any]]

    def judged(self, column: str) -> dict[str, Any]:
        """Weights, errors and interval for one statistic."""
        weights = self._calibrated(self.training, column)
        unseen = {
            name: self._predicted(self._calibrated(self._without(name), column), keys) for name, keys in self.heldout.items()
        }
        known_families = [key for name, keys in self.heldout.items() if keys is not self.training[name] for key in keys]
        each = max(MOST_JUDGED, -(-conformal.least_pairs(conformal.COVERAGE) // len(self.heldout)))
        kept = [(name, key, i) for name, keys in self.heldout.items() for i, key in enumerate(keys[:each])]
        predicted = np.array([unseen[name][i] for name, _, i in kept])
        truth = self._measured([key for _, key, _ in kept], column)
        # Doubt of a family never seen, beside that of the kernels' prices.
        own = np.array([self.terms[key].doubt_ms for _, key, _ in kept]) / predicted
        family = float(np.median(np.abs(np.log(truth / predicted))))
        band, how = conformal.interval(predicted, truth, np.hypot(own, family))
        everything = [key for keys in self.heldout.values() for key in keys]
        judged_known = known_families or everything
        return {
            "weights": dict(zip(TERMS, weights.tolist(), strict=True)),
            "family_doubt": family,
            "band": {**band.state(), "how": how.replace("networks not fitted on", "networks of families not fitted on")},
            "coverage": conformal.coverage_evidence(predicted, truth),
            "holdout": asdict(stats.accuracy(self._predicted(weights, judged_known), self._measured(judged_known, column))),
            "unseen_family": {
                name: asdict(stats.accuracy(unseen[name], self._measured(keys, column))) for name, keys in self.heldout.items()
            },
        }

    def _without(self, left_out: str) -> dict[str, Sequence[str]]:
        """Networks to fit on, but those of one family."""
        return {name: keys for name, keys in self.training.items() if name != left_out}

    def _calibrated(self, families: Mapping[str, Sequence[str]], column: str) -> np.ndarray:
        keys = [key for each in families.values() for key in each]
        counts = np.array([min(1.0, MOST_JUDGED / len(each)) for each in families.values() for _ in each])
        return calibrate([self.terms[key] for key in keys], self._measured(keys, column), counts)

    def _measured(self, keys: Sequence[str], column: str) -> np.ndarray:
        return np.array([float(self.rows[k][column]) for k in keys])

    def _predicted(self, weights: np.ndarray, keys: Sequence[str]) -> np.ndarray:
        return np.array([self.terms[k].values @ weights for k in keys])
