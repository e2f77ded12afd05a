"""Networks on a GPU from its data sheet: their primitives as GPU operators, priced by a stored model and summed.

    hwbench search --space autoformer-small --device nvidia-a100-pcie-40gb --budget-ms 19

Nothing here is certified: the model learnt from operators, each measured alone under PyTorch. Transformers that others measured
end to end calibrate their sum, and say how far off it is on a GPU of another generation (networks.py).

How primitives become GPU operators is one table (gpu/mapping.py).

The interval is wide on both sides, for a network is not its operators one by one. Low: launches wait in a queue while the GPU
works, so that none of their overhead shows. High: the host is late with every operator, by GAP_MS, which takes the place of any
doubt about launches. At batch 1 most operators are smaller than any that was measured, and the sum is mostly launch overhead:
there the interval spans several times the value. Encoders of HAT (batch 1), which GAP_MS is made of, take twice the value.
Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hwbench.core.command import command, form
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.files import fingerprint
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.network.graph import Workload
from hwbench.network.op.base import op_of
from hwbench.network.spec import OpSpec
from hwbench.network.work import primitives
from hwbench.predictor import card as cards
from hwbench.predictor.base import Facts, Latencies, Refusal
from hwbench.predictor.card_types import GPU, GpuCard
from hwbench.predictor.gpu import outside
from hwbench.predictor.gpu.datasheet import FAMILIES, FORMAT, KIND_OF, Gpu, Ops, of_device, sheet_of
from hwbench.predictor.gpu.mapping import MAPPING, Call, Unpriced
from hwbench.predictor.gpu.model import EndToEnd, GpuModel, restore
from hwbench.predictor.gpu.roofline import physics, roofline
from hwbench.space import slots
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum

FAMILY = "gpu"
"""Folder of predictors/ for models of any GPU."""
STATISTICS = ("min", "p50")
"""A data sheet tells one number; it stands for both."""
SCENARIO = "back-to-back"
"""How the operators were measured that the model learnt from."""
GAP_MS = 0.05
"""How much later than the sum says an operator may start, because the host is late with it: 95 % of 1,000 encoders of HAT
(Wang et al. 2020; PyTorch, batch 1, NVIDIA TITAN Xp) lost less than that per operator; their median is 0.033."""


def find(target: Target) -> tuple[Path, GpuCard] | None:
    """(folder, card) of the model to ask about a GPU; None for other devices, and where nothing was fitted.

    One adapted to it comes before one of any GPU; of both, the workspace's own before a shipped one.
    """
    place = target.workspace
    try:
        device = devices.get(target.device, place.root)
    except UnknownName:  # a predictor may name a device that has no file
        return None
    if device.kind != "gpu":
        return None
    for folder in (device.name, FAMILY):
        paths = place.each("predictors", folder, pattern=f"*/{cards.CARD}")
        for path in sorted(paths, key=lambda each: not each.is_relative_to(place.root)):
            card = cards.read(path)
            if isinstance(card, GpuCard) and card.device in (None, device.name):
                return path.parent, card
    return None


class Prices(NamedTuple):
    """What ops cost, in ms: one entry each."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def network_prices(model: GpuModel, gpu: Gpu, ops: Ops, precision: str = FORMAT) -> Prices:
    """What operators cost within a network: calibrated on whole networks, as wide as those of a GPU left out were off."""
    value, _ = model.predict(gpu, ops, precision, alone=False)
    low, high = model.bounds(gpu, ops, precision, alone=False)
    whole = calibration(model, precision)
    if whole is not None:
        value, low, high = (whole.factor * ms for ms in (value, low, high))
        together = whole.band.bounds(value, outside.wider(gpu, precision, model.ranges[precision]))
        taught = ops.kind != "conv"  # no network that was measured has any
        low, high = (np.where(taught, ends, own) for ends, own in zip(together, (low, high), strict=True))
    launch = _launch_share(model, gpu, ops, precision)
    low = np.minimum(low, value) * (1 - launch)
    high = launch * value + (1 - launch) * np.maximum(high, value)  # how late launches are, the gap allows for
    if not _was_seen(model, gpu, precision) and model.outside(gpu, precision):  # only its peaks bound it
        low = np.minimum(low, roofline(gpu, ops, precision))
    return Prices(value, low, high + GAP_MS)


def calibration(model: GpuModel, precision: str = FORMAT) -> EndToEnd | None:
    """What whole networks taught of sums; they ran in fp32, and no operators of the GPU had been measured."""
    return None if model.adapted_to or precision != FORMAT else model.end_to_end


def _was_seen(model: GpuModel, gpu: Gpu, precision: str) -> bool:
    """Whether the model saw operators of this GPU."""
    return gpu.name in (model.adapted_to, *model.known[precision])


def _launch_share(model: GpuModel, gpu: Gpu, ops: Ops, precision: str) -> np.ndarray:
    """How much of each operator the physics lays to its launch."""
    share = np.zeros(len(ops))
    for family, kinds in FAMILIES.items():
        index = np.flatnonzero(np.isin(ops.kind, kinds))
        if len(index):
            part = ops.take(index)
            sheet = sheet_of(np.array([gpu.name] * len(part)), {gpu.name: gpu}, precision, alone=False)
            found = physics(family, model.core.theta[family], part, sheet)
            share[index] = found.overhead / found.ms
    return share


def _ops(calls: Sequence[Call]) -> Ops:
    sizes = [dict(call.sizes) for call in calls]
    return Ops.of({"op": [call.op for call in calls], **{dim: [each.get(dim) for each in sizes] for dim in "BMNKH"}})


@dataclass(frozen=True)
class SpaceOps:
    """The latency of one space's networks: three sums over ops, compiled."""

    facts: Facts
    compiled: CompiledSum
    low: CompiledSum
    high: CompiledSum
    margin: float | None = None
    """None: launches and products have unlike intervals, so that no one number says how far above the value they reach."""

    def predict(self, population: Population) -> Latencies:
        """Every architecture; nothing of it was measured.

        Bounds are sums of the ops' bounds. One model prices all ops of one GPU: where it takes the GPU for faster than it is,
        it does so for every op. Errors that go the same way do not average out, so squares must not be summed instead.
        """
        nothing = np.zeros(population.shape[1])
        return Latencies(self.compiled(population), self.low(population), self.high(population), coverage=nothing)


@dataclass(frozen=True)
class GpuLatency:
    """Latencies of networks on one GPU: a `LatencyModel`."""

    gpu: Gpu
    model: GpuModel
    target: Target
    """The GPU and what was asked; under which runtime operators were measured, the table it was fitted on does not say."""
    name: str
    """Of the stored predictor, as `hwbench list predictors` shows it."""
    card: GpuCard
    statistics: tuple[str, ...] = STATISTICS

    @classmethod
    def open(cls, folder: Path, card: GpuCard, target: Target, name: str = "") -> GpuLatency:
        """The stored predictor of a folder, for one GPU.

        Raises:
            UsageError: the device is no GPU, or the predictor was adapted to another one.
            DataError: the data sheet lacks an entry, or the arrays were edited.
        """
        gpu = of_device(devices.get(target.device, target.workspace.root))
        arrays = cards.read_arrays(folder, card)
        with cards.restoring(folder, card):
            model = restore(card.state, arrays)
        if model.adapted_to not in ("", gpu.name):
            raise UsageError(
                f"{folder} was adapted to {model.adapted_to}, not to {gpu.name}; fit another, "
                f"{form(command('fit', gpu=True, tables='DIR', out=f'predictors/{FAMILY}/MINE'))}"
            )
        return cls(gpu, model, target, name or f"{folder.parent.name}/{folder.name}", card)

    def for_space(self, space: Space, statistic: str) -> SpaceOps | Refusal:
        """Its networks as three compiled sums; refused where a primitive of the space has no price."""
        specs = slots.distinct_specs(space)
        found = self.refuses(statistic) or self.prices(specs)
        if isinstance(found, Refusal):
            return found
        place = {spec: i for i, spec in enumerate(specs)}
        value, low, high = (
            CompiledSum(space, lambda asked, ms=ms: ms[[place[spec] for spec in asked]])  # type: ignore[misc]
            for ms in found
        )
        return SpaceOps(self.facts(specs), value, low, high)

    def predict_networks(self, workloads: Sequence[Workload], statistic: str) -> Latencies | Refusal:
        """The same sums for networks of no particular space."""
        counts = [workload.counts() for workload in workloads]
        specs = list(dict.fromkeys(spec for each in counts for spec in each))
        found = self.refuses(statistic) or self.prices(specs)
        if isinstance(found, Refusal):
            return found
        often = np.array([[each.get(spec, 0) for spec in specs] for each in counts], float).reshape(len(counts), len(specs))
        return Latencies(often @ found.value, often @ found.low, often @ found.high, np.zeros(len(counts)))

    def prices(self, specs: Sequence[OpSpec]) -> Prices | Refusal:
        """The latency of each op with its bounds, all asked of the model at once."""
        try:
            calls = [self._calls(spec) for spec in specs]
        except Unpriced as error:
            return Refusal(f"{self.name} cannot price {error}. It knows {', '.join(self.model.labels)} operators.")
        distinct = list(dict.fromkeys(call for each in calls for call in each))
        lacking = {KIND_OF[call.op] for call in distinct} - set(self.model.labels)
        if lacking:
            return Refusal(f"{self.name} was fitted on no {', '.join(sorted(lacking))}: fit it anew on tables that have them.")
        place = {call: i for i, call in enumerate(distinct)}
        often = np.zeros((len(specs), len(distinct)))
        for row, each in zip(often, calls, strict=True):
            np.add.at(row, [place[call] for call in each], 1)
        return Prices(*(often @ ms for ms in self.call_ms(distinct)))

    def _calls(self, spec: OpSpec) -> list[Call]:
        """The GPU operators of an op at the setting's batch."""
        found: list[Call] = []
        for part in primitives(op_of(spec).expand(spec)):
            if part.op not in MAPPING:
                raise Unpriced(f"{part.key}: no GPU operator stands for {part.op}")
            found += MAPPING[part.op].calls(part, self.target.setting.batch)
        return found

    def call_ms(self, calls: Sequence[Call]) -> Prices:
        """The latency of each GPU operator with its bounds, within a network."""
        return network_prices(self.model, self.gpu, _ops(calls), self.precision)

    def call_doubt(self, calls: Sequence[Call]) -> np.ndarray:
        """How far off each may be, relative."""
        return self.model.predict(self.gpu, _ops(calls), self.precision, alone=False)[1]

    @property
    def factor(self) -> float:
        """What whole networks multiply sums of operators by."""
        found = calibration(self.model, self.precision)
        return 1.0 if found is None else found.factor

    @property
    def launch_ms(self) -> float:
        """Of the smallest operator."""
        return float(self.call_ms([Call.over("addu", 1, 1)]).value[0])

    @property
    def precision(self) -> str:
        """Number format asked for."""
        return self.target.setting.dtype

    def refuses(self, statistic: str) -> Refusal | None:
        """What no network changes: number format, scenario, statistic, a data sheet without the peak that is needed."""
        precision = self.precision
        if precision not in self.model.formats:
            known = ", ".join(self.model.formats)
            return Refusal(f"{self.name} knows {known} operators, not {precision}; ask with --dtype {known}.")
        if self.target.setting.scenario != SCENARIO:
            return Refusal(
                f"{self.name} knows operators run {SCENARIO}, not {self.target.setting.scenario}; ask for {SCENARIO}."
            )
        if statistic not in self.statistics:
            return Refusal(f"{self.name} knows the statistics {', '.join(self.statistics)}, not {statistic}.")
        if precision not in self.gpu.peaks:
            return Refusal(
                f"The data sheet of {self.gpu.name} states no {precision} peak; add tflops_{precision} to its device file."
            )
        return None

    def facts(self, specs: Sequence[OpSpec]) -> Facts:
        """What every use of it says; its fingerprint covers the data sheet, which the numbers depend on as well."""
        return Facts(
            name=self.name,
            predictor=GPU,
            spaces=(),
            fitted_at=self.card.fitted_at,
            mean_abs_error=None,
            networks=0,
            certified=False,
            fingerprint=fingerprint([self.card.arrays_sha256, self.card.state, asdict(self.gpu), self.target.setting.key]),
            card_sha256=cards.sha256_of(self.card),
            note=self._note(specs),
        )

    def _note(self, specs: Sequence[OpSpec]) -> str:
        """That no network was measured; what the model saw; what is not counted; which ops something else stands for."""
        primitive = {part.op for spec in specs for part in primitives(op_of(spec).expand(spec))}
        near = sorted(name for name in primitive if MAPPING[name].stands_for)
        return (
            f"hwbench measured nothing on {self.gpu.name}: operators from its data sheet and {self._seen()}, summed"
            f"{self._calibrated()}; launch gaps between operators are not counted (the upper bound allows "
            f"{GAP_MS:g} ms each, the lower one no launch at all); min and p50 are one number; "
            f"{self._outside()}approximated: {', '.join(near) or 'nothing'}"
        )

    def _calibrated(self) -> str:
        """By which networks."""
        found = calibration(self.model, self.precision)
        if found is None:
            return ", and no whole network calibrates the sum"
        often = sum(int(each["n"]) for each in found.judged.values())
        return f" and calibrated (x {found.factor:.2f}) on {often} Transformers that others measured"

    def _outside(self) -> str:
        """What of the data sheet is unlike those learnt from."""
        found = self.model.outside(self.gpu, self.precision)
        return f"outside what was learnt: {'; '.join(found)}; " if found else ""

    def _seen(self) -> str:
        """Which measured operators stand behind the model."""
        known = len(self.model.known[self.precision])
        if self.model.adapted_to:
            return f"{sum(len(each.kind) for each in self.model.evidence.values())} of its operators in a public table"
        if _was_seen(self.model, self.gpu, self.precision):
            return f"a public table of operators of it and {known - 1} other GPUs"
        return f"a public table of operators of {known} other GPUs, none of it"
