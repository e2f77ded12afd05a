"""The latency of any ONNX model, and of networks as the ONNX models they are exported to: by their kernels.

predictors/<device>/onnx-<runtime>-<setting>/card.json, arrays.npz

hwbench fit --kernels            makes one (onnx_fit.py)
hwbench predict MODEL.onnx       total, interval, coverage, layer by layer

The runtime says which kernels it runs after its own fusions (kernel detection); each has a price (kernel_prices.py), and whole
networks calibrated their sum. A space's ops are exported alone, each once, and their kernels priced: 18 small models for
all networks of autoformer-tiny. What the runtime fuses across ops is not seen that way (AutoFormer: 0.5 % of the latency,
BERT: nothing). Nothing here is certified: intervals rest on families left out of the calibration, not on the one asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hwbench.core import registry
from hwbench.core.command import Value, command, hint
from hwbench.core.errors import DataError, HwbenchError, MissingOps, UsageError
from hwbench.core.files import fingerprint, scratch_folder
from hwbench.core.progress import Tick, no_tick
from hwbench.core.typed_json import encode
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network import onnx_writer
from hwbench.network.graph import Network, Workload
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import card as cards
from hwbench.predictor import space_latency
from hwbench.predictor.base import Facts, Latencies, Refusal
from hwbench.predictor.card_types import ONNX, OnnxCard
from hwbench.predictor.kernel_bound import Bound
from hwbench.predictor.kernel_prices import (
    FEATURES,
    Prices,
    doubt_of,
    kernel_rows,
    kernel_setting,
)
from hwbench.predictor.model_latency import BOUNDED, MEASURED, ModelLatency
from hwbench.predictor.model_prices import Priced, price_model, weights_of
from hwbench.predictor.onnx_space import SpaceKernels, latencies
from hwbench.predictor.op_latency import OpModel
from hwbench.predictor.peak_memory import PeakMemory
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_detection import DetectedKernels as Detected
from hwbench.profiler.profile import profile_specs
from hwbench.space import slots
from hwbench.space.base import Space

KERNELS = 1850
"""Kernels of the grid that a predictor of any model is to be fitted on."""
CALIBRATING = ("autoformer-tiny", "bert")
"""Spaces whose networks take the place of reference models, which have one sample and a number format of their own."""


@dataclass(frozen=True)
class OnnxLatency:
    """A fitted predictor of ONNX models: a `LatencyModel`."""

    folder: Path
    card: OnnxCard
    target: Target
    prices: Prices
    name: str = ""
    """Device and folder, as `hwbench list predictors` shows it."""

    @classmethod
    def open(cls, folder: Path, card: OnnxCard, target: Target, name: str = "") -> OnnxLatency:
        """The predictor of a card, with its arrays; asked for as `local`, it must be of this very machine."""
        if target.local:
            luts.check_local(Environment(card.environment), folder / cards.CARD, how_to_measure(target))
        if tuple(card.features) != FEATURES:
            again = cards.again(card, target.workspace)
            raise DataError(f"{folder} was fitted by an older hwbench, which looked at kernels otherwise. {again}")
        model = OpModel()
        arrays = cards.read_arrays(folder, card, target.workspace)
        with cards.restoring(folder, card, target.workspace):
            model.restore(card.kernels.state, arrays)
        kernels = card.kernels
        setting = replace(target.setting, scenario=kernels.scenario)
        rows = measured_rows(target, setting, card)
        prices = Prices(model, Bound.of(kernels.bound), rows, setting, kernels.cache_bytes, kernels.stream_ms_per_mb)
        return cls(folder, card, target, prices, name or f"{card.device}/{folder.name}")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Those it was calibrated for."""
        return tuple(self.card.statistics)

    def priced(self, detected: Detected, statistic: str = "min") -> Priced:
        """A model's kernels with their prices."""
        return price_model(detected.kernels, self.prices, self.card.statistics[statistic], self.target.setting)

    def predict_model(
        self, detected: Detected, statistic: str = "min", again: Mapping[str, Value] | None = None
    ) -> ModelLatency:
        """The latency of a model, by its kernels.

        Args:
            detected: The model's kernels.
            statistic: `min` or `p50`.
            again: Options, beside those of the target, of the command that would measure its kernels.

        Raises:
            MissingOps: kernels that are only bounded could change the answer; the message has the command that measures them.
        """
        priced = self.priced(detected, statistic)
        if priced.undecided:
            options = {**(again or {}), **self.target.options}
            run = command("predict", detected.path, measure_missing=True, **options)
            if self.prices.setting == kernel_setting(self.target.setting):  # as `profile` measures; older cards do not
                run = command("profile", model=detected.path, **options)
            raise self._undecided(detected, priced, run)
        low, high = priced.interval()
        return ModelLatency(
            model=str(detected.path),
            device=self.target.device,
            runtime=self.target.runtime,
            setting=self.target.setting.key,
            statistic=statistic,
            latency_ms=priced.total_ms,
            low_ms=low,
            high_ms=high,
            layers=priced.layers(),
            fused=detected.fused,
            source=str(self.folder),
            predictor=self.facts(statistic).document(),
            shapes=detected.shapes,
            notes=detected.notes,
            memory=PeakMemory.where_known(detected.memory, self.target.runtime),
        )

    def _undecided(self, detected: Detected, priced: Priced, run: str) -> MissingOps:
        """Which kernels are too little known, and what measures them."""
        layers = [each for each in priced.layers() if each.price == BOUNDED]
        kinds = ", ".join(sorted({each.type for each in layers}))
        share = priced.shares_ms[priced.price == BOUNDED].sum() / priced.total_ms
        return MissingOps(
            f"{detected.path}: {len(layers)} kernels are like none that was measured on {self.target.device} ({kinds}); "
            f"they may be {share:.0%} of the latency, or several times that. First: {layers[0].kernel}. "
            f"{self.target.out_of_reach or hint(run)}",
            sorted({each.kernel for each in layers}),
        )

    def for_space(self, space: Space, statistic: str) -> SpaceKernels | Refusal:
        """The space's networks by the kernels of their ops; refused where one of them has no price."""
        if statistic not in self.statistics:
            return Refusal(f"{self.name} knows the statistics {', '.join(self.statistics)}, not {statistic}.")
        specs = slots.distinct_specs(space)
        try:
            kernels = [_known(each) for each in network_kernels(map(ops.single, specs), self.target)]
            distinct = list(dict.fromkeys(kernel for each in kernels for kernel in each))
            self._require(distinct, space.name)
        except HwbenchError as error:
            return Refusal(f"{self.name} cannot price {space.name}: {error}", error)
        facts = self.facts(statistic, space.name)
        return SpaceKernels(facts, space, tuple(specs), tuple(kernels), self.prices, self.card.statistics[statistic])

    def predict_networks(self, workloads: Sequence[Workload], statistic: str) -> Latencies | Refusal:
        """Networks, each exported and priced by its kernels as a whole."""
        if statistic not in self.statistics:
            return Refusal(f"{self.name} knows the statistics {', '.join(self.statistics)}, not {statistic}.")
        part, answers = self.card.statistics[statistic], []
        try:
            for workload in workloads:
                phases = network_kernels([phase.network for phase in workload.phases], self.target)
                often = [phase.repeat for phase in workload.phases]
                specs = [spec for each, n in zip(phases, often, strict=True) for spec in _known(each) * n]
                ms, doubt, price = self.prices.each(specs)
                self._require(specs, "the network")
                value = (self.prices.columns(specs, ms) @ weights_of(part)).sum()
                answers.append((value, doubt_of(specs, ms * doubt), ms[price == MEASURED].sum() / ms.sum()))
        except HwbenchError as error:
            return Refusal(f"{self.name} cannot price {len(workloads)} networks: {error}", error)
        values, doubts_ms, coverage = np.array(answers, float).reshape(-1, 3).T
        return latencies(values, doubts_ms, coverage, part)

    def facts(self, statistic: str, space: str | None = None) -> Facts:
        """What every use of it says; its error is that of families left out of the calibration, the one asked for or all."""
        families = self.card.statistics[statistic].unseen_family or {}
        judged = [each for name, each in families.items() if space in (None, name)]
        n = sum(each["n"] for each in judged)
        rows = fingerprint(sorted(self.prices.rows_ms.items()))
        return Facts(
            name=self.name,
            predictor=ONNX,
            spaces=self.card.spaces,
            fitted_at=self.card.fitted_at,
            mean_abs_error=sum(each["n"] * each["mean_abs_error"] for each in judged) / n if n else None,
            networks=n,
            certified=False,
            fingerprint=fingerprint([self.card.arrays_sha256, encode(self.card.statistics), rows]),
            card_sha256=cards.sha256_of(self.card),
            note="summed over the kernels the runtime makes of each op; error and interval are those of families left out of "
            "the calibration in turn",
        )

    def _require(self, specs: Sequence[OpSpec], what: str) -> None:
        """Raises MissingOps where a space has kernels like none that was measured: its networks must be told apart."""
        if missing := self.prices.too_little_known(specs):
            kinds = sorted({str(OpSpec.parse(key)["type"]) for key in missing})
            measure = command("profile", kernels=KERNELS, **self.target.options)
            raise MissingOps(
                f"{what}: {len(missing)} kernels are like none that was measured on {self.target.device} ({', '.join(kinds)}); "
                f"first: {missing[0]}. {self.target.out_of_reach or hint(measure)}",
                missing,
            )


def _known(detected: Detected) -> list[OpSpec]:
    """The kernels of a model, all of which must be stated.

    Raises:
        DataError: the runtime runs a node that is no kernel.
    """
    if detected.unknown:
        first = detected.unknown[0]
        raise DataError(f"node '{first.name}' cannot be priced: {first.why}")
    return [spec for kernel in detected.kernels if (spec := kernel.spec) is not None for _ in range(kernel.times)]


def network_kernels(networks: Iterable[Network], target: Target) -> Iterator[Detected]:
    """Every network's kernels, as its exported file would have them."""
    with scratch_folder() as folder:
        path = folder / "network.onnx"
        for network in networks:
            if any(spec.dtype is not None for spec in network.specs):
                raise UsageError("kernels are priced in one number format, and nodes of this network state their own")
            with path.open("wb") as stream:
                onnx_writer.write_model(network, target.setting, stream, light=True)
            yield kernel_detection.detect(path, target.runtime, target.setting, whole=False)


def folder_name(target: Target) -> str:
    """Of a target's predictor of ONNX models."""
    return f"{ONNX}-{target.runtime}-{target.setting.key}"


def find(target: Target) -> tuple[Path, OnnxCard] | None:
    """(folder, card) of a target's predictor of ONNX models; None where none was fitted."""
    found = target.workspace.find("predictors", target.device, folder_name(target), cards.CARD)
    return None if found is None else (found.parent, cards.read_as(OnnxCard, found.parent, "one of ONNX models is asked."))


def load(target: Target) -> OnnxLatency:
    """The fitted predictor of ONNX models of a target.

    Raises:
        UsageError: none was fitted; the message has the commands that make one.
    """
    found = find(target)
    if found is None:
        raise nothing_fitted(target)
    return OnnxLatency.open(*found, target)


def nothing_fitted(target: Target) -> UsageError:
    """The refusal where no predictor of ONNX models was fitted for a target: who has one, and the commands that make one."""
    others = target.workspace.each("predictors", pattern=f"*/{ONNX}-*/{cards.CARD}")
    have = sorted({path.parts[-3] for path in others})
    return UsageError(
        f"No predictor of ONNX models of {target.name}; there are some for: {', '.join(have) or 'no device'}. "
        f"{how_to_measure(target)}"
    )


def how_to_measure(target: Target) -> str:
    """The end of an error: the commands that measure kernels of a target and fit them, from nothing, where that can be done."""
    if target.out_of_reach:
        return target.out_of_reach
    usual = (target.setting.dtype, target.setting.batch) == (Setting().dtype, Setting().batch)
    on: dict[str, Value] = {} if usual else {"no_references": True, "space": CALIBRATING}
    fit = command("fit", kernels=True, **on, **target.options)
    return hint(command("profile", kernels=KERNELS, **target.options), fit)


def measured_rows(target: Target, setting: Setting, card: OnnxCard) -> dict[str, float]:
    """Kernels measured on the card's machine, also after it was fitted (`hwbench profile --model`)."""
    path = target.workspace.find("luts", target.device, f"{target.runtime}.parquet")
    if path is None:
        return {}
    table = Lut.read(path)
    alike = not table.environment.differences(Environment(card.environment))
    return kernel_rows(table, setting) if alike else {}


@dataclass(frozen=True)
class ModelFile:
    """Someone's ONNX file and how it is run."""

    path: str | Path
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    fills: Mapping[str, float] = field(default_factory=dict)

    def detect(self, target: Target, own_layout: bool = True) -> Detected:
        """Its kernels; with the layouts of this machine's processor, unless it is asked of another kind of device."""
        return kernel_detection.detect(self.path, target.runtime, target.setting, self.shapes, self.fills, own_layout)

    @property
    def options(self) -> Mapping[str, Value]:
        """For `command`: what names its inputs."""
        return {"shape": {name: tuple(sides) for name, sides in self.shapes.items()}, "fill": dict(self.fills)}


def predict_file(
    model: ModelFile, target: Target, statistic: str = "min", measure_missing: bool = False, tick: Tick = no_tick
) -> ModelLatency:
    """The latency of an ONNX file on a target; kernels without a row that matter are measured first where asked."""
    space_latency.check_statistic(statistic)
    registry.get("runtime", target.runtime)
    detected = model.detect(target)
    asked = load(target)
    if measure_missing and (specs := asked.priced(detected, statistic).worth_measuring()):
        profile_specs(specs, replace(target, setting=asked.prices.setting), tick=tick)
        asked = load(target)
    return asked.predict_model(detected, statistic, model.options)
