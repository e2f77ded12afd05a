"""What a search can limit, by name: compiled costs, each with the most it may be.

    latency_ms              on the device searched for (its budget)
    latency_ms@DEVICE       on another one, by its stored predictor of the same runtime; @DEVICE/RUNTIME for another runtime
    instructions_m@DEVICE   million instructions one sample takes on an emulated processor: the sum of its table's rows
    params_m, macs_m        million parameters (lookup tables included), million multiply-accumulates of one sample
    flops_m                 million FLOPs of one sample: 2 per multiply-accumulate, plus element-wise arithmetic
    memory_mb               megabytes (10^6 bytes) the weights take in the setting's number format; activations not counted

Latencies are predictions: what is held against a limit is their upper bound, unless asked otherwise. The rest is exact, but
for instructions, which are as exact as rows add up (reports/targets-2026-11-17: AutoFormer within 0.04 %, small cells of
NAS-Bench-201 up to 23 % off).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.network.graph import Workload
from hwbench.network.op.base import network_parameters, op_of
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import ITEM_BYTES, parameter_count, work_of
from hwbench.optimize.cost import Cost, latency_cost, summed_cost
from hwbench.predictor import models
from hwbench.predictor.models import Chosen
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum

LATENCY, UPPER = "latency_ms", "upper_ms"
ELSEWHERE, INSTRUCTIONS = f"{LATENCY}@", "instructions_m@"
SIZES: Mapping[str, Callable[[OpSpec, Setting], float]] = {
    "params_m": lambda spec, setting: parameter_count(spec) / 1e6,
    "macs_m": lambda spec, setting: op_of(spec).work(spec).macs / 1e6,
    "flops_m": lambda spec, setting: op_of(spec).work(spec).flops / 1e6,
    "memory_mb": lambda spec, setting: parameter_count(spec) * ITEM_BYTES[setting.dtype] / 1e6,
}


@dataclass(frozen=True)
class Limit:
    """A cost and the most it may be."""

    name: str
    most: float
    cost: Cost
    certified: bool
    """Whether the upper bound is held against it."""
    chosen: Chosen | None = None
    """The predictor behind it; an exact cost has none."""

    @property
    def upper_name(self) -> str | None:
        """What the upper bound is called; an exact cost has none."""
        return self.name.replace(LATENCY, UPPER, 1) if self.name.startswith(LATENCY) else None

    @property
    def held_name(self) -> str:
        """Which of its values is held against the limit."""
        return self.upper_name or self.name if self.certified else self.name

    def values(self, population: Population) -> dict[str, np.ndarray]:
        """Everything there is to know of it, by name."""
        upper = {self.upper_name: self.cost.upper(population)} if self.upper_name else {}
        return {self.name: self.cost.value(population), **upper}

    def held(self, population: Population) -> np.ndarray:
        """What is held against the limit."""
        return self.cost.upper(population) if self.held_name == self.upper_name else self.cost.value(population)

    @property
    def held_sum(self) -> tuple[float, CompiledSum] | None:
        """What is held against the limit as (weight, sum over ops); None where it is no such sum."""
        factor = 1.0 if self.held_name != self.upper_name else None if self.cost.margin is None else 1.0 + self.cost.margin
        return None if factor is None or self.cost.sum is None else (factor, self.cost.sum)

    def least(self) -> tuple[float, np.ndarray]:
        """(the smallest value held against it that a network of the space reaches, that architecture)."""
        _, column = self.cost.least()
        return float(self.held(column[:, None])[0]), column


def compiled(
    space: Space,
    limits: Mapping[str, float],
    statistic: str,
    runtime: str,
    setting: Setting,
    workspace: str | Path,
    certified: bool,
    uncertified: bool = False,
) -> list[Limit]:
    """Limits other than the search's own budget.

    Raises:
        UnknownName: there is no such cost; the message lists what there is.
        UsageError: it cannot be told (energy), or the other device has no predictor calibrated on the space.
        MissingOps: the other device's predictor does not know all ops of the space.
    """
    found = []
    for name, most in limits.items():
        if name.startswith(ELSEWHERE):
            chosen = elsewhere(name, space, statistic, runtime, setting, workspace, uncertified)
            found.append(Limit(name, most, latency_cost(chosen.latency, space, name), certified, chosen))
        elif name.startswith(INSTRUCTIONS):
            found.append(Limit(name, most, _counted(space, name, runtime, setting, workspace), certified))
        elif name in SIZES:
            found.append(Limit(name, most, _sized(space, name, setting), certified))
        else:
            raise _unknown(name)
    return found


def elsewhere(
    name: str, space: Space, statistic: str, runtime: str, setting: Setting, workspace: str | Path, uncertified: bool = False
) -> Chosen:
    """The stored predictor that latency_ms@DEVICE or latency_ms@DEVICE/RUNTIME names."""
    device, _, other = name.removeprefix(ELSEWHERE).partition("/")
    target = Target.of(device, other or runtime, setting, workspace)
    return models.choose(space, statistic, target, uncertified)


def instructions_m(
    name: str, specs: Sequence[OpSpec], runtime: str, setting: Setting, workspace: str | Path, space: str | None = None
) -> np.ndarray:
    """Million instructions of each op, by the table that instructions_m@DEVICE or instructions_m@DEVICE/RUNTIME names.

    Raises:
        MissingOps: the table has no count of some op; the message has the command that would change that.
    """
    device, _, other = name.removeprefix(INSTRUCTIONS).partition("/")
    target = Target.of(device, other or runtime, setting, workspace)
    spaces = [] if space is None else [space]
    return luts.Lut.read(luts.find_lut(target, spaces)).column(specs, target, luts.INSTRUCTIONS, spaces) / 1e6


def _counted(space: Space, name: str, runtime: str, setting: Setting, workspace: str | Path) -> Cost:
    def each(specs: Sequence[OpSpec]) -> np.ndarray:
        return instructions_m(name, specs, runtime, setting, workspace, space.name)

    return summed_cost(space, name, "m", each)


def recounted(name: str, workload: Workload, setting: Setting) -> float:
    """An exact cost counted on the whole network, parameter by parameter and op by op, not by the compiled tables."""
    if name in ("params_m", "memory_mb"):
        networks = [phase.network for phase in workload.phases]
        parameters = sum(each.size for network in networks for each in network_parameters(network).values())
        return parameters * (ITEM_BYTES[setting.dtype] if name == "memory_mb" else 1) / 1e6
    work = [(phase.repeat, work_of(phase.network)) for phase in workload.phases]
    return sum(repeat * (each.macs if name == "macs_m" else each.flops) for repeat, each in work) / 1e6


def _sized(space: Space, name: str, setting: Setting) -> Cost:
    def each(specs: Sequence[OpSpec]) -> np.ndarray:
        return np.array([SIZES[name](spec, setting) for spec in specs])

    return summed_cost(space, name, name.rpartition("_")[2], each)


def _unknown(name: str) -> UsageError:
    known = [*SIZES, f"{ELSEWHERE}DEVICE", f"{INSTRUCTIONS}DEVICE"]
    if name == LATENCY:
        return UsageError(f"The limit of {LATENCY} is the budget itself (--budget-ms); for another device: {ELSEWHERE}DEVICE.")
    if name.startswith("energy"):
        return UsageError(
            f"Energy cannot be limited: predictors tell milliseconds and no table holds joules. Available: {', '.join(known)}."
        )
    return UnknownName(registry.unknown("cost", name, known))
