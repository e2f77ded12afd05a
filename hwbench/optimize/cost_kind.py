"""Every kind of cost a search can limit, by name: one entry in KINDS says all that is special about it.

    latency_ms              on the device searched for
    latency_ms@DEVICE       on another one, by its stored predictor of the same runtime; @DEVICE/RUNTIME for another runtime
    instructions_m@DEVICE   million instructions one sample takes on an emulated processor: the sum of its table's rows
    params_m, macs_m        million parameters (lookup tables included), million multiply-accumulates of one sample
    flops_m                 million FLOPs of one sample: 2 per multiply-accumulate, plus element-wise arithmetic
    memory_mb               megabytes (10^6 bytes) the weights take in the setting's number format; activations not counted
    peak_memory_mb          the most a process holds that runs it: weights, the largest activations, runtime (peak_memory.py)

Latencies are predictions: their upper bound is compared with a limit, unless asked otherwise. Peak memory is one, too, told
without a bound (reports/memory-2026-11-19 has its errors). The rest is exact, but for
instructions, which are as exact as rows add up (reports/targets-2026-11-17: AutoFormer within 0.04 %, small cells of
NAS-Bench-201 up to 23 % off). How a cost is told once more of finished networks (`recount`) belongs to its kind, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hwbench.core import registry
from hwbench.core.command import command, form
from hwbench.core.errors import HwbenchError, UnknownName, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.network.graph import Workload
from hwbench.network.op.base import network_parameters, op_of
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import ITEM_BYTES, parameter_count, work_of
from hwbench.optimize.cost import SUM, Cost, latency_cost, least_found, op_cost
from hwbench.predictor import known, models
from hwbench.predictor.models import Chosen
from hwbench.predictor.peak_memory import library_bytes
from hwbench.predictor.space_memory import SpaceMemory, network_memory
from hwbench.space import lowering
from hwbench.space.architectures import Architectures
from hwbench.space.base import Population, Space

LATENCY, UPPER = "latency_ms", "upper_ms"
"""The latency on the device searched for, and its upper bound."""


@dataclass(frozen=True)
class Question:
    """What a cost depends on beside its name and the space."""

    target: Target
    statistic: str = "min"
    uncertified: bool = False
    """Whether a predictor that never saw the space may answer."""


@dataclass(frozen=True)
class Recount:
    """A cost of finished networks, told once more."""

    how: str
    """What the values rest on."""
    values: Sequence[float]
    """Of each network; none where it could not be told."""
    measured: bool = False
    """Whether the networks themselves were measured or counted, not predicted or summed from parts."""
    why_not: str = ""
    """Where they were not: why, and what would."""


@dataclass(frozen=True)
class Finished:
    """Finished networks whose costs are to be told once more, and who can be asked."""

    networks: Architectures
    question: Question
    upper: bool
    """Whether upper bounds are compared with limits."""
    measured: Recount
    """The latency on the device searched for."""
    predictor: Callable[[str], Chosen]
    """The predictor a search used for the cost of that name."""
    count: Callable[[Target, Architectures], Recount | str]
    """Instructions of whole networks, in millions; where that device does not count now, why."""


@dataclass(frozen=True)
class CostKind:
    """One kind of cost."""

    name: str
    """Ends in @ where the name of a device (and /RUNTIME) follows."""
    unit: str
    compile: Callable[[Space, str, Question], tuple[Cost, Chosen | None]]
    """The cost of that name over a space, and the predictor behind it."""
    recount: Callable[[str, Finished], Recount]
    available: Callable[[Space, Question], list[str]]
    """Names of this kind that can be asked of a space here."""

    def matches(self, name: str) -> bool:
        """Whether a cost of that name is of this kind."""
        return name.startswith(self.name) if self.name.endswith("@") else name == self.name


def kind_of(name: str, space: Space, question: Question) -> CostKind:
    """The kind of a cost.

    Raises:
        UsageError: nobody can tell it; the message says why, or lists the costs there are.
    """
    for kind in KINDS.values():
        if kind.matches(name):
            return kind
    known_names = [each for kind in KINDS.values() for each in kind.available(space, question)]
    for beginning, why in NEVER.items():
        if name.startswith(beginning):
            raise UsageError(f"{why} Available: {', '.join(known_names)}.")
    raise UnknownName(registry.unknown("cost", name, known_names))


def place_of(name: str, target: Target) -> Target:
    """The target that a name with @DEVICE or @DEVICE/RUNTIME stands for; what it leaves open is as in the target given."""
    device, _, runtime = name.partition("@")[2].partition("/")
    return Target.of(device, runtime or target.runtime, target.setting, target.workspace)


# Latencies


def upper_name(name: str) -> str:
    """What the upper bound of a latency is called; other costs have none, and keep their name."""
    return name.replace(LATENCY, UPPER, 1)


def _latency(space: Space, name: str, question: Question) -> tuple[Cost, Chosen]:
    target = place_of(name, question.target) if "@" in name else question.target
    chosen = models.choose(space, question.statistic, target, question.uncertified)
    return latency_cost(chosen.latency, space, name, upper_name(name)), chosen


def _predicted_again(name: str, finished: Finished) -> Recount:
    chosen = finished.predictor(name)
    told = chosen.latency.predict(finished.networks.population)
    how = "upper bound predicted, not measured" if finished.upper else "predicted, not measured"
    if finished.upper and not chosen.latency.facts.certified:
        how += f"; uncertified: never calibrated on {finished.networks.space.name}"
    there = place_of(name, finished.question.target)
    unreachable = devices.get(there.device, there.workspace.root).unreachable
    search = command("search", space=finished.networks.space.name, budget_ms="MS", **there.options)
    why_not = (
        f"Device {there.device} cannot be measured from here: {unreachable}"
        if unreachable
        else f"{name} is predicted once more; verify measures what is searched for, {form(search)}"
    )
    return Recount(how, (told.high_ms if finished.upper else told.value_ms).tolist(), why_not=why_not)


def _predicted_devices(space: Space, question: Question) -> list[str]:
    """Devices whose predictors know the space; GPUs, which are known by their data sheets, in one entry."""
    found = _known_devices(question.target.workspace)
    names = [f"{LATENCY}@{name}" for name, each in found.items() if space.name in each.search]
    gpus = [name for name, each in found.items() if space.name in each.search_uncertified]
    return [*names, *([f"{LATENCY}@GPU of {len(gpus)} GPUs, uncertified, such as {gpus[0]}"] if gpus else [])]


# Instructions


def instructions_m(name: str, specs: Sequence[OpSpec], target: Target, space: str | None = None) -> np.ndarray:
    """Million instructions of each op, by the table that instructions_m@DEVICE or instructions_m@DEVICE/RUNTIME names.

    Raises:
        UsageError: instructions are not counted on such a device, or were not yet.
        MissingOps: the table has no count of some op; the message has the command that would change that.
    """
    place = place_of(name, target)
    spaces = [] if space is None else [space]
    _check_emulated(place, spaces)
    return luts.Lut.read(luts.find_lut(place, spaces)).column(specs, place, luts.INSTRUCTIONS, spaces) / 1e6


def _check_emulated(place: Target, spaces: Sequence[str]) -> None:
    """Raises unless instructions are counted on the device, with what can be done instead."""
    try:
        device = devices.get(place.device, place.workspace.root)
    except UnknownName:  # this machine, which nobody described yet
        device = None
    if device is None or device.reach != "emulated":
        counted = _counted_devices(place.workspace)
        raise UsageError(
            f"Instructions are counted on emulated devices only, and {place.device} is none. "
            f"Available: {', '.join(counted) or 'none'}."
        )
    if place.workspace.find("luts", place.device, f"{place.runtime}.parquet") is None and device.unreachable:
        raise UsageError(
            f"No instructions under {place.runtime} were counted on {place.device}, which is not set up. "
            f"{luts.how_to_measure(place, spaces, set_up=True)}"
        )


def _counted(space: Space, name: str, question: Question) -> tuple[Cost, None]:
    def each(specs: Sequence[OpSpec]) -> np.ndarray:
        return instructions_m(name, specs, question.target, space.name)

    return op_cost(space, name, KINDS["instructions_m@"].unit, each), None


def _counted_again(name: str, finished: Finished) -> Recount:
    """Whole networks where the emulator is set up; else the counted rows of their ops, summed."""
    target = finished.question.target
    found = finished.count(place_of(name, target), finished.networks)
    if isinstance(found, Recount):
        return found
    sums = []
    for column in finished.networks.population.T:
        counts = lowering.lower(finished.networks.space, column).counts()
        sums.append(float(instructions_m(name, list(counts), target) @ np.array(list(counts.values()), float)))
    return Recount("sum of counted rows", sums, why_not=found)


def _counted_devices(place: Workspace) -> list[str]:
    return [each.limit for each in _known_devices(place).values() if each.limit]


def _known_devices(place: Workspace) -> dict[str, known.Known]:
    """What is known of every device whose file can be read."""
    found = {}
    for path in devices.files(place):
        try:
            device = devices.read(path)
        except HwbenchError:  # whoever asks for it is told
            continue
        found[device.name] = known.known_of(device, place)
    return found


# Sizes: what is known of an op without measuring it


def op_kind(
    name: str,
    unit: str,
    op_value: Callable[[OpSpec, Setting], float],
    recount: Callable[[Workload, Setting], float],
    combine: str = SUM,
) -> CostKind:
    """A cost that is known of every op, and combines over ops by sum or maximum.

    Args:
        name: What it is called.
        unit: What it counts.
        op_value: Of one op.
        recount: Of a whole network, by other means than `op_value`: a check, not a copy.
        combine: SUM or MAXIMUM.
    """

    def compile(space: Space, name: str, question: Question) -> tuple[Cost, None]:
        def each(specs: Sequence[OpSpec]) -> np.ndarray:
            return np.array([op_value(spec, question.target.setting) for spec in specs])

        return op_cost(space, name, unit, each, combine=combine), None

    def again(name: str, finished: Finished) -> Recount:
        networks, setting = finished.networks, finished.question.target.setting
        workloads = [lowering.lower(networks.space, column) for column in networks.population.T]
        return Recount("counted", [recount(each, setting) for each in workloads], measured=True)

    return CostKind(name, unit, compile, again, lambda space, question: [name])


def _peak_memory(space: Space, name: str, question: Question) -> tuple[Cost, None]:
    """Weights add up and the largest of what runs counts: no sum and no maximum, but made of both."""
    bytes_of = SpaceMemory(space, question.target)

    def value(population: Population) -> np.ndarray:
        return bytes_of(population) / 1e6

    least = cache(lambda: least_found(space, value))
    return Cost(name, "MB", value, lambda population: (value(population),) * 2, least, None, 0.0), None


def _peak_memory_again(name: str, finished: Finished) -> Recount:
    """By the whole network's own graph: what is fused across ops and lives past them is seen."""
    workloads = [lowering.lower(finished.networks.space, column) for column in finished.networks.population.T]
    peaks = [network_memory(each, finished.question.target).peak_bytes / 1e6 for each in workloads]
    return Recount("whole networks' graphs, not run", peaks, why_not="hwbench measure tells the peak of an exported network")


def _memory_is_told(space: Space, question: Question) -> list[str]:
    try:
        library_bytes(question.target.runtime)
    except UsageError:
        return []
    return ["peak_memory_mb"]


def _parameters(workload: Workload) -> int:
    networks = [phase.network for phase in workload.phases]
    return sum(each.size for network in networks for each in network_parameters(network).values())


def _work(workload: Workload, what: str) -> float:
    return float(sum(phase.repeat * getattr(work_of(phase.network), what) for phase in workload.phases))


KINDS = {
    kind.name: kind
    for kind in (
        CostKind(LATENCY, "ms", _latency, lambda name, finished: finished.measured, lambda space, question: [LATENCY]),
        CostKind(f"{LATENCY}@", "ms", _latency, _predicted_again, _predicted_devices),
        CostKind(
            "instructions_m@",
            "million instructions",
            _counted,
            _counted_again,
            lambda space, question: _counted_devices(question.target.workspace),
        ),
        op_kind(
            "params_m",
            "million parameters",
            lambda spec, setting: parameter_count(spec) / 1e6,
            lambda workload, setting: _parameters(workload) / 1e6,
        ),
        op_kind(
            "macs_m",
            "million multiply-accumulates",
            lambda spec, setting: op_of(spec).work(spec).macs / 1e6,
            lambda workload, setting: _work(workload, "macs") / 1e6,
        ),
        op_kind(
            "flops_m",
            "million FLOPs",
            lambda spec, setting: op_of(spec).work(spec).flops / 1e6,
            lambda workload, setting: _work(workload, "flops") / 1e6,
        ),
        op_kind(
            "memory_mb",
            "MB",
            lambda spec, setting: parameter_count(spec) * ITEM_BYTES[setting.dtype] / 1e6,
            lambda workload, setting: _parameters(workload) * ITEM_BYTES[setting.dtype] / 1e6,
        ),
        CostKind("peak_memory_mb", "MB", _peak_memory, _peak_memory_again, _memory_is_told),
    )
}
"""Name -> kind; another cost is one more entry."""
NEVER = {"energy": "Energy cannot be limited: predictors tell milliseconds and no table holds joules."}
"""How the name of a cost begins that is asked for though nothing can tell it -> why."""
