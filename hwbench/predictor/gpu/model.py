"""GPU operators in use: a fitted model, stored and restored, asked for GPUs with and without measured ops.

    hwbench predict --predictor gpu/neusight-ops --device nvidia-l4 --input ops.parquet --output out.parquet

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
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import fingerprint
from hwbench.core.typed_json import encode
from hwbench.predictor import card
from hwbench.predictor.base import Facts
from hwbench.predictor.card_types import GPU, GpuCard
from hwbench.predictor.gpu import outside
from hwbench.predictor.gpu.datasheet import FAMILIES, FORMAT, KINDS, Gpu, Ops, Sheet, label_of, labels, sheet_of
from hwbench.predictor.gpu.process import FARTHEST, Evidence, ask, learn
from hwbench.predictor.gpu.roofline import physics, places_of, tree_features

Array = np.ndarray


@dataclass(frozen=True)
class Core:
    """Layers 1 and 2, per family and label (a kind in a number format)."""

    theta: Mapping[str, Array]
    trees: Mapping[str, str]
    level: Mapping[str, float]
    """Median over generations of a label's level against the physics."""


@dataclass(frozen=True)
class EndToEnd:
    """What whole networks taught about sums of operators."""

    factor: float
    """A network over the sum of its operators: the median over generations left out."""
    band: conformal.Band
    judged: Mapping[str, Mapping[str, float]]
    """Error and coverage by generation, each calibrated and bounded by the others alone."""

    def state(self) -> dict[str, Any]:
        """As JSON values."""
        judged = {name: dict(each) for name, each in self.judged.items()}
        return {"factor": self.factor, "band": self.band.state(), "judged": judged}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> EndToEnd:
        """The inverse of `state`."""
        return cls(state["factor"], conformal.Band(**state["band"]), state["judged"])


@dataclass(frozen=True)
class GpuModel:
    """Latency of ops on any GPU with a data sheet; after `adapt` on one GPU only."""

    known: Mapping[str, Sequence[str]]
    """GPUs learnt from, by number format."""
    ranges: Mapping[str, outside.Range]
    """What their data sheets span, by number format."""
    core: Core
    belief: Mapping[str, Sequence[float]]
    """How much of the trees and of its level against the physics a label believes, 0 to 1 each."""
    spread: Mapping[str, float]
    """How far (root mean square of logarithms) left-out generations were off, by label."""
    process: Mapping[str, Array]
    """Of each family: see process.py."""
    zero_bands: Mapping[str, conformal.Band]
    adapted_bands: Mapping[str, conformal.Band]
    """Of each label, for a GPU never measured and for one with MEASURED ops."""
    judged: Mapping[str, Any]
    """Errors and coverage on every generation, left out in turn: what its card states."""
    end_to_end: EndToEnd | None = None
    """What whole networks taught; None where none were at hand."""
    adapted_to: str = ""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Kinds it was fitted on, with their number format where it is not fp32."""
        return tuple(self.belief)

    @property
    def formats(self) -> tuple[str, ...]:
        """Number formats in which every kind of operator was fitted: a network needs them all."""
        return tuple(name for name in self.known if all(label_of(kind, name) in self.belief for kind in KINDS))

    def outside(self, gpu: Gpu, precision: str = FORMAT) -> list[str]:
        """What of a data sheet lies outside those it learnt from, one line each; intervals are wider for it."""
        return [] if gpu.name in self.known[precision] else outside.sentences(gpu, precision, self.ranges[precision])

    def predict(self, gpu: Gpu, ops: Ops, precision: str = FORMAT, alone: bool = True) -> tuple[Array, Array]:
        """(latency in ms, relative doubt) of every op; `bounds` makes an interval of both.

        Args:
            gpu: Its data sheet.
            ops: What is asked.
            precision: Number format of all of them.
            alone: Each run by itself, as tables are measured; not so within a network, where the board does not rest.

        Raises:
            UsageError: a kind it was not fitted on, or another GPU than it was adapted to.
        """
        if self.adapted_to not in ("", gpu.name):
            raise UsageError(f"This predictor was adapted to {self.adapted_to}, not to {gpu.name}; adapt the one before.")
        self._check(ops, precision)
        ms, doubt = np.zeros(len(ops)), np.zeros(len(ops))
        factor = outside.wider(gpu, precision, self.ranges[precision])
        for family, index, label, places, log_ms in self._each(gpu, ops, precision, alone):
            spread = of_label(label, self.spread)
            shift, left = np.zeros(len(index)), np.full(len(index), factor)
            if family in self.evidence:
                shift, left = ask(self.process[family], self.evidence[family], label, places)
            ms[index] = np.exp(log_ms + shift * spread)
            doubt[index] = left * spread
        return ms, doubt

    def bounds(self, gpu: Gpu, ops: Ops, precision: str = FORMAT, alone: bool = True) -> tuple[Array, Array]:
        """(low, high) in ms at the coverage it was fitted for."""
        ms, doubt = self.predict(gpu, ops, precision, alone)
        low, high = np.zeros(len(ops)), np.zeros(len(ops))
        bands = self.adapted_bands if self.adapted_to else self.zero_bands
        for kind in set(map(str, ops.kind)):
            at = ops.kind == kind
            low[at], high[at] = bands[label_of(kind, precision)].bounds(ms[at], doubt[at])
        return low, high

    def adapt(self, gpu: Gpu, ops: Ops, ms: Array, precision: str = FORMAT) -> GpuModel:
        """The same model having seen some measured ops of one GPU.

        Raises:
            UsageError: nothing measured, a latency that is not positive, or a kind it was not fitted on.
        """
        self._check(ops, precision)
        if not len(ops) or not (np.asarray(ms) > 0).all():
            raise UsageError(f"Adapting to {gpu.name} needs measured ops with positive latencies; got {len(ops)} rows.")
        fresh = replace(self, adapted_to="", evidence={})
        seen: dict[str, Evidence] = {}
        for family, index, label, places, log_ms in fresh._each(gpu, ops, precision, True):
            off = np.clip(np.log(np.asarray(ms, float)[index]) - log_ms, -FARTHEST, FARTHEST) / of_label(label, self.spread)
            seen[family] = learn(self.process[family], label, places, off)
        return replace(fresh, adapted_to=gpu.name, evidence=seen)

    def _check(self, ops: Ops, precision: str) -> None:
        for kind in sorted(set(map(str, ops.kind))):
            if label_of(kind, precision) not in self.belief:
                asked = label_of(kind, precision)
                raise UsageError(f"This predictor was not fitted on {asked} ops; it knows {', '.join(self.labels)}.")

    def _each(self, gpu: Gpu, ops: Ops, precision: str, alone: bool) -> Iterator[tuple[str, Array, Array, Array, Array]]:
        """(family, rows, their labels, places, log ms of layers 1 and 2)."""
        for family, kinds in FAMILIES.items():
            index = np.flatnonzero(np.isin(ops.kind, kinds))
            if len(index):
                part = ops.take(index)
                label = labels(part.kind, np.full(len(part), precision))
                sheet = sheet_of(np.array([gpu.name] * len(part)), {gpu.name: gpu}, precision, alone)
                log_ms, rest, places = layers(self.core, family, part, label, sheet)
                yield family, index, label, places, log_ms + (of_label(label, self.belief) * rest).sum(1)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """(values, arrays) from which `restore` makes the same model."""
        values = {
            "known": {name: list(gpus) for name, gpus in self.known.items()},
            "ranges": {name: {what: list(ends) for what, ends in each.items()} for name, each in self.ranges.items()},
            "level": dict(self.core.level),
            "belief": {label: list(shares) for label, shares in self.belief.items()},
            "spread": dict(self.spread),
            "zero_bands": {label: band.state() for label, band in self.zero_bands.items()},
            "adapted_bands": {label: band.state() for label, band in self.adapted_bands.items()},
            "judged": dict(self.judged),
            "end_to_end": None if self.end_to_end is None else self.end_to_end.state(),
            "adapted_to": self.adapted_to,
        }
        arrays: dict[str, Array] = {}
        for family in self.core.theta:
            arrays[f"{family}.theta"] = self.core.theta[family]
            arrays[f"{family}.trees"] = np.frombuffer(self.core.trees[family].encode(), np.uint8)
            arrays[f"{family}.process"] = self.process[family]
        for family, seen in self.evidence.items():
            arrays |= {f"{family}.evidence.{name}": getattr(seen, name) for name in Evidence.ARRAYS}
        return values, arrays


def restore(values: Mapping[str, Any], arrays: Mapping[str, Array]) -> GpuModel:
    """The model a state was taken of.

    Raises:
        DataError: an older hwbench fitted it, whose physics were others.
    """
    if "end_to_end" not in values:
        again = command("fit", gpu=True, tables="DIR", out="predictors/gpu/MINE")
        raise DataError(f"This predictor of GPU operators was fitted by an older hwbench; fit it again, {form(again)}")
    families = [family for family in FAMILIES if f"{family}.theta" in arrays]
    return GpuModel(
        known={name: tuple(gpus) for name, gpus in values["known"].items()},
        ranges={name: {what: (e[0], e[1]) for what, e in each.items()} for name, each in values["ranges"].items()},
        core=Core(
            theta={family: arrays[f"{family}.theta"] for family in families},
            trees={family: arrays[f"{family}.trees"].tobytes().decode() for family in families},
            level=values["level"],
        ),
        belief=values["belief"],
        spread=values["spread"],
        process={family: arrays[f"{family}.process"] for family in families},
        zero_bands={label: conformal.Band(**band) for label, band in values["zero_bands"].items()},
        adapted_bands={label: conformal.Band(**band) for label, band in values["adapted_bands"].items()},
        judged=values["judged"],
        end_to_end=None if values["end_to_end"] is None else EndToEnd.of(values["end_to_end"]),
        adapted_to=values["adapted_to"],
        evidence={
            family: Evidence(*(arrays[f"{family}.evidence.{name}"] for name in Evidence.ARRAYS))
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
    again = command("fit", gpu=True, tables="DIR", out="predictors/gpu/MINE")
    return card.read_as(GpuCard, folder, f"one of GPU operators is asked; fit one, {form(again)}")


def facts(folder: str | Path) -> Facts:
    """What every use of a stored predictor says; its error is the mean over kinds and generations left out in turn."""
    stored = _card(folder)
    left_out = [error for each in stored.errors.get("zero_shot", {}).values() for error in each.values()]
    at = Path(folder).resolve()
    return Facts(
        name=f"{at.parent.name}/{at.name}",
        predictor=GPU,
        spaces=(),
        fitted_at=stored.fitted_at,
        mean_abs_error=float(np.mean(left_out)) if left_out else None,
        networks=len({name for each in stored.errors.get("zero_shot", {}).values() for name in each}),
        certified=False,
        fingerprint=fingerprint([stored.arrays_sha256, encode(stored.state)]),
        card_sha256=card.sha256_of(stored),
    )


def of_label(label: Array, values: Mapping[str, Any]) -> Array:
    """The value of each op's label, in an array."""
    names, at = np.unique(label, return_inverse=True)
    return np.array([values[str(name)] for name in names], float)[at]


@lru_cache(maxsize=64)
def booster(text: str) -> Any:
    """The trees of a stored text."""
    return openmp.lightgbm().Booster(model_str=text)


def layers(core: Core, family: str, ops: Ops, label: Array, sheet: Sheet) -> tuple[Array, Array, Array]:
    """(log ms of the physics; what trees and levels would add, two columns; places)."""
    parts = physics(family, core.theta[family], ops, sheet)
    trees = booster(core.trees[family]).predict(tree_features(family, ops, sheet, parts), num_threads=1)
    rest = np.column_stack([trees, of_label(label, core.level)])
    return np.log(parts.ms), rest, places_of(family, ops, sheet, parts)
