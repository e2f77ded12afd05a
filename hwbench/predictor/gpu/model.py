"""GPU operators in use: a fitted model, stored and restored, asked for GPUs with and without measured ops.

    hwbench gpu predict --predictor predictors/gpu/neusight-ops --gpu nvidia-l4 --input ops.parquet --output out.parquet

Physics, then trees, then (with some measured ops) a Gaussian process over the rest; `fit.py` says why. Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, openmp
from hwbench.core.command import command, form
from hwbench.core.errors import UsageError
from hwbench.core.files import fingerprint
from hwbench.core.gaussian_process import Factor, Posterior
from hwbench.core.typed_json import encode
from hwbench.predictor import card
from hwbench.predictor.base import Facts
from hwbench.predictor.card_types import GPU, GpuCard
from hwbench.predictor.gpu.datasheet import FAMILIES, Gpu, Ops, Sheet, sheet_of
from hwbench.predictor.gpu.roofline import physics, places_of, tree_features

Array = np.ndarray
FARTHEST = 1.5
"""Residuals (log) beyond this are not believed by the Gaussian process."""


@dataclass(frozen=True)
class Core:
    """Layers 1 and 2, per family and kind."""

    theta: Mapping[str, Array]
    trees: Mapping[str, str]
    level: Mapping[str, float]
    """Median over chips of a kind's level against the physics."""


@dataclass(frozen=True)
class Evidence:
    """Measured ops of the GPU a model was adapted to: what the Gaussian process knows of one family."""

    kind: Array
    places: Array
    weights: Array
    factor: Array
    """Lower Cholesky factor of their covariance."""


@dataclass(frozen=True)
class GpuModel:
    """Latency of ops on any GPU with a data sheet; after `adapt` on one GPU only."""

    precision: str
    known: tuple[str, ...]
    core: Core
    belief: Mapping[str, Sequence[float]]
    """How much of the trees and of its level against the physics a kind believes, 0 to 1 each."""
    spread: Mapping[str, float]
    """How far (root mean square of logarithms) left-out GPUs were off, by kind."""
    process: Mapping[str, Array]
    """Of each family: level, shape, noise (in spreads), length, likeness of two kinds."""
    zero_bands: Mapping[str, conformal.Band]
    adapted_bands: Mapping[str, conformal.Band]
    """Of each kind, for a GPU never measured and for one with MEASURED ops."""
    judged: Mapping[str, Any]
    """Errors and coverage on every chip, left out in turn: what its card states."""
    adapted_to: str = ""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds it was fitted on."""
        return tuple(self.belief)

    def predict(self, gpu: Gpu, ops: Ops) -> tuple[Array, Array]:
        """(latency in ms, relative doubt) of every op; `bounds` makes an interval of both.

        Raises:
            UsageError: a kind it was not fitted on, or another GPU than it was adapted to.
        """
        if self.adapted_to not in ("", gpu.name):
            raise UsageError(f"This predictor was adapted to {self.adapted_to}, not to {gpu.name}; adapt the one before.")
        self._check(ops)
        ms, doubt = np.zeros(len(ops)), np.zeros(len(ops))
        for family, index, part, places, log_ms in self._each(gpu, ops):
            spread = of_kind(part.kind, self.spread)
            shift, left = np.zeros(len(part)), np.ones(len(part))
            if family in self.evidence:
                shift, left = ask(self.process[family], self.evidence[family], part.kind, places)
            ms[index] = np.exp(log_ms + shift * spread)
            doubt[index] = left * spread
        return ms, doubt

    def bounds(self, gpu: Gpu, ops: Ops) -> tuple[Array, Array]:
        """(low, high) in ms at the coverage it was fitted for."""
        ms, doubt = self.predict(gpu, ops)
        low, high = np.zeros(len(ops)), np.zeros(len(ops))
        bands = self.adapted_bands if self.adapted_to else self.zero_bands
        for kind in set(map(str, ops.kind)):
            at = ops.kind == kind
            low[at], high[at] = bands[kind].bounds(ms[at], doubt[at])
        return low, high

    def adapt(self, gpu: Gpu, ops: Ops, ms: Array) -> GpuModel:
        """The same model having seen some measured ops of one GPU.

        Raises:
            UsageError: nothing measured, a latency that is not positive, or a kind it was not fitted on.
        """
        self._check(ops)
        if not len(ops) or not (np.asarray(ms) > 0).all():
            raise UsageError(f"Adapting to {gpu.name} needs measured ops with positive latencies; got {len(ops)} rows.")
        fresh = replace(self, adapted_to="", evidence={})
        seen: dict[str, Evidence] = {}
        for family, index, part, places, log_ms in fresh._each(gpu, ops):
            off = np.clip(np.log(np.asarray(ms, float)[index]) - log_ms, -FARTHEST, FARTHEST) / of_kind(part.kind, self.spread)
            seen[family] = learn(self.process[family], part.kind, places, off)
        return replace(fresh, adapted_to=gpu.name, evidence=seen)

    def _check(self, ops: Ops) -> None:
        for kind in sorted(set(ops.kind) - set(self.kinds)):
            raise UsageError(f"This predictor was not fitted on {kind} ops; it knows {', '.join(self.kinds)}.")

    def _each(self, gpu: Gpu, ops: Ops) -> Iterator[tuple[str, Array, Ops, Array, Array]]:
        """(family, rows, their ops, places, log ms of layers 1 and 2)."""
        for family, kinds in FAMILIES.items():
            index = np.flatnonzero(np.isin(ops.kind, kinds))
            if len(index):
                part = ops.take(index)
                sheet = sheet_of(np.array([gpu.name] * len(part)), {gpu.name: gpu}, self.precision)
                log_ms, rest, places = layers(self.core, family, part, sheet, self.precision)
                yield family, index, part, places, log_ms + (of_kind(part.kind, self.belief) * rest).sum(1)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(values, arrays) from which `restore` makes the same model."""
        values = {
            "precision": self.precision,
            "known": list(self.known),
            "level": dict(self.core.level),
            "belief": {kind: list(shares) for kind, shares in self.belief.items()},
            "spread": dict(self.spread),
            "zero_bands": {kind: band.state() for kind, band in self.zero_bands.items()},
            "adapted_bands": {kind: band.state() for kind, band in self.adapted_bands.items()},
            "judged": dict(self.judged),
            "adapted_to": self.adapted_to,
        }
        arrays: dict[str, Array] = {}
        for family in self.core.theta:
            arrays[f"{family}.theta"] = self.core.theta[family]
            arrays[f"{family}.trees"] = np.frombuffer(self.core.trees[family].encode(), np.uint8)
            arrays[f"{family}.process"] = self.process[family]
        for family, seen in self.evidence.items():
            arrays |= {f"{family}.evidence.{name}": getattr(seen, name) for name in ("kind", "places", "weights", "factor")}
        return values, arrays


def restore(values: Mapping[str, Any], arrays: Mapping[str, Array]) -> GpuModel:
    """The model a state was taken of."""
    families = [family for family in FAMILIES if f"{family}.theta" in arrays]
    names = ("kind", "places", "weights", "factor")
    return GpuModel(
        precision=values["precision"],
        known=tuple(values["known"]),
        core=Core(
            theta={family: arrays[f"{family}.theta"] for family in families},
            trees={family: arrays[f"{family}.trees"].tobytes().decode() for family in families},
            level=values["level"],
        ),
        belief=values["belief"],
        spread=values["spread"],
        process={family: arrays[f"{family}.process"] for family in families},
        zero_bands={kind: conformal.Band(**band) for kind, band in values["zero_bands"].items()},
        adapted_bands={kind: conformal.Band(**band) for kind, band in values["adapted_bands"].items()},
        judged=values["judged"],
        adapted_to=values["adapted_to"],
        evidence={
            family: Evidence(*(arrays[f"{family}.evidence.{name}"] for name in names))
            for family in families
            if f"{family}.evidence.kind" in arrays
        },
    )


def load(folder: str | Path) -> GpuModel:
    """A stored predictor.

    Raises:
        DataError: the card belongs to another kind of predictor, or its arrays were edited.
    """
    stored = _card(folder)
    return restore(stored.state, card.read_arrays(folder, stored))


def _card(folder: str | Path) -> GpuCard:
    again = command("gpu fit", tables="DIR", out="predictors/gpu/MINE")
    return card.read_as(GpuCard, folder, f"one of GPU operators is asked; fit one, {form(again)}")


def facts(folder: str | Path) -> Facts:
    """What every use of a stored predictor says; its error is the mean over kinds of operators and GPUs left out in turn."""
    stored = _card(folder)
    left_out = [error for chips in stored.errors.get("zero_shot", {}).values() for error in chips.values()]
    at = Path(folder).resolve()
    return Facts(
        name=f"{at.parent.name}/{at.name}",
        predictor=GPU,
        spaces=(),
        fitted_at=stored.fitted_at,
        mean_abs_error=float(np.mean(left_out)) if left_out else None,
        networks=len({name for chips in stored.errors.get("zero_shot", {}).values() for name in chips}),
        certified=False,
        fingerprint=fingerprint([stored.arrays_sha256, encode(stored.state)]),
        card_sha256=card.sha256_of(stored),
    )


def of_kind(kind: Array, values: Mapping[str, Any]) -> Array:
    """The value of each op's kind, in an array."""
    names, at = np.unique(kind, return_inverse=True)
    return np.array([values[str(name)] for name in names], float)[at]


@lru_cache(maxsize=64)
def booster(text: str) -> Any:
    """The trees of a stored text."""
    return openmp.lightgbm().Booster(model_str=text)


def layers(core: Core, family: str, ops: Ops, sheet: Sheet, precision: str) -> tuple[Array, Array, Array]:
    """(log ms of the physics; what trees and levels would add, two columns; places)."""
    parts = physics(family, core.theta[family], ops, sheet, precision)
    trees = booster(core.trees[family]).predict(tree_features(family, ops, sheet, parts), num_threads=1)
    rest = np.column_stack([trees, of_kind(ops.kind, core.level)])
    return np.log(parts.ms), rest, places_of(family, ops, sheet, parts)


def covariance_of(process: Array, kind_a: Array, places_a: Array, kind_b: Array, places_b: Array) -> Array:
    """Of how far off two sets of ops are, before noise."""
    level, shape, _, length, likeness = process
    squared = ((places_a[:, None] - places_b[None]) ** 2).sum(-1)
    alike = np.where(kind_a[:, None] == kind_b[None], 1.0, likeness)
    return np.asarray(alike * (level**2 + shape**2 * np.exp(-0.5 * squared / length**2)))


def conditioned(process: Array, kind: Array, places: Array, off: Array) -> Posterior:
    """The process after seeing how far off measured ops are."""
    return Posterior(Factor(covariance_of(process, kind, places, kind, places), process[2] ** 2), off)


def learn(process: Array, kind: Array, places: Array, off: Array) -> Evidence:
    """What measured ops of a GPU say, as it is stored."""
    posterior = conditioned(process, kind, places, off)
    return Evidence(kind, places, posterior.weights, posterior.factor.lower)


def ask(process: Array, seen: Evidence, kind: Array, places: Array) -> tuple[Array, Array]:
    """(shift, standard deviation with noise), in spreads."""
    across = covariance_of(process, kind, places, seen.kind, seen.places)
    variance = Factor.restored(seen.factor).variance(process[0] ** 2 + process[1] ** 2, across.T)
    return across @ seen.weights, np.sqrt(np.maximum(variance, 0.0) + process[2] ** 2)
