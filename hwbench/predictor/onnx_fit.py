"""Fits the predictor of any ONNX model: a model of single kernels, and whole networks that calibrate their sum.

hwbench profile --kernels 1900                       measures the kernels models are made of (hwbench.profiler.kernel_grid)
hwbench fit --kernels --space bert --space nasvit    a model of their latencies, calibrated on whole networks

Intervals rest on networks of families the calibration did not see (each space left out in turn), because a model someone
else wrote is of no known family either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, registry, stats
from hwbench.core.command import command
from hwbench.core.errors import MissingOps, UsageError
from hwbench.core.progress import Tick, no_tick
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import card as cards
from hwbench.predictor import fit, space_latency
from hwbench.predictor.card_types import ONNX, OnnxCard
from hwbench.predictor.kernel_bound import Bound
from hwbench.predictor.kernel_prices import (
    EXTRAPOLATION,
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
from hwbench.space import lowering
from hwbench.space.architectures import Architectures

MOST_EACH = 16
"""Networks of each set and space that are used: more take time to detect kernels in and tell nothing new of three weights."""


@registry.takes(space="space", runtime="runtime")
def fit_models(
    space: str | Sequence[str],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    networks: int = 16,
    holdout: int = 16,
    seed: int = 0,
    stored: bool = False,
    tick: Tick = no_tick,
) -> OnnxCard:
    """Fits the prices of kernels and their calibration; returns the card.

    The networks are those of `hwbench fit` with the same numbers; kernels are detected in the first MOST_EACH of each set.

    Args:
        space: Spaces whose networks calibrate; two or more, so that one can be left out.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, threads.
        workspace: Where table and networks are and the predictor goes.
        networks: Networks to fit, per space.
        holdout: Networks to state errors on, per space; never fitted on.
        seed: Draws both sets.
        stored: Measure nothing: all networks must be in the stored table of networks.
        tick: Progress.
    """
    names = [space] if isinstance(space, str) else list(space)
    if len(names) < 2:
        raise UsageError("Calibrating kernels needs at least two --space, so that one can be left out to test the other.")
    target = Target.of(device, runtime, setting, workspace)
    table = Lut.of(target, names)
    prices = _prices(table, target)
    drawn = fit.calibration_sets(names, networks, holdout, seed)
    training, heldout = ([Architectures(a.space, a.population[:, :MOST_EACH]) for a in each] for each in drawn)
    measured = fit.networks_of([*training, *heldout], target, stored, tick=tick)
    kernels = {key: specs for each in (*training, *heldout) for key, specs in _kernels(each, target).items()}
    _require_prices(kernels, prices, target)
    sets = _Sets(training, heldout, {key: terms_of(specs, prices) for key, specs in kernels.items()}, measured)
    document = {statistic: sets.judged(column) for statistic, column in luts.STATISTICS.items()}
    values, arrays = prices.model.state()
    card = {
        "kind": ONNX,
        **fit.provenance(target, table, names, (networks, holdout), seed),
        "data": {**cards.data_of(table.path, len(prices.rows_ms)), "networks": len(measured)},
        "features": list(TERMS),
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
            target, names, kernels=True, networks=networks, holdout=holdout, seed=seed, stored=True
        ),
    }
    return cards.write(target.workspace.path("predictors", target.device, folder_name(target)), OnnxCard, card, arrays)


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
        raise UsageError(f"{table.path} has no kernels at {target.setting.key}. Run: {profile}")
    specs, ms = [OpSpec.parse(key) for key in rows_ms], np.array(list(rows_ms.values()))
    model = OpModel(reach=EXTRAPOLATION)
    model.fit(specs, ms, setting)
    caches = devices.get(target.device, target.workspace.root).caches_bytes
    bound = Bound.fit([known(spec, setting) for spec in specs], ms)
    return Prices(model, bound, rows_ms, setting, stream_ms_per_mb(rows_ms), max(caches.values(), default=0))


def _kernels(architectures: Architectures, target: Target) -> dict[str, list[OpSpec]]:
    """The kernels of every network, as its exported file would have them."""
    networks = lowering.networks(architectures.space, architectures.population)
    found = zip(architectures.keys, network_kernels(networks, target), strict=True)
    return {key: [kernel.spec for kernel in each.kernels if kernel.spec is not None] for key, each in found}


def _require_prices(kernels: Mapping[str, Sequence[OpSpec]], prices: Prices, target: Target) -> None:
    """Raises MissingOps if much of a network is like nothing that was measured: what is bounded cannot calibrate."""
    if missing := sorted({key for each in kernels.values() for key in prices.too_little_known(each)}):
        raise MissingOps(
            f"{len(missing)} kernels of the calibration networks are like none measured at {target.setting.key}; first: "
            f"{missing[0]}. Run: {command('profile', kernels=KERNELS, **target.options)}",
            missing,
        )


@dataclass(frozen=True)
class _Sets:
    """Measured networks, those to fit on and those to judge on."""

    training: Sequence[Architectures]
    heldout: Sequence[Architectures]
    terms: Mapping[str, Terms]
    rows: Mapping[str, Mapping[str, Any]]

    def judged(self, column: str) -> dict[str, Any]:
        """Weights, errors and interval for one statistic."""
        fit_keys, test_keys = ([key for a in sets for key in a.keys] for sets in (self.training, self.heldout))
        weights = self._calibrated(fit_keys, column)
        unseen = [self._predicted(self._calibrated(self._others(i), column), a.keys) for i, a in enumerate(self.heldout)]
        predicted, truth = np.concatenate(unseen), self._measured(test_keys, column)
        # Doubt of a family never seen, beside that of the kernels' prices.
        family = float(np.sqrt(np.mean(np.log(truth / predicted) ** 2)))
        doubt = np.hypot([self.terms[k].doubt_ms for k in test_keys] / predicted, family)
        band, how = conformal.interval(predicted, truth, doubt)
        return {
            "weights": dict(zip(TERMS, weights.tolist(), strict=True)),
            "family_doubt": family,
            "band": {**band.state(), "how": how},
            "coverage": conformal.coverage_evidence(predicted, truth),
            "holdout": asdict(stats.accuracy(self._predicted(weights, test_keys), truth)),
            "unseen_family": {
                a.space.name: asdict(stats.accuracy(each, self._measured(a.keys, column)))
                for a, each in zip(self.heldout, unseen, strict=True)
            },
        }

    def _others(self, left_out: int) -> list[str]:
        """Networks to fit on, but those of one space."""
        return [key for i, a in enumerate(self.training) if i != left_out for key in a.keys]

    def _calibrated(self, keys: Sequence[str], column: str) -> np.ndarray:
        return calibrate([self.terms[k] for k in keys], self._measured(keys, column))

    def _measured(self, keys: Sequence[str], column: str) -> np.ndarray:
        return np.array([float(self.rows[k][column]) for k in keys])

    def _predicted(self, weights: np.ndarray, keys: Sequence[str]) -> np.ndarray:
        return np.array([self.terms[k].values @ weights + self.terms[k].reading_ms for k in keys])
